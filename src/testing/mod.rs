//! The kit with which a vendor's crate tests its own backend, in its own tests: [`check_backend`].
//!
//! - `samples`: small models with the results that are expected of them
//! - `report`: what every backend must keep to, and what is wrong with one
//! - `rules`: each rule, tried for itself
//! - `running`: executions that must end, and what they gave
//!
//! It knows a backend by its trait only, and needs no driver: no binder, no service. What it cannot see is whether results
//! are right beyond its samples; a vendor adds models of their own.

mod report;
mod rules;
mod running;
mod samples;

pub use report::{Fault, Report, Rule};
pub use samples::{standard_samples, Sample};

use crate::backend::Backend;
use std::sync::Arc;

/// A check of a backend, with what it needs.
pub struct Kit {
    backend: Arc<dyn Backend>,
    samples: Vec<Sample>,
    rounds: usize,
    lose: Option<Box<dyn Fn()>>,
}

impl Kit {
    /// A kit with the standard samples.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Kit { backend, samples: standard_samples(), rounds: 32, lose: None }
    }

    /// Another model to try, of a vendor's own.
    pub fn sample(mut self, sample: Sample) -> Self {
        self.samples.push(sample);
        self
    }

    /// How often everything is done to see whether something stays behind; at least 16.
    pub fn rounds(self, rounds: usize) -> Self {
        Kit { rounds: rounds.max(16), ..self }
    }

    /// How the device is lost: kills its process, resets it. Without it, that rule is not tried.
    pub fn losing(self, lose: impl Fn() + 'static) -> Self {
        Kit { lose: Some(Box::new(lose)), ..self }
    }

    /// Tries every rule. It counts what this process holds: nothing else should run in it.
    pub fn check(&self) -> Report {
        rules::check(&self.backend, &self.samples, self.rounds, self.lose.as_deref())
    }
}

/// Tries every rule on the standard samples. Panics with the list of faults if there are any, and if the backend takes none
/// of the samples, as nothing was tried then.
///
/// ```
/// use nnhal::backend::cpu::CpuBackend;
/// use std::sync::Arc;
///
/// let backend = CpuBackend::new(2)?;
/// let report = nnhal::testing::check_backend(Arc::new(backend));
/// assert!(report.taken.iter().any(|name| name.starts_with("FULLY_CONNECTED")), "{report}");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_backend(backend: Arc<dyn Backend>) -> Report {
    Kit::new(backend).check().passed()
}
