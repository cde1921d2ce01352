//! The device buffers of one execution: found and checked with the request, claimed while it runs.

use super::device_buffer::{Reading, Writing};
use super::{failed, invalid, BufferError, BufferTracker, DeviceBuffer, Owner};
use crate::memory::Memory;
use crate::model::{Argument, Request, RequestPool};
use crate::ops::pace::Pace;
use crate::ops::Interrupt;
use crate::tensor::{combine_dims, Dims};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Elementary steps that it takes to find and check an argument's buffer, about.
const USE: usize = 256;

/// The buffers that a request names, each allowed to its owner and in its role. In each list by argument.
#[derive(Debug, Default)]
pub struct Uses {
    inputs: Vec<Use>,
    outputs: Vec<Use>,
}

#[derive(Debug)]
struct Use {
    /// Index among the request's inputs or outputs.
    argument: usize,
    /// What request and model say of the dimensions.
    dims: Dims,
    buffer: Arc<DeviceBuffer>,
}

impl Uses {
    /// Finds the buffers of `request`, whose pools are `pools`, and checks that `owner` may use them so with `model`. How many
    /// arguments and pools there are is the client's choice: it comes by the yield points of `interrupt`, and looks at no pool
    /// that no argument names.
    pub fn new(
        tracker: &BufferTracker,
        owner: Owner,
        model: u64,
        request: &Request,
        pools: &[RequestPool],
        interrupt: &dyn Interrupt,
    ) -> Result<Uses, BufferError> {
        let mut pace = Pace::of(interrupt);
        let mut found: HashMap<usize, Arc<DeviceBuffer>> = HashMap::new();
        let mut uses = |arguments: &[Option<Argument>]| -> Result<Vec<Use>, BufferError> {
            let mut uses = Vec::new();
            for (argument, given) in arguments.iter().enumerate() {
                let Some(given) = given else { continue };
                let Some(RequestPool::Buffer { token }) = pools.get(given.pool) else { continue };
                pace.spend(USE)?;
                let buffer = match found.get(&given.pool) {
                    Some(buffer) => buffer.clone(),
                    None => {
                        let buffer = tracker.find(owner, *token)?;
                        found.insert(given.pool, buffer.clone());
                        buffer
                    }
                };
                uses.push(Use { argument, dims: given.dims.clone(), buffer });
            }
            Ok(uses)
        };
        let uses = Uses { inputs: uses(&request.inputs)?, outputs: uses(&request.outputs)? };
        let mut used = HashSet::new();
        for input in &uses.inputs {
            input.buffer.check_input(model, input.argument)?;
            used.insert(Arc::as_ptr(&input.buffer));
        }
        for output in &uses.outputs {
            output.buffer.check_output(model, output.argument)?;
            if !used.insert(Arc::as_ptr(&output.buffer)) {
                return invalid(format!(
                    "output {} is a device buffer that the request uses twice; only inputs may share one",
                    output.argument
                ));
            }
            output.combined_dims()?;
        }
        Ok(uses)
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }

    /// About the memory that it takes: how many uses there are is the client's choice.
    pub fn footprint(&self) -> usize {
        size_of_val(&self.inputs[..]) + size_of_val(&self.outputs[..])
    }

    /// Claims the buffers for one run, by the yield points of `interrupt`. Outputs have lost what was in them if the run then
    /// fails.
    pub fn claim(&self, interrupt: &dyn Interrupt) -> Result<Claims, BufferError> {
        let (mut claims, mut pace) = (Claims::default(), Pace::of(interrupt));
        for input in &self.inputs {
            pace.spend(USE)?;
            let reading = input.buffer.read()?;
            let fits = |(&given, &actual): (&u32, &u32)| given == 0 || given == actual;
            let rank_fits = input.dims.is_empty() || input.dims.len() == reading.dims.len();
            if !rank_fits || !input.dims.iter().zip(&reading.dims).all(fits) {
                return invalid(format!(
                    "input {}: dimensions {:?} for a device buffer that holds {:?}",
                    input.argument, input.dims, reading.dims
                ));
            }
            claims.inputs.push((input.argument, reading));
        }
        for output in &self.outputs {
            pace.spend(USE)?;
            claims.outputs.push((output.argument, output.combined_dims()?, output.buffer.write()?));
        }
        Ok(claims)
    }
}

impl Use {
    /// What request, model and buffer together say of an output's dimensions.
    fn combined_dims(&self) -> Result<Dims, BufferError> {
        let dims = combine_dims(&self.dims, &self.buffer.info().dims);
        dims.ok_or_else(|| {
            BufferError::Invalid(format!(
                "output {}: dimensions {:?} for a device buffer of {:?}",
                self.argument,
                self.dims,
                self.buffer.info().dims
            ))
        })
    }
}

/// The buffers of a run that is under way. In each list by argument, as [`Uses`] has them.
#[derive(Default)]
pub struct Claims {
    inputs: Vec<(usize, Reading)>,
    outputs: Vec<(usize, Dims, Writing)>,
}

impl Claims {
    /// Memory, bytes and dimensions of input `index`, if it is a device buffer.
    pub fn input(&self, index: usize) -> Option<(Memory, usize, Dims)> {
        let place = self.inputs.binary_search_by_key(&index, |(argument, _)| *argument).ok()?;
        let (_, reading) = &self.inputs[place];
        Some((reading.memory.clone(), reading.size, reading.dims.clone()))
    }

    /// Memory, bytes and, as far as they are known, dimensions of output `index`, if it is a device buffer.
    pub fn output(&mut self, index: usize) -> Option<(Memory, usize, Dims)> {
        let place = self.outputs.binary_search_by_key(&index, |(argument, ..)| *argument).ok()?;
        let (_, dims, writing) = &mut self.outputs[place];
        let memory = writing.memory();
        let size = memory.len();
        Some((memory, size, dims.clone()))
    }

    /// Makes room for outputs of the dimensions that a run found: `shapes` has one entry per output of the model. Tells
    /// whether there is more room than before, so that another run can succeed.
    pub fn make_room(&mut self, shapes: &[Dims]) -> Result<bool, BufferError> {
        let mut grown = false;
        for (argument, _, writing) in &mut self.outputs {
            let Some(dims) = shapes.get(*argument) else {
                return failed(format!("output {argument} has no shape"));
            };
            grown |= writing.reserve(dims)?;
        }
        Ok(grown)
    }

    /// Ends a run that succeeded: the outputs hold values of these dimensions, one entry per output of the model.
    pub fn commit(self, shapes: &[Dims]) -> Result<(), BufferError> {
        // All or none: a failed run leaves no output with a value.
        for (argument, _, writing) in &self.outputs {
            match shapes.get(*argument) {
                Some(dims) => writing.check(dims)?,
                None => return failed(format!("output {argument} has no shape")),
            }
        }
        self.outputs
            .into_iter()
            .try_for_each(|(argument, _, writing)| writing.commit(shapes[argument].clone()))
    }
}

#[cfg(test)]
#[path = "uses_tests.rs"]
mod tests;
