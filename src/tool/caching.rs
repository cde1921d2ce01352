//! The client's side of compilation caching: cache files in a directory of its own, and a token for each model.

use super::client::{CacheFiles, ClientError, Driver};
use super::error::ToolError;
use crate::aidl;
use binder::{ParcelFileDescriptor, Strong};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whether a model came from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Hit,
    Miss,
}

impl CacheFiles {
    /// Opens the files for the model in the .tflite file `bytes`, as many as `driver` wants.
    pub fn open(directory: &Path, bytes: &[u8], driver: &Driver) -> Result<Self, ToolError> {
        let device = driver.device();
        let numbers = driver.answer("getNumberOfCacheFilesNeeded", device.getNumberOfCacheFilesNeeded())?;
        let version = driver.answer("getVersionString", device.getVersionString())?;
        // A driver of another version could not use what this one wrote.
        let mut hasher = Sha256::new();
        hasher.update((version.len() as u64).to_le_bytes());
        hasher.update(version);
        hasher.update(bytes);
        let token: [u8; 32] = hasher.finalize().into();
        let name: String = token.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let fault = |path: PathBuf| |why| ToolError::File { path, why };
        std::fs::create_dir_all(directory).map_err(fault(directory.into()))?;
        let open = |kind: &str, count: i32| -> Result<Vec<ParcelFileDescriptor>, ToolError> {
            let file = |i| {
                let path = directory.join(format!("{name}.{kind}{i}"));
                let mut options = File::options();
                let file = options.read(true).write(true).create(true).truncate(false).open(&path);
                file.map(ParcelFileDescriptor::new).map_err(fault(path))
            };
            (0..count.clamp(0, aidl::MAX_NUMBER_OF_CACHE_FILES)).map(file).collect()
        };
        Ok(CacheFiles {
            model: open("model", numbers.numModelCache)?,
            data: open("data", numbers.numDataCache)?,
            token,
        })
    }

    /// Prepares `model` from its cache, or else compiles and saves it. Gives also how long that took.
    pub fn prepare(
        &self,
        driver: &Driver,
        model: &aidl::Model,
    ) -> Result<(Strong<dyn aidl::IPreparedModel>, Found, Duration), ClientError> {
        let start = Instant::now();
        match driver.prepare_from(self) {
            Ok(prepared) => return Ok((prepared, Found::Hit, start.elapsed())),
            Err(ClientError::Refused { message, .. }) => log::info!("not loaded from its cache: {message}"),
            Err(other) => return Err(other),
        }
        let start = Instant::now();
        let prepared = driver.prepare_into(model, self)?;
        Ok((prepared, Found::Miss, start.elapsed()))
    }
}
