//! Runs that are watched. Those that count as measurements of the model are never watched: even a little costs something.

use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, Control, Description, Observer, Peaks, Span};
use crate::tool::driver::ServiceName;
use crate::tool::error::ToolError;
use crate::tool::run::session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Spans that are kept of a run at the most.
const SPANS: usize = 1 << 18;
/// More runs than this make no median better.
const MOST_RUNS: usize = 2000;

/// A driver in this process that is watched.
#[derive(Clone)]
pub struct Watch(Arc<Observer>);

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
    pub spans: Vec<Span>,
}

impl Watch {
    /// A watch for the driver of `service`, which `flag` asks for.
    pub fn new(service: &ServiceName, flag: &str) -> Result<Self, ToolError> {
        match service {
            ServiceName::Embedded => Ok(Watch(Observer::new(SPANS))),
            ServiceName::At(_) => {
                Err(ToolError::Usage(format!("{flag} is for the embedded driver: leave --service out")))
            }
        }
    }

    /// Who watches, for the driver to be started with.
    pub fn observer(&self) -> Arc<Observer> {
        self.0.clone()
    }

    /// Whether runs from here on are recorded.
    pub fn record(&self, recording: bool) {
        self.0.record(recording);
    }

    /// What the model says of itself that was prepared last.
    pub fn description(&self) -> Result<Description, ToolError> {
        let nothing =
            || ToolError::Failed("the driver does not tell what runs the model's operations".into());
        self.0.description().ok_or_else(nothing)
    }

    /// What was recorded since the last time.
    pub fn take(&self) -> (Vec<Span>, u64) {
        self.0.take()
    }

    /// Runs on `inputs` while this watches: for so many seconds, and so often at least.
    pub fn runs(
        &self,
        session: &mut Session,
        inputs: &[Vec<u8>],
        seconds: f64,
        fewest: usize,
    ) -> Result<Recording, ToolError> {
        let (mut runs, mut missed) = (Vec::new(), 0u64);
        self.take();
        self.record(true);
        let start = Instant::now();
        while runs.len() < fewest || start.elapsed().as_secs_f64() < seconds && runs.len() < MOST_RUNS {
            let run = session.run(inputs);
            let (spans, more) = self.take();
            missed = missed.saturating_add(more);
            match run {
                Ok((_, call)) => runs.push(Run { call, spans }),
                Err(why) => {
                    self.record(false);
                    return Err(why);
                }
            }
        }
        self.record(false);
        // Asked afterwards: a model that its first run compiles has nothing to tell before.
        Ok(Recording { description: self.description()?, runs, missed })
    }
}

/// What this machine does at the most on so many threads, by the CPU backend's kernels.
pub fn peaks(threads: Option<usize>) -> Option<Peaks> {
    let backend = match threads {
        Some(threads) => CpuBackend::new(threads),
        None => CpuBackend::on_all_cores(),
    };
    backend.ok()?.peaks(&Control::default())
}
