//! The memory of one run of one routine: the arena, and values whose size only the run knows.

use super::graph::check_dims;
use super::routine::{Place, Routine};
use crate::backend::BackendError;
use crate::memory::{AlignedBuf, Arena};
use crate::ops::evaluate::with_dims;
use crate::tensor::TensorInfo;
use std::ops::Range;

/// Memory of one run of one routine.
pub struct Frame {
    pub arena: Arena,
    /// By value: those that live outside of the arena.
    pub dynamic: Vec<Option<Tensor>>,
    /// Whether dimensions known ahead are not to be trusted: an input is left out, or has dimensions of its own. All
    /// values are dynamic then, and every shape is computed anew.
    pub adrift: bool,
}

/// A value with the dimensions that it has in this run.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub info: TensorInfo,
    pub data: AlignedBuf,
}

impl Frame {
    pub fn new(routine: &Routine) -> Result<Frame, BackendError> {
        Ok(Frame {
            arena: Arena::new(routine.arena).ok_or(BackendError::OutOfMemory(routine.arena))?,
            dynamic: vec![None; routine.values.len()],
            adrift: false,
        })
    }

    /// Forgets the last run, and gets ready for one whose inputs have these dimensions; `None` for one left out.
    pub fn start<'d>(&mut self, routine: &Routine, inputs: impl Iterator<Item = Option<&'d [u32]>>) {
        self.dynamic.iter_mut().for_each(|value| *value = None);
        self.adrift = routine.inputs.iter().zip(inputs).any(|(&v, dims)| match &routine.values[v].place {
            Place::Arena(info, _) => dims != Some(&info.dims[..]),
            _ => false,
        });
    }

    /// Frees what the run allocated.
    pub fn clear(&mut self) {
        self.dynamic.iter_mut().for_each(|value| *value = None);
    }

    /// The part of the arena where value `v` lives in this run.
    pub fn part<'r>(&self, routine: &'r Routine, v: usize) -> Option<(&'r TensorInfo, &'r Range<usize>)> {
        match &routine.values[v].place {
            Place::Arena(info, part) if !self.adrift => Some((info, part)),
            _ => None,
        }
    }

    /// Gives value `v` these dimensions, which must be those the model declares, and lets `fill` write its bytes.
    pub fn put(
        &mut self,
        routine: &Routine,
        v: usize,
        dims: &[u32],
        fill: impl FnOnce(&mut [u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let declared = &routine.values[v].declared;
        check_dims(declared, dims).map_err(BackendError::Failed)?;
        if let Some((info, part)) = self.part(routine, v) {
            if info.dims != dims {
                return Err(broken_plan());
            }
            return fill(self.arena.write(part).ok_or_else(broken_plan)?);
        }
        let info = with_dims(declared, dims);
        let size = info.byte_size().ok_or(BackendError::OutOfMemory(usize::MAX))?;
        let mut data = AlignedBuf::zeroed(size).ok_or(BackendError::OutOfMemory(size))?;
        fill(&mut data)?;
        self.dynamic[v] = Some(Tensor { info, data });
        Ok(())
    }

    /// Makes `data`, of these dimensions, value `v`.
    pub fn put_tensor(
        &mut self,
        routine: &Routine,
        v: usize,
        dims: Vec<u32>,
        data: AlignedBuf,
    ) -> Result<(), BackendError> {
        if self.part(routine, v).is_some() {
            return self.put(routine, v, &dims, |place| copy(place, &data));
        }
        let declared = &routine.values[v].declared;
        check_dims(declared, &dims).map_err(BackendError::Failed)?;
        self.dynamic[v] = Some(Tensor { info: TensorInfo { dims, ..declared.clone() }, data });
        Ok(())
    }

    /// A value's dimensions and bytes; `None` for an input that was left out.
    pub fn value<'f>(
        &'f self,
        routine: &'f Routine,
        v: usize,
    ) -> Result<Option<(&'f TensorInfo, &'f [u8])>, BackendError> {
        if let Some(tensor) = &self.dynamic[v] {
            return Ok(Some((&tensor.info, &tensor.data)));
        }
        match (&routine.values[v].place, self.part(routine, v)) {
            (Place::Constant(info, bytes), _) => Ok(Some((info, bytes))),
            (_, Some((info, part))) => Ok(Some((info, self.arena.read(part).ok_or_else(broken_plan)?))),
            _ => Ok(None),
        }
    }

    /// A copy of a value, to hand to a subgraph.
    pub fn tensor(&self, routine: &Routine, v: usize) -> Result<Option<Tensor>, BackendError> {
        let Some((info, bytes)) = self.value(routine, v)? else { return Ok(None) };
        let data = AlignedBuf::copy_of(bytes).ok_or(BackendError::OutOfMemory(bytes.len()))?;
        Ok(Some(Tensor { info: info.clone(), data }))
    }
}

/// Copies `from`, which must have the length of `to`.
pub fn copy(to: &mut [u8], from: &[u8]) -> Result<(), BackendError> {
    if to.len() != from.len() {
        return Err(broken_plan());
    }
    to.copy_from_slice(from);
    Ok(())
}

pub fn broken_plan() -> BackendError {
    BackendError::Failed("the memory plan is broken; this is a fault of the driver".into())
}
