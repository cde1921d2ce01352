//! Runs that are watched. Those that count as measurements of the model are never watched: even a little costs something.

use crate::aidl::DeviceType;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, Control, Description, Noted, Peaks};
use crate::client::{Diagnostics, Driver, PreparedModel, Recorder};
use crate::tool::error::ToolError;
use crate::tool::progress;
use crate::tool::run::session::Session;
use std::time::{Duration, Instant};

/// Spans that are kept of a run at the most.
const SPANS: usize = 1 << 18;
/// More runs than this make no median better.
const MOST_RUNS: usize = 2000;

/// Watches the runs of a model.
pub struct Watch(Recorder);

/// Runs that were watched.
pub struct Recording {
    /// What the model says of itself.
    pub description: Description,
    pub runs: Vec<Run>,
    /// What was too much to be kept.
    pub missed: u64,
}

/// A run that was watched.
pub struct Run {
    /// How long the call took, as its client sees it.
    pub call: Duration,
    pub noted: Noted,
}

/// The extension by which `driver` tells of models; `None` where it does not.
fn diagnostics(driver: &Driver) -> Result<Option<Diagnostics<'_>>, ToolError> {
    Ok(driver.diagnostics()?.filter(Diagnostics::tells_of_models))
}

/// The same, where `flag` asks for it.
fn wanted<'d>(driver: &'d Driver, flag: &str) -> Result<Diagnostics<'d>, ToolError> {
    diagnostics(driver)?.ok_or_else(|| ToolError::Usage(format!("{flag}: {}", does_not_tell(driver))))
}

/// Whether `driver` tells what becomes of models.
pub fn tells(driver: &Driver) -> Result<bool, ToolError> {
    Ok(diagnostics(driver)?.is_some())
}

/// An error where it does not, and `flag` asks for it.
pub fn check(driver: &Driver, flag: &str) -> Result<(), ToolError> {
    wanted(driver, flag).map(drop)
}

/// That it does not, and why.
pub fn does_not_tell(driver: &Driver) -> String {
    let why = "it has no extension vendor.nnhal.diagnostics of version 2 or later";
    format!("the driver at {} does not tell what becomes of a model: {why}", driver.address())
}

/// What a driver says that knows nothing of a model.
pub const KNOWS_NOTHING: &str = "the driver does not know what runs the model's operations";

/// What `model` says of itself; `None` where it says nothing, or its driver does not tell.
pub fn describe(driver: &Driver, model: &PreparedModel) -> Result<Option<Description>, ToolError> {
    Ok(diagnostics(driver)?.map(|diagnostics| diagnostics.describe(model)).transpose()?.flatten())
}

/// The same, where `flag` asks for it.
pub fn described(driver: &Driver, model: &PreparedModel, flag: &str) -> Result<Description, ToolError> {
    let nothing = || ToolError::Failed(format!("{flag}: {KNOWS_NOTHING}"));
    wanted(driver, flag)?.describe(model)?.ok_or_else(nothing)
}

impl Watch {
    /// Watches the runs of `session` from here on; `flag` asks for it.
    pub fn new(session: &Session, flag: &str) -> Result<Self, ToolError> {
        Ok(Watch(wanted(session.driver(), flag)?.record(session.prepared())?))
    }

    /// What was recorded since the last time.
    pub fn take(&self, session: &Session) -> Result<Noted, ToolError> {
        Ok(self.0.take(session.driver(), SPANS)?)
    }
}

/// Watched runs of `session` on `inputs`: for so many seconds, and so often at least; `flag` asks for them.
pub fn watched(
    session: &mut Session,
    inputs: &[Vec<u8>],
    (seconds, fewest): (f64, usize),
    flag: &str,
) -> Result<Recording, ToolError> {
    let watch = Watch::new(session, flag)?;
    let (mut runs, mut missed) = (Vec::new(), 0u64);
    let start = Instant::now();
    let _progress = progress::waiting("recording runs");
    while runs.len() < fewest || start.elapsed().as_secs_f64() < seconds && runs.len() < MOST_RUNS {
        let (_, call) = session.run(inputs)?;
        let noted = watch.take(session)?;
        missed = missed.saturating_add(noted.missed);
        runs.push(Run { call, noted });
    }
    // Asked afterwards: a model that its first run compiles has nothing to tell before.
    let description = described(session.driver(), session.prepared(), flag)?;
    Ok(Recording { description, runs, missed })
}

/// Whether the driver computes on the cores of this machine, whose peaks it is to be compared with.
pub fn is_of_processor(driver: &Driver) -> Result<bool, ToolError> {
    Ok(driver.answer("getType", driver.device().getType())? == DeviceType::CPU)
}

/// What this machine does at the most on so many threads, or on all of them, by the CPU backend's kernels.
pub fn peaks(threads: Option<usize>) -> Option<Peaks> {
    let backend = match threads {
        Some(threads) => CpuBackend::new(threads),
        None => CpuBackend::on_all_cores(),
    };
    backend.ok()?.peaks(&Control::default())
}
