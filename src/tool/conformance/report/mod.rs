//! The report that a run leaves in a directory, to be sent around and read without this tool: `report.json`, `report.html`,
//! and a directory for each failure.
//!
//! - `content`: what it holds; `html`: the page
//! - `failures`: what is kept of a failure, so that it can be seen and repeated
//! - `diff`: what changed between two reports

mod content;
pub mod diff;
pub mod failures;
mod html;

use crate::tool::error::ToolError;
pub use content::Report;
use std::path::Path;

/// Writes `report.json` and `report.html`.
pub fn write(report: &Report, directory: &Path) -> Result<(), ToolError> {
    report.write_json(&directory.join("report.json"))?;
    let path = directory.join("report.html");
    std::fs::write(&path, html::page(report)).map_err(|why| ToolError::File { path, why })
}
