//! From a request's pools to the tensors that a backend reads and writes.

use super::status::ServiceError;
use crate::aidl;
use crate::backend::{InputTensor, OutputTensor};
use crate::memory::{Access, ClientSlice, Mapping, MemoryError, Pool};
use crate::model::{Argument, Request};
use std::sync::Arc;

/// How to map the request's pool of this index.
pub(super) type MapPool<'a> = &'a dyn Fn(usize, &Pool) -> Result<Arc<Mapping>, MemoryError>;

/// Maps a pool for one execution that is about to run.
pub(super) fn map_briefly(_: usize, pool: &Pool) -> Result<Arc<Mapping>, MemoryError> {
    pool.map_briefly()
}

/// Maps a pool for an execution that waits, or runs more than once.
pub(super) fn map(_: usize, pool: &Pool) -> Result<Arc<Mapping>, MemoryError> {
    pool.map()
}

/// One tensor per argument; `None` for one without value.
pub(super) type Tensors = (Vec<Option<InputTensor>>, Vec<Option<OutputTensor>>);

/// Maps the pools that `request` needs, each once, and places its arguments in them. Those in device buffers, whose
/// memory is known only while they are claimed, are left out.
pub(super) fn resolve(
    request: &Request,
    pools: &[aidl::RequestMemoryPool],
    map: MapPool,
) -> Result<Tensors, ServiceError> {
    let mut mappings: Vec<Option<Arc<Mapping>>> = vec![None; pools.len()];
    let mut mapping = |index: usize| match &mut mappings[index] {
        Some(mapping) => Ok(mapping.clone()),
        unmapped => Ok(unmapped.insert(map_pool(index, &pools[index], map)?).clone()),
    };
    let in_memory = |index: usize| matches!(pools[index], aidl::RequestMemoryPool::Pool(_));
    place(request, &in_memory, &mut mapping)
}

/// Places the arguments of `request` in memories that are mapped already, one per pool.
pub(super) fn resolve_mapped(request: &Request, memories: &[Arc<Mapping>]) -> Result<Tensors, ServiceError> {
    let mut mapping = |index: usize| {
        let memory = memories.get(index).cloned();
        memory.ok_or_else(|| ServiceError::argument(format!("pool {index} does not exist")))
    };
    place(request, &|_| true, &mut mapping)
}

/// Places those arguments of `request` whose pools are `in_memory`, with `mapping` giving a pool's memory.
fn place(
    request: &Request,
    in_memory: &dyn Fn(usize) -> bool,
    mapping: &mut dyn FnMut(usize) -> Result<Arc<Mapping>, ServiceError>,
) -> Result<Tensors, ServiceError> {
    let mut slice = |what: &str, i: usize, argument: &Argument, output: bool| {
        let mapping = mapping(argument.pool)?;
        let unfit = if output { Access::Read } else { Access::Write };
        if mapping.access() == unfit {
            return Err(ServiceError::argument(format!(
                "{what} {i} lies in pool {}, which can only be {}",
                argument.pool,
                if output { "read" } else { "written" }
            )));
        }
        ClientSlice::new(mapping, argument.offset, argument.length)
            .map_err(|source| ServiceError::Memory { what: format!("{what} {i}"), source })
    };
    let mut inputs = Vec::with_capacity(request.inputs.len());
    for (i, argument) in request.inputs.iter().enumerate() {
        inputs.push(match argument.as_ref().filter(|a| in_memory(a.pool)) {
            Some(a) => Some(InputTensor { data: slice("input", i, a, false)?, dims: a.dims.clone() }),
            None => None,
        });
    }
    let mut outputs = Vec::with_capacity(request.outputs.len());
    for (i, argument) in request.outputs.iter().enumerate() {
        outputs.push(match argument.as_ref().filter(|a| in_memory(a.pool)) {
            Some(a) => Some(OutputTensor { data: slice("output", i, a, true)?, dims: a.dims.clone() }),
            None => None,
        });
    }
    Ok((inputs, outputs))
}

fn map_pool(
    index: usize,
    pool: &aidl::RequestMemoryPool,
    map: MapPool,
) -> Result<Arc<Mapping>, ServiceError> {
    let memory = match pool {
        aidl::RequestMemoryPool::Pool(memory) => memory,
        aidl::RequestMemoryPool::Token(_) => {
            return Err(ServiceError::Failed(format!(
                "pool {index} is a device buffer, which is not mapped"
            )));
        }
    };
    Pool::new(memory)
        .and_then(|pool| map(index, &pool))
        .map_err(|source| ServiceError::Memory { what: format!("pool {index}"), source })
}
