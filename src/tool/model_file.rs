//! The .tflite file that a command is given.

use super::error::ToolError;
use crate::tflite::{self, Imported};
use std::path::Path;

/// Its bytes, and the model in them.
pub fn read(path: &Path) -> Result<(Vec<u8>, Imported), ToolError> {
    let bytes = std::fs::read(path).map_err(|why| {
        ToolError::Usage(format!("{}: {why}; give the path of a .tflite file", path.display()))
    })?;
    let imported = tflite::import(&bytes).map_err(|why| ToolError::Model { path: path.into(), why })?;
    Ok((bytes, imported))
}
