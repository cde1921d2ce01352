//! How long a driver takes to prepare a model that it has compiled before.

use super::driver::{ServiceName, ServiceOptions};
use super::error::ToolError;
use super::run::{session::Session, values};
use crate::aidl::{Model, Operand, OperandLifeTime, BYTE_SIZE_OF_CACHE_TOKEN};
use crate::cache::Store;
use crate::client::{cache_files, CacheFiles, ClientError, Driver, PrepareOptions};
use crate::compiler::LEAST_CONSTANTS;
use crate::daemon::embedded::PrivateDirectory;
use crate::tflite::Imported;
use binder::ParcelFileDescriptor;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::unistd::Uid;
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime};

/// Loads that a load's time is the median of.
const LOADS: usize = 5;

/// How long a driver may take in the background.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// How long models may take to go.
const GOING: Duration = Duration::from_millis(500);

/// How long it takes to load the model, of which none is prepared, from files that the driver has filled; `None` if it does not
/// cache.
pub fn from_cache(
    driver: &Driver,
    model: &Model,
    prepare: &PrepareOptions,
) -> Result<Option<Duration>, ToolError> {
    let needed = cache_files::wanted(driver)?;
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
    driver.prepare_into(model, &files, prepare)?;
    median_time(driver, || driver.prepare_from(&files)).map(Some)
}

/// How long it takes to prepare the model again where a driver has it in its own store; `None` if it keeps none such.
pub fn from_store(
    options: &ServiceOptions,
    imported: &Imported,
    prepare: &PrepareOptions,
) -> Result<Option<Duration>, ToolError> {
    let model = &imported.model;
    if constants(model) < LEAST_CONSTANTS {
        return Ok(None);
    }
    let directory = PrivateDirectory::new()?;
    let data = Some(directory.path().to_path_buf());
    let connect = ServiceOptions { data, ..options.clone() };
    let mut session = Session::with_options(imported, &ServiceName::Embedded, &connect, prepare)?;
    let inputs: Vec<_> = imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
    session.run(&inputs)?;
    let start = Instant::now();
    while Store::count(directory.path()) == 0 {
        if start.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
    let driver = session.into_driver();
    median_time(&driver, || driver.prepare(model, prepare)).map(Some)
}

/// How long `work` takes, which prepares a model.
fn median_time<T>(driver: &Driver, work: impl Fn() -> Result<T, ClientError>) -> Result<Duration, ToolError> {
    let mut times = [Duration::ZERO; LOADS];
    for time in &mut times {
        await_none(driver)?;
        let start = Instant::now();
        let done = work()?;
        *time = start.elapsed();
        drop(done);
    }
    times.sort();
    Ok(times[LOADS / 2])
}

/// Waits, not for long, until the driver has no prepared model of this user: one that is alive is shared, and not loaded.
fn await_none(driver: &Driver) -> Result<(), ToolError> {
    let Some(diagnostics) = driver.diagnostics()? else { return Ok(()) };
    let (start, user) = (Instant::now(), Uid::current().as_raw());
    while start.elapsed() < GOING {
        let status: Value = serde_json::from_str(&diagnostics.status()?).unwrap_or_default();
        let clients = status["clients"].as_array().map_or(&[][..], Vec::as_slice);
        let mut own = clients.iter().filter(|client| client["uid"] == user);
        if own.all(|client| client["prepared_models"] == 0) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Bytes of constants.
fn constants(model: &Model) -> usize {
    use OperandLifeTime as L;
    let is_constant = |operand: &&Operand| matches!(operand.lifetime, L::CONSTANT_COPY | L::CONSTANT_POOL);
    let lengths = model.main.operands.iter().filter(is_constant).map(|operand| operand.location.length);
    lengths.fold(0, |sum, length| sum.saturating_add(usize::try_from(length).unwrap_or(0)))
}
