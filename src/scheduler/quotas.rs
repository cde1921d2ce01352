//! How much of everything one client, and all together, may have.

use super::quota::{Exhausted, Permit, Quota};
use std::sync::Arc;

/// Executions that binder threads wait for at once.
pub const EXECUTIONS: u64 = 48;

/// The limits of a driver.
pub struct Quotas {
    callbacks: Arc<Quota>,
    executions: Arc<Quota>,
    models: Arc<Quota>,
    mappings: Arc<Quota>,
    descriptors: Arc<Quota>,
    cache_files: Arc<Quota>,
    fmq_bursts: Arc<Quota>,
}

/// A client, or all clients together, hold too much of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many {what}: {why}")]
pub struct Refused {
    what: &'static str,
    why: Exhausted,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas::new()
    }
}

impl Quotas {
    pub fn new() -> Self {
        Quotas {
            // Each holds a thread until it returns.
            callbacks: Quota::new(512, 128),
            // Each holds a binder thread, of which some must be left.
            executions: Quota::new(EXECUTIONS, EXECUTIONS / 2),
            models: Quota::new(8192, 2048),
            // Below what the kernel allows a process, which is 65,530, with room for executions in passing.
            mappings: Quota::new(48_000, 32_000),
            descriptors: Quota::new(descriptors(2), descriptors(4)),
            // Of their own, so that nobody's fences go short for files that will be rewritten some time.
            cache_files: Quota::new(descriptors(8), descriptors(16)),
            // Each has a thread.
            fmq_bursts: Quota::new(128, 32),
        }
    }

    /// A callback that has not returned yet.
    pub fn callback(&self, client: u32) -> Result<Permit, Refused> {
        take(&self.callbacks, client, 1, "callbacks have not been answered")
    }

    /// An execution that a binder thread waits for.
    pub fn execution(&self, client: u32) -> Result<Permit, Refused> {
        take(&self.executions, client, 1, "executions wait or run")
    }

    /// A prepared model.
    pub fn model(&self, client: u32) -> Result<Permit, Refused> {
        take(&self.models, client, 1, "prepared models are alive")
    }

    /// Mappings that outlive their call.
    pub fn mappings(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        take(&self.mappings, client, count, "memories are mapped")
    }

    /// A burst over queues.
    pub fn fmq_burst(&self, client: u32) -> Result<Permit, Refused> {
        take(&self.fmq_bursts, client, 1, "bursts over queues are open")
    }

    /// Cache files that are kept open to be rewritten; without this they are not.
    pub fn cache_files(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        take(&self.cache_files, client, count, "cache files are open")
    }

    /// Descriptors that outlive their call.
    pub fn descriptors(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        take(&self.descriptors, client, count, "fences are waited for")
    }
}

fn take(quota: &Arc<Quota>, client: u32, count: usize, what: &'static str) -> Result<Permit, Refused> {
    quota.take(client, count as u64).map_err(|why| Refused { what, why })
}

/// One part in `parts` of the descriptors that this process may open.
fn descriptors(parts: u64) -> u64 {
    use nix::sys::resource::{getrlimit, Resource};
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    #[allow(clippy::useless_conversion)] // rlim_t has 32 bits on 32-bit Android
    let soft = u64::from(soft);
    soft.min(1 << 20) / parts
}
