//! The .tflite file that a command is given.

use super::error::ToolError;
use crate::client::builder::Mapped;
use crate::memory::whole_file;
use crate::tflite::{self, Imported};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// A file, and the model in it.
pub struct ModelFile {
    /// All of it.
    pub bytes: Mmap,
    /// Its large constants are the file's, which the driver maps as well: nothing is copied.
    pub imported: Imported,
    /// How long it took to read and to import.
    pub time: Duration,
}

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<ModelFile, ToolError> {
    let began = Instant::now();
    let mapped = File::open(path).and_then(|file| match file.metadata()?.is_file() {
        true => Ok((whole_file(&file)?, file)),
        false => Err(std::io::Error::other("it is no regular file")),
    });
    let (bytes, file) = mapped.map_err(|why| {
        ToolError::Usage(format!("{}: {why}; give the path of a .tflite file", path.display()))
    })?;
    let imported = tflite::import_mapped(Mapped { file: &file, bytes: &bytes })
        .map_err(|why| ToolError::Model { path: path.into(), why })?;
    Ok(ModelFile { bytes, imported, time: began.elapsed() })
}
