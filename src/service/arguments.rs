//! From a request's pools to the memories that a backend binds.

use super::core::Core;
use super::status::ServiceError;
use crate::backend::{Argument, Memory, Request};
use crate::memory::{Access, MemoryError, Pool};
use crate::model::RequestPool;

/// How long a memory will be used: what is mapped for a single execution that is about to run may be cheaper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Once,
    Longer,
}

/// How to find the memory of the request's pool of this index.
pub(super) type FindMemory<'a> = &'a dyn Fn(usize, &Pool) -> Result<Memory, ServiceError>;

impl Core {
    /// The memory of `pool`: the device's if it imports it, else mapped into this process.
    pub fn memory(&self, pool: &Pool, span: Span) -> Result<Memory, ServiceError> {
        if let Some(memory) = pool.client_memory() {
            if let Some(imported) = self.backend.import(&memory)? {
                return Ok(Memory::Device(imported));
            }
        }
        let mapped = if span == Span::Once { pool.map_for_one_use() } else { pool.map() };
        mapped
            .map(Memory::Mapped)
            .map_err(|source| ServiceError::Memory { what: "its memory".into(), source })
    }
}

/// The memories that `request` needs, each found once. Those of device buffers, which are known only while they are
/// claimed, are left out.
pub(super) fn resolve(
    request: &Request,
    pools: &[RequestPool],
    find: FindMemory,
) -> Result<Vec<Option<Memory>>, ServiceError> {
    let mut memories: Vec<Option<Memory>> = Vec::new();
    memories.try_reserve_exact(pools.len()).map_err(|_| {
        let source = MemoryError::OutOfMemory(pools.len().saturating_mul(size_of::<Option<Memory>>()));
        ServiceError::Memory { what: "the request's pools".into(), source }
    })?;
    memories.resize(pools.len(), None);
    for argument in request.inputs.iter().chain(&request.outputs).flatten() {
        let index = argument.pool;
        if let (RequestPool::Memory(pool), None) = (&pools[index], &memories[index]) {
            let at = |why: ServiceError| why.at(format_args!("pool {index}"));
            memories[index] = Some(find(index, pool).map_err(at)?);
        }
    }
    check_access(request, &memories)?;
    Ok(memories)
}

/// Checks that inputs lie where they can be read, and outputs where they can be written. A hardware buffer that was made for
/// something else than the CPU is no fault of its client: another device may take it.
pub(super) fn check_access(request: &Request, memories: &[Option<Memory>]) -> Result<(), ServiceError> {
    let check = |what: &str, arguments: &[Option<Argument>], unfit: Access, can_only: &str| {
        for (i, argument) in arguments.iter().enumerate() {
            let Some(argument) = argument else { continue };
            if let Some(Some(memory)) = memories.get(argument.pool) {
                if memory.access() == unfit {
                    let pool = argument.pool;
                    let why = format!("{what} {i} lies in pool {pool}, which can only be {can_only}");
                    return Err(match memory {
                        Memory::Mapped(mapping) if mapping.is_hardware_buffer() => ServiceError::Failed(why),
                        _ => ServiceError::argument(why),
                    });
                }
            }
        }
        Ok(())
    };
    check("input", &request.inputs, Access::Write, "written")?;
    check("output", &request.outputs, Access::Read, "read")
}
