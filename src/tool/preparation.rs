//! How long a driver takes to prepare a model that it has compiled before.

use super::client::{CacheFiles, ClientError, ConnectOptions, Driver, PrepareOptions, ServiceName};
use super::error::ToolError;
use crate::aidl::{Model, Operand, OperandLifeTime, BYTE_SIZE_OF_CACHE_TOKEN};
use crate::cache::Store;
use crate::compiler::LEAST_CONSTANTS;
use crate::service::embedded::PrivateDirectory;
use binder::ParcelFileDescriptor;
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::time::{Duration, Instant, SystemTime};

/// Loads that a load's time is the median of.
const LOADS: usize = 5;

/// How long it takes to load the model from files that the driver has filled; `None` if it does not cache.
pub fn from_cache(driver: &Driver, model: &Model) -> Result<Option<Duration>, ToolError> {
    let needed =
        driver.answer("getNumberOfCacheFilesNeeded", driver.device().getNumberOfCacheFilesNeeded())?;
    if (needed.numModelCache, needed.numDataCache) == (0, 0) {
        return Ok(None);
    }
    let files = |count: i32| -> Result<Vec<_>, ToolError> {
        let file = |_| Ok(ParcelFileDescriptor::new(memfd_create(c"nnhal-cache", MFdFlags::MFD_CLOEXEC)?));
        (0..count).map(file).collect::<std::io::Result<_>>().map_err(ToolError::Memory)
    };
    // A name that no earlier run has used with the same driver.
    let mut token = [0; BYTE_SIZE_OF_CACHE_TOKEN as usize];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    token[..16].copy_from_slice(&now.as_nanos().to_le_bytes());
    token[16..20].copy_from_slice(&std::process::id().to_le_bytes());
    let files = CacheFiles { model: files(needed.numModelCache)?, data: files(needed.numDataCache)?, token };
    drop(driver.prepare_into(model, &files)?);
    median_time(|| driver.prepare_from(&files)).map(Some)
}

/// How long it takes to prepare the model again where a driver has it in its own store; `None` if it keeps none such.
pub fn from_store(options: &ConnectOptions, model: &Model) -> Result<Option<Duration>, ToolError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    if constants(model) < LEAST_CONSTANTS {
        return Ok(None);
    }
    let directory = PrivateDirectory::new().map_err(ClientError::from)?;
    let data = Some(directory.path().to_path_buf());
    let driver = Driver::connect(&ServiceName::Embedded, &ConnectOptions { data, ..options.clone() })?;
    let prepare = || driver.prepare(model, &PrepareOptions::default());
    drop(prepare()?);
    let start = Instant::now();
    while Store::count(directory.path()) == 0 {
        if start.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    median_time(prepare).map(Some)
}

/// How long `work` takes.
fn median_time<T>(work: impl Fn() -> Result<T, ClientError>) -> Result<Duration, ToolError> {
    let mut times = [Duration::ZERO; LOADS];
    for time in &mut times {
        let start = Instant::now();
        let done = work()?;
        *time = start.elapsed();
        drop(done);
    }
    times.sort();
    Ok(times[LOADS / 2])
}

/// Bytes of constants.
fn constants(model: &Model) -> usize {
    use OperandLifeTime as L;
    let is_constant = |operand: &&Operand| matches!(operand.lifetime, L::CONSTANT_COPY | L::CONSTANT_POOL);
    let lengths = model.main.operands.iter().filter(is_constant).map(|operand| operand.location.length);
    lengths.fold(0, |sum, length| sum.saturating_add(usize::try_from(length).unwrap_or(0)))
}
