//! IBurst: one execution after another, with the mappings of memory that the client names by tokens kept between them.
//!
//! A request that comes again, over the same memory, is not checked again. Whether it is the same memory is never taken
//! on the client's word.

use super::arguments::Span;
use super::busy::Busy;
use super::call::handle;
use super::prepared::Prepared;
use super::run::{Execution, Purpose};
use super::status::ServiceError;
use super::terms::{self, Terms};
use crate::aidl::*;
use crate::backend;
use crate::ipc::{self, BinderResult, Interface, Strong};
use crate::memory::{Identity, Pool};
use crate::scheduler::Permit;
use crate::statistics::OpenBurst;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Mappings that one burst keeps.
pub(super) const MAX_MAPPINGS: usize = 64;

struct Burst {
    prepared: Arc<Prepared>,
    busy: Arc<AtomicBool>,
    cache: Mutex<Cache>,
    /// The place of its mappings among the client's.
    _mappings: Permit,
    _open: OpenBurst,
}

#[derive(Default)]
struct Cache {
    entries: HashMap<i64, Entry>,
    /// Counts uses.
    clock: u64,
    /// What ran last.
    last: Option<Last>,
}

/// A request that was checked and whose memory was found: if the next request is the same, it runs without another check.
struct Last {
    inputs: Vec<RequestArgument>,
    outputs: Vec<RequestArgument>,
    /// By pool: the client's token, and the memory.
    memory: Vec<(i64, Identity)>,
    execution: Arc<Execution>,
}

struct Entry {
    identity: Identity,
    memory: backend::Memory,
    used: u64,
}

pub(super) fn new_binder(prepared: Arc<Prepared>, mappings: Permit) -> Strong<dyn IBurst> {
    let open = prepared.counts.burst();
    ipc::object!(
        BnBurst,
        Burst { prepared, busy: Arc::default(), cache: Mutex::default(), _mappings: mappings, _open: open }
    )
}

impl Cache {
    /// The memory of `pool`, which the client calls `token`: the one that is kept, if it is that still, else what `find`
    /// finds.
    fn memory(
        &mut self,
        token: i64,
        pool: &Pool,
        find: impl FnOnce(&Pool) -> Result<backend::Memory, ServiceError>,
    ) -> Result<backend::Memory, ServiceError> {
        let Some(identity) = pool.identity() else { return find(pool) };
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&token).filter(|entry| entry.identity == identity) {
            entry.used = self.clock;
            return Ok(entry.memory.clone());
        }
        let memory = find(pool)?;
        let Some(identity) = identity.kept() else { return Ok(memory) };
        if self.entries.len() >= MAX_MAPPINGS && !self.entries.contains_key(&token) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(&token, _)| token);
            oldest.and_then(|token| self.entries.remove(&token));
        }
        self.entries.insert(token, Entry { identity, memory: memory.clone(), used: self.clock });
        Ok(memory)
    }

    fn keeps(&self, (token, identity): &(i64, Identity)) -> bool {
        self.entries.get(token).is_some_and(|entry| entry.identity == *identity)
    }

    /// Forgets all that it has of `token`.
    fn release(&mut self, token: i64) {
        self.entries.remove(&token);
        self.last.take_if(|last| last.memory.iter().any(|&(other, _)| other == token));
    }
}

impl Last {
    /// Whether `request` asks for the same over the same memory. Only the last question takes calls of the kernel.
    fn is(&self, request: &Request, tokens: &[i64], terms: Terms) -> bool {
        let is_same = |((token, kept), pool): (&(i64, Identity), (&RequestMemoryPool, &i64))| {
            known(pool).is_some_and(|(other, identity)| *token == other && *kept == identity)
        };
        self.execution.terms() == terms
            && (&self.inputs, &self.outputs) == (&request.inputs, &request.outputs)
            && self.memory.len() == request.pools.len()
            && self.memory.iter().zip(request.pools.iter().zip(tokens)).all(is_same)
    }
}

/// The token of a pool of a request, and which memory that is, if it has a token and can be told.
fn known<'r>((pool, &token): (&'r RequestMemoryPool, &i64)) -> Option<(i64, Identity<BorrowedFd<'r>>)> {
    match pool {
        RequestMemoryPool::Pool(memory) if token >= 0 => Some((token, Pool::new(memory).ok()?.identity()?)),
        _ => None,
    }
}

impl Burst {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(
        &self,
        request: &Request,
        tokens: &[i64],
        terms: Result<Terms, ServiceError>,
        deadline: i64,
    ) -> Result<ExecutionResult, ServiceError> {
        let entered = Instant::now();
        let (terms, deadline) = (terms?, terms::deadline(deadline)?);
        if tokens.len() != request.pools.len() {
            let (tokens, pools) = (tokens.len(), request.pools.len());
            return Err(ServiceError::argument(format!("{tokens} memory tokens for {pools} pools")));
        }
        if let Some(token) = tokens.iter().find(|&&token| token < -1) {
            return Err(ServiceError::argument(format!("memory token {token}: expected -1 or more")));
        }
        let _busy = Busy::enter(&self.busy, "burst")?;
        let result = self
            .execution(request, tokens, terms)
            .and_then(|execution| execution.run_synchronously(deadline, entered));
        if result.is_err() {
            // It may be for the memory that it failed.
            let mut cache = self.cache();
            tokens.iter().for_each(|&token| cache.release(token));
        }
        result
    }

    /// The request, checked and mapped: the last one, if this is the same.
    fn execution(
        &self,
        request: &Request,
        tokens: &[i64],
        terms: Terms,
    ) -> Result<Arc<Execution>, ServiceError> {
        {
            let mut cache = self.cache();
            if let Some(last) = cache.last.as_ref().filter(|last| last.is(request, tokens, terms)) {
                return Ok(last.execution.clone());
            }
            // What is not run again must not keep its mappings, whose places others may need.
            cache.last = None;
        }
        let kept = |pool| known(pool).and_then(|(token, identity)| Some((token, identity.kept()?)));
        let memory: Option<Vec<_>> = request.pools.iter().zip(tokens).map(kept).collect();
        let core = &self.prepared.core;
        let find = |index: usize, pool: &Pool| match tokens[index] {
            -1 => core.memory(pool, Span::Once),
            token => self.cache().memory(token, pool, |pool| core.memory(pool, Span::Longer)),
        };
        let purpose = Purpose { terms, fenced: false, reused: memory.is_some() };
        let execution = Arc::new(Execution::new(&self.prepared, request, purpose, &find)?);
        let mut cache = self.cache();
        // Only over mappings that are kept anyway: no request shall hold on to more than a burst may have.
        if let Some(memory) = memory.filter(|memory| memory.iter().all(|place| cache.keeps(place))) {
            let (inputs, outputs) = (request.inputs.clone(), request.outputs.clone());
            cache.last = Some(Last { inputs, outputs, memory, execution: execution.clone() });
        }
        drop(cache);
        Ok(execution)
    }
}

impl Interface for Burst {}

impl IBurst for Burst {
    fn executeSynchronously(
        &self,
        request: &Request,
        tokens: &[i64],
        measure: bool,
        deadline: i64,
        loop_timeout: i64,
    ) -> BinderResult<ExecutionResult> {
        handle(&self.prepared.core, "IBurst.executeSynchronously", || {
            self.execute(request, tokens, Terms::new(measure, loop_timeout), deadline)
        })
    }

    fn executeSynchronouslyWithConfig(
        &self,
        request: &Request,
        tokens: &[i64],
        config: &ExecutionConfig,
        deadline: i64,
    ) -> BinderResult<ExecutionResult> {
        handle(&self.prepared.core, "IBurst.executeSynchronouslyWithConfig", || {
            self.execute(request, tokens, Terms::from_config(config), deadline)
        })
    }

    fn releaseMemoryResource(&self, token: i64) -> BinderResult<()> {
        handle(&self.prepared.core, "IBurst.releaseMemoryResource", || {
            if token < 0 {
                return Err(ServiceError::argument(format!("memory token {token}: expected 0 or more")));
            }
            self.cache().release(token);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use binder::ParcelFileDescriptor;
    use std::io::Write;

    fn memory(byte: u8) -> Memory {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(&[byte; 64]).unwrap();
        Memory::Ashmem(Ashmem { fd: Some(ParcelFileDescriptor::new(file)), size: 64 })
    }

    fn map(cache: &mut Cache, token: i64, memory: &Memory) -> backend::Memory {
        let map = |pool: &Pool| Ok(backend::Memory::Mapped(pool.map().unwrap()));
        cache.memory(token, &Pool::new(memory).unwrap(), map).unwrap()
    }

    #[test]
    fn mappings_are_kept_for_the_same_memory_only() {
        let (mut cache, a, b) = (Cache::default(), memory(1), memory(2));
        let first = map(&mut cache, 7, &a);
        assert!(first.is(&map(&mut cache, 7, &a)));
        let other = map(&mut cache, 7, &b);
        assert!(!first.is(&other));
        assert!(other.is(&map(&mut cache, 7, &b)));
    }

    #[test]
    fn the_least_used_mapping_gives_way() {
        let (mut cache, a) = (Cache::default(), memory(1));
        let kept = map(&mut cache, 0, &a);
        for token in 1..2 * MAX_MAPPINGS as i64 {
            map(&mut cache, token, &a);
            map(&mut cache, 0, &a);
        }
        assert_eq!(cache.entries.len(), MAX_MAPPINGS);
        assert!(kept.is(&map(&mut cache, 0, &a)));
        assert!(!cache.entries.contains_key(&1));
    }
}
