//! The report that a run leaves in a directory, to be sent around and read without this tool: `report.json`, `report.html`,
//! and a directory for each failure.
//!
//! - `failures`: what is kept of a failure, so that it can be seen and repeated
//! - `html`: the page; `diff`: what changed between two reports

pub mod diff;
pub mod failures;
mod html;

use super::account::{Account, Counts, Line, Lost};
use super::probe::Available;
use crate::tool::error::ToolError;
use crate::tool::facts::Facts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How models that test an operation on a type fared.
#[derive(Serialize)]
struct ByOperation<'a> {
    operation: &'a str,
    #[serde(rename = "type")]
    ty: &'a str,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Of all its models, one after the other.
    seconds: f64,
}

/// All of it. Fields are only ever added: `--diff` reads reports of older builds.
#[derive(Serialize)]
pub struct Report<'a> {
    tool: String,
    /// Where the driver was.
    service: String,
    /// Seconds since 1970.
    when: u64,
    driver: Option<&'a Facts>,
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
    executions: &'a super::paths::Executions,
    client_threads: usize,
    suites: BTreeMap<&'static str, &'a Counts>,
    operations: Vec<ByOperation<'a>>,
    interface_version: i32,
    paths: Vec<&'static str>,
    left_out: &'a [String],
    missing_operations: &'a BTreeMap<String, usize>,
    skips: &'a BTreeMap<String, usize>,
    /// Times that the driver died or hung.
    losses: &'a [Lost],
    /// Models that were to be run and were not, as the driver was lost for good.
    not_run: usize,
    results: &'a [Line],
}

impl<'a> Report<'a> {
    pub fn new(
        account: &'a Account,
        available: &'a Available,
        facts: Option<&'a Facts>,
        service: String,
        tasks: usize,
    ) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let operations = account.operations.iter().map(|((operation, ty), counts)| ByOperation {
            operation,
            ty,
            passed: counts.passed,
            failed: counts.failed,
            skipped: counts.skipped,
            seconds: counts.seconds,
        });
        Report {
            tool: format!("nnhal {}", env!("CARGO_PKG_VERSION")),
            service,
            when: now.as_secs(),
            driver: facts,
            passed: account.total.passed,
            failed: account.total.failed,
            skipped: account.total.skipped,
            seconds: account.total.seconds,
            executions: &account.total.executions,
            client_threads: account.jobs,
            suites: account.suites.iter().map(|(suite, counts)| (suite.name(), counts)).collect(),
            operations: operations.collect(),
            interface_version: available.interface_version,
            paths: available.paths.iter().map(|path| path.name()).collect(),
            left_out: &available.left_out,
            missing_operations: &account.missing,
            skips: &account.skips,
            losses: &account.losses,
            not_run: tasks.saturating_sub(account.lines.len()),
            results: &account.lines,
        }
    }

    /// Writes the whole report as one JSON object.
    pub fn write_json(&self, path: &Path) -> Result<(), ToolError> {
        let json = serde_json::to_vec(self).map_err(|why| ToolError::Failed(why.to_string()))?;
        std::fs::write(path, json).map_err(|why| ToolError::File { path: path.into(), why })
    }

    /// Writes `report.json` and `report.html`.
    pub fn write(&self, directory: &Path) -> Result<(), ToolError> {
        self.write_json(&directory.join("report.json"))?;
        let path = directory.join("report.html");
        std::fs::write(&path, html::page(self)).map_err(|why| ToolError::File { path, why })
    }
}
