//! What the clients of one driver hold.

use super::limits;
use super::limits::Limit;
use crate::quota::{Exhausted, Permit, Quota};
use std::sync::Arc;

/// One kind of thing, and who has how much of it.
struct Shared {
    what: &'static str,
    quota: Arc<Quota>,
}

/// The quotas of a driver.
pub struct Quotas {
    callbacks: Shared,
    executions: Shared,
    checks: Shared,
    models: Shared,
    mappings: Shared,
    large_buffers: Shared,
    mapped_bytes: Shared,
    descriptors: Shared,
    cache_files: Shared,
    fmq_bursts: Shared,
    objects: Shared,
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
        let of = |limit: Limit| Shared { what: limit.what, quota: limit.quota() };
        Quotas {
            callbacks: of(limits::CALLBACKS),
            executions: of(limits::EXECUTIONS),
            checks: of(limits::CHECKS),
            models: of(limits::MODELS),
            mappings: of(limits::MAPPINGS),
            large_buffers: of(limits::LARGE_BUFFERS),
            mapped_bytes: of(limits::MAPPED_BYTES),
            descriptors: of(limits::DESCRIPTORS),
            cache_files: of(limits::CACHE_FILES),
            fmq_bursts: of(limits::FMQ_BURSTS),
            objects: of(limits::OBJECTS),
        }
    }

    /// All of them, by what they count.
    pub fn all(&self) -> [(&'static str, Arc<Quota>); 11] {
        let Quotas {
            callbacks,
            executions,
            checks,
            models,
            mappings,
            large_buffers,
            mapped_bytes,
            descriptors,
            cache_files,
            fmq_bursts,
            objects,
        } = self;
        [
            callbacks,
            executions,
            checks,
            models,
            mappings,
            large_buffers,
            mapped_bytes,
            descriptors,
            cache_files,
            fmq_bursts,
            objects,
        ]
        .map(|shared| (shared.what, shared.quota.clone()))
    }

    /// A callback that has not returned yet.
    pub fn callback(&self, client: u32) -> Result<Permit, Refused> {
        self.callbacks.take(client, 1)
    }

    /// An execution that a binder thread waits for.
    pub fn execution(&self, client: u32) -> Result<Permit, Refused> {
        self.executions.take(client, 1)
    }

    /// A model that a binder thread checks.
    pub fn check(&self, client: u32) -> Result<Permit, Refused> {
        self.checks.take(client, 1)
    }

    /// A prepared model.
    pub fn model(&self, client: u32) -> Result<Permit, Refused> {
        self.models.take(client, 1)
    }

    /// Mappings that outlive their call.
    pub fn mappings(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        self.mappings.take(client, count)
    }

    /// A burst over queues.
    pub fn fmq_burst(&self, client: u32) -> Result<Permit, Refused> {
        self.fmq_bursts.take(client, 1)
    }

    /// An object of an execution, which its client may keep.
    pub fn object(&self, client: u32) -> Result<Permit, Refused> {
        self.objects.take(client, 1)
    }

    /// Cache files that are open for a job, and kept open to be rewritten; without this they are not used.
    pub fn cache_files(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        self.cache_files.take(client, count)
    }

    /// What counts bytes of clients' memory while they are mapped, for who maps it.
    pub fn of_mapped_bytes(&self) -> Arc<Quota> {
        self.mapped_bytes.quota.clone()
    }

    /// What counts large private buffers, for who takes them.
    pub fn of_large_buffers(&self) -> Arc<Quota> {
        self.large_buffers.quota.clone()
    }

    /// What counts descriptors, for who counts some that memory has.
    pub fn of_descriptors(&self) -> Arc<Quota> {
        self.descriptors.quota.clone()
    }

    /// Descriptors that outlive their call.
    pub fn descriptors(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        self.descriptors.take(client, count)
    }
}

impl Shared {
    fn take(&self, client: u32, count: usize) -> Result<Permit, Refused> {
        self.quota.take(client, count as u64).map_err(|why| Refused { what: self.what, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clients_with_all_the_idle_bursts_they_can_get_leave_some_for_a_third() {
        let quotas = Quotas::new();
        let most = |client| std::iter::from_fn(|| quotas.fmq_burst(client).ok()).collect::<Vec<_>>();
        let (first, second) = (most(1), most(2));
        let share = limits::FMQ_BURSTS.quota().per_client() as usize;
        assert_eq!(first.len(), share, "one alone has a share");
        assert!(second.len() > share / 2 && second.len() < share, "the next has {}", second.len());
        let third = most(3);
        assert!(third.len() > share / 3, "{} are left for a third", third.len());
        // What one gives back is another's to take, and not only its own.
        drop(first);
        assert!(most(4).len() > share / 2);
    }
}
