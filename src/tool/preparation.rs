//! How long a driver takes to prepare a model that it has compiled before.

use super::driver::{ServiceName, ServiceOptions};
use super::error::ToolError;
use super::model_file::ModelFile;
use super::run::session::{data_in, Session};
use super::run::values;
use crate::aidl::{Model, Operand, OperandLifeTime, BYTE_SIZE_OF_CACHE_TOKEN};
use crate::cache::Store;
use crate::client::{cache_files, CacheFiles, ClientError, PrepareOptions};
use crate::compiler::LEAST_CONSTANTS;
use crate::daemon::embedded::PrivateDirectory;
use binder::ParcelFileDescriptor;
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Loads that a load's time is the median of.
const LOADS: usize = 5;

/// How long a driver may take in the background.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// How long it takes to load the model from files that the driver of `session` has filled; `None` if it does not cache.
pub fn from_cache(session: &Session, model: &Model) -> Result<Option<Duration>, ToolError> {
    let driver = session.driver();
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
    driver.prepare_into(model, &files, &PrepareOptions::default())?;
    median_time(|| driver.prepare_from(&files)).map(Some)
}

/// The same of a driver in this process, which has used the model before; and how long it takes to prepare the model from
/// the driver's own store, `None` if it is too small for that.
pub fn in_process(
    options: &ServiceOptions,
    file: &ModelFile,
) -> Result<(Option<Duration>, Option<Duration>), ToolError> {
    let (service, imported) = (ServiceName::Embedded, &file.imported);
    let inputs: Vec<_> = imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
    let is_stored = constants(&imported.model) >= LEAST_CONSTANTS;
    let directory = PrivateDirectory::new()?;
    let place = (directory.path(), &file.bytes[..]);
    let (mut session, _) = Session::cached(imported, &service, options, place)?;
    session.run(&inputs)?;
    if is_stored && !is_kept(&data_in(directory.path())) {
        return Ok((None, None));
    }
    let files = cache_files::open(directory.path(), &file.bytes, session.driver())?;
    let cached = median_time(|| session.driver().prepare_from(&files))?;
    drop(session);
    if !is_stored {
        return Ok((Some(cached), None));
    }
    let directory = PrivateDirectory::new()?;
    let data = Some(directory.path().to_path_buf());
    let (connect, prepare) = (ServiceOptions { data, ..options.clone() }, PrepareOptions::default());
    let mut session = Session::with_options(imported, &service, &connect, &prepare)?;
    session.run(&inputs)?;
    let stored = is_kept(directory.path());
    let load = || median_time(|| session.driver().prepare(&imported.model, &prepare));
    Ok((Some(cached), stored.then(load).transpose()?))
}

/// Waits until the driver with this directory has stored what it does in the background; `false` if it does not.
fn is_kept(directory: &Path) -> bool {
    let start = Instant::now();
    while Store::count(directory) == 0 {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
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
