//! Cache files in a directory of the client's own, by the names of what is cached there.

use super::driver::Driver;
use super::error::ClientError;
use super::prepare::{CacheFiles, PrepareOptions};
use crate::aidl;
use binder::{ParcelFileDescriptor, Strong};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whether a model came from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was loaded.
    Hit,
    /// It was compiled, and saved.
    Miss,
    /// It was compiled, and the driver left the files empty: the disk is full, or it could not use them.
    Unsaved,
}

/// How many cache files of each kind `driver` wants: no more than the interface allows, whatever it says.
pub fn wanted(driver: &Driver) -> Result<aidl::NumberOfCacheFiles, ClientError> {
    let numbers =
        driver.answer("getNumberOfCacheFilesNeeded", driver.device().getNumberOfCacheFilesNeeded())?;
    let allowed = |count: i32| count.clamp(0, aidl::MAX_NUMBER_OF_CACHE_FILES);
    Ok(aidl::NumberOfCacheFiles {
        numModelCache: allowed(numbers.numModelCache),
        numDataCache: allowed(numbers.numDataCache),
    })
}

/// Opens the files in `directory` for the model that the bytes of `name` tell from all others, as many as `driver` wants.
pub fn open(directory: &Path, name: &[&[u8]], driver: &Driver) -> Result<CacheFiles, ClientError> {
    let numbers = wanted(driver)?;
    let version = driver.answer("getVersionString", driver.device().getVersionString())?;
    // A driver of another version could not use what this one wrote.
    let mut hasher = Sha256::new();
    hasher.update((version.len() as u64).to_le_bytes());
    hasher.update(version);
    name.iter().for_each(|part| hasher.update(part));
    let token: [u8; 32] = hasher.finalize().into();
    let name: String = token.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let fault = |path: PathBuf| |why| ClientError::File { path, why };
    std::fs::create_dir_all(directory).map_err(fault(directory.into()))?;
    let open = |kind: &str, count: i32| -> Result<Vec<ParcelFileDescriptor>, ClientError> {
        let file = |i| {
            let path = directory.join(format!("{name}.{kind}{i}"));
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path);
            file.map(ParcelFileDescriptor::new).map_err(fault(path))
        };
        (0..count).map(file).collect()
    };
    Ok(CacheFiles {
        model: open("model", numbers.numModelCache)?,
        data: open("data", numbers.numDataCache)?,
        token,
    })
}

/// Prepares `model` from its cache files, or else compiles and saves it. Gives also how long that took.
pub fn prepare(
    driver: &Driver,
    model: &aidl::Model,
    files: &CacheFiles,
    options: &PrepareOptions,
) -> Result<(Strong<dyn aidl::IPreparedModel>, Found, Duration), ClientError> {
    // A driver that is asked for what is in no file takes that for a fault, and logs it.
    if hold_anything(files) {
        let start = Instant::now();
        match driver.prepare_from(files) {
            Ok(prepared) => return Ok((prepared, Found::Hit, start.elapsed())),
            Err(why @ ClientError::Refused { .. }) => log::info!("not loaded from its cache: {why}"),
            Err(other) => return Err(other),
        }
    }
    let start = Instant::now();
    let prepared = driver.prepare_into(model, files, options)?;
    let time = start.elapsed();
    let found = if hold_anything(files) { Found::Miss } else { Found::Unsaved };
    Ok((prepared, found, time))
}

/// Whether the file that tells what a driver saved has anything in it. Our own fills that last.
fn hold_anything(files: &CacheFiles) -> bool {
    let length = |file: &ParcelFileDescriptor| -> std::io::Result<u64> {
        Ok(File::from(file.as_ref().try_clone()?).metadata()?.len())
    };
    let first = files.model.first().or(files.data.first());
    first.is_some_and(|file| length(file).is_ok_and(|length| length > 0))
}
