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
use crate::memory::{Counted, Identity, Pool};
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
    /// By pool: the client's token of a memory that the burst keeps.
    tokens: Vec<i64>,
    execution: Arc<Execution>,
    /// For the lists above.
    _counted: Counted,
}

struct Entry {
    identity: Identity,
    memory: backend::Memory,
    used: u64,
    /// For the descriptors by which the memory is known again.
    _descriptors: Permit,
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
    /// finds. That is kept if there is a `place` for so many descriptors.
    fn memory(
        &mut self,
        token: i64,
        pool: &Pool,
        find: impl FnOnce(&Pool) -> Result<backend::Memory, ServiceError>,
        place: impl FnOnce(usize) -> Option<Permit>,
    ) -> Result<backend::Memory, ServiceError> {
        let Some(identity) = pool.identity() else { return find(pool) };
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&token).filter(|entry| entry.identity == identity) {
            entry.used = self.clock;
            return Ok(entry.memory.clone());
        }
        let memory = find(pool)?;
        let Some(place) = place(identity.descriptors()) else { return Ok(memory) };
        let Some(identity) = identity.kept() else { return Ok(memory) };
        if self.entries.len() >= MAX_MAPPINGS && !self.entries.contains_key(&token) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(&token, _)| token);
            oldest.and_then(|token| self.entries.remove(&token));
        }
        let entry = Entry { identity, memory: memory.clone(), used: self.clock, _descriptors: place };
        self.entries.insert(token, entry);
        Ok(memory)
    }

    fn keeps(&self, (token, identity): &(i64, Identity<BorrowedFd>)) -> bool {
        self.entries.get(token).is_some_and(|entry| entry.identity == *identity)
    }

    /// What ran last, if `request` asks for the same over the same memory. Only the last question takes calls of the kernel.
    fn last(&self, request: &Request, tokens: &[i64], terms: Terms) -> Option<&Arc<Execution>> {
        let last = self.last.as_ref()?;
        let is_kept = |pool| known(pool).is_some_and(|memory| self.keeps(&memory));
        let is_same = last.execution.terms() == terms
            && (&last.inputs, &last.outputs) == (&request.inputs, &request.outputs)
            && last.tokens == tokens
            && request.pools.iter().zip(tokens).all(is_kept);
        is_same.then_some(&last.execution)
    }

    /// Forgets all that it has of `token`.
    fn release(&mut self, token: i64) {
        self.entries.remove(&token);
        self.last.take_if(|last| last.tokens.contains(&token));
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
            if let Some(last) = cache.last(request, tokens, terms) {
                return Ok(last.clone());
            }
            // What is not run again must not keep its mappings, whose places others may need.
            cache.last = None;
        }
        let memory: Option<Vec<_>> = request.pools.iter().zip(tokens).map(known).collect();
        let core = &self.prepared.core;
        let place = |count| core.quotas.descriptors(self.prepared.client(), count).ok();
        let find = |index: usize, pool: &Pool| match tokens[index] {
            -1 => core.memory(pool, Span::Once),
            token => self.cache().memory(token, pool, |pool| core.memory(pool, Span::Longer), place),
        };
        let purpose = Purpose { terms, fenced: false, reused: memory.is_some() };
        let execution = Arc::new(Execution::new(&self.prepared, request, purpose, &find)?);
        let mut cache = self.cache();
        // Only over mappings that are kept anyway: no request shall hold on to more than a burst may have. One that its client
        // has no room for is checked each time.
        let is_kept = memory.is_some_and(|memory| memory.iter().all(|memory| cache.keeps(memory)));
        if let Some(counted) = is_kept.then(|| execution.count_again()).flatten() {
            let (inputs, outputs) = (request.inputs.clone(), request.outputs.clone());
            let (tokens, execution) = (tokens.to_vec(), execution.clone());
            cache.last = Some(Last { inputs, outputs, tokens, execution, _counted: counted });
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
    use crate::scheduler::Quotas;
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
        let place = |count| Quotas::new().descriptors(1, count).ok();
        cache.memory(token, &Pool::new(memory).unwrap(), map, place).unwrap()
    }

    #[test]
    fn memory_that_is_known_by_its_descriptors_is_kept_only_if_there_is_a_place_for_them() {
        use crate::memory::Mapping;
        let files = [(); 2].map(|()| nix::sys::memfd::memfd_create(c"x", nix::sys::memfd::MFdFlags::empty()));
        let handle = NativeHandle {
            fds: files.into_iter().map(|file| ParcelFileDescriptor::new(file.unwrap())).collect(),
            ints: vec![1],
        };
        let description = HardwareBufferDescription {
            width: 64,
            height: 1,
            layers: 1,
            format: PixelFormat::BLOB,
            stride: 64,
            ..Default::default()
        };
        let memory = Memory::HardwareBuffer(HardwareBuffer { description, handle });
        let (mut cache, quotas) = (Cache::default(), Quotas::new());
        let mut find = |place: &dyn Fn(usize) -> Option<Permit>| {
            let map = |_: &Pool| Ok(backend::Memory::Mapped(Arc::new(Mapping::anonymous(64).unwrap())));
            cache.memory(7, &Pool::new(&memory).unwrap(), map, place).unwrap()
        };
        let refuse = |_| None;
        assert!(!find(&refuse).is(&find(&refuse)), "it is not kept");
        let grant = |count| {
            assert_eq!(count, 2);
            quotas.descriptors(1, count).ok()
        };
        let kept = find(&grant);
        assert!(kept.is(&find(&refuse)), "it is known again");
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
