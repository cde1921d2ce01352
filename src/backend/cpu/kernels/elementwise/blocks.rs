//! Several elementwise calls on floats, each by its own kernel, on a block of elements after the other: what they make
//! between stays in the nearest cache.
//!
//! The bytes are those of the same kernels run one after the other on all elements.

use super::super::kernel::{input, output};
use super::super::{Elementwise, Kernel, Source, Work};
use super::call::{select, Call, Input};
use crate::backend::cpu::pool::Team;
use crate::memory::{Target, View};
use crate::ops::{NeverInterrupted, OpError};
use crate::tensor::TensorInfo;
use std::sync::OnceLock;

/// Elements of a block.
const BLOCK: usize = 1024;
/// Blocks between the calls, at most: each thread has memory for them, which nobody counts.
const MOST_PLACES: usize = 8;
const SIZE: usize = size_of::<f32>();
/// Output 0 as what the calls make of input 0.
pub struct Blocks {
    calls: Vec<Part>,
    /// How many blocks are there at a time between the calls.
    places: usize,
}

struct Part {
    kernel: Box<dyn Kernel>,
    inputs: Vec<Option<From>>,
    /// The place that it fills; the last call fills the output.
    to: usize,
}

enum From {
    Operand,
    Place(usize),
    Constant(Vec<u8>),
}

impl Blocks {
    /// `None` where one of the calls has no kernel.
    pub fn new(operand: &TensorInfo, calls: &[Call]) -> Option<Self> {
        let infos: Vec<_> = std::iter::once(operand).chain(calls.iter().map(|call| call.output)).collect();
        let kernel =
            |call: &Call| call.declared(&infos, BLOCK, |args| select(call.operation, args, &Source::Later));
        let last_read = |made: usize| calls.iter().rposition(|call| call.reads(made));
        let (mut parts, mut places): (Vec<Part>, Vec<Option<usize>>) = Default::default();
        for (i, call) in calls.iter().enumerate() {
            // A place is free once what it holds was read for the last time: by a call before this one.
            let is_free =
                |held: &Option<usize>| held.is_none_or(|made| last_read(made).is_none_or(|read| read < i));
            let to = places.iter().position(is_free).unwrap_or(places.len());
            let from = |input: &Input| match *input {
                Input::Operand => Some(From::Operand),
                Input::Made(made) => Some(From::Place(parts.get(made)?.to)),
                Input::Constant(_, bytes) => Some(From::Constant(bytes.to_vec())),
            };
            let inputs = call.inputs.iter().map(|input| input.as_ref().map(from));
            let inputs =
                inputs.map(|from| from.map_or(Some(None), |from| from.map(Some))).collect::<Option<_>>()?;
            if to == MOST_PLACES {
                return None;
            }
            if to == places.len() {
                places.push(None);
            }
            places[to] = Some(i);
            parts.push(Part { kernel: kernel(call)?, inputs, to });
        }
        Some(Blocks { calls: parts, places: places.len() })
    }

    /// Memory for all places, for so many bytes or a block.
    fn room(&self, bytes: usize) -> Vec<Vec<u8>> {
        vec![vec![0; bytes.min(BLOCK * SIZE)]; self.places]
    }

    /// All calls on one block.
    fn block(
        &self,
        from: View<u8>,
        to: Target<u8>,
        places: &mut [Vec<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (last, len, mut to) = (self.calls.len() - 1, to.len(), Some(to));
        for (i, part) in self.calls.iter().enumerate() {
            // No call reads the place that it fills.
            let mut made = std::mem::take(&mut places[part.to]);
            let inputs: Vec<_> = part
                .inputs
                .iter()
                .map(|input| {
                    input.as_ref().map(|input| match input {
                        From::Operand => from,
                        From::Place(place) => View::of(&places[*place][..len]),
                        From::Constant(bytes) => View::of(bytes),
                    })
                })
                .collect();
            let out = to.take_if(|_| i == last).unwrap_or_else(|| Target::of(&mut made[..len]));
            part.kernel.run(&inputs, &mut [out], work)?;
            places[part.to] = made;
        }
        Ok(())
    }
}

impl Kernel for Blocks {
    fn name(&self) -> String {
        let kernel = self.calls.first().map(|part| part.kernel.name()).unwrap_or_default();
        format!("{kernel}, {} in blocks", self.calls.len())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (from, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let chunk = work.per_task(out.len() / SIZE, self.picoseconds(), 2 * SIZE);
        let failed = OnceLock::new();
        work.for_each_chunk(out, chunk.next_multiple_of(BLOCK) * SIZE, |first, mut to| {
            let mut places = self.room(to.len());
            let alone = Work::new(work.team.alone(), &NeverInterrupted);
            for at in (0..to.len()).step_by(BLOCK * SIZE) {
                let len = (to.len() - at).min(BLOCK * SIZE);
                let done = self.block(from.part(first + at, len), to.part(at, len), &mut places, alone);
                if let Err(why) = done {
                    drop(failed.set(why));
                    return;
                }
            }
        })?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn picoseconds(&self) -> usize {
        self.calls.iter().map(|part| part.kernel.picoseconds()).sum()
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Blocks {
    fn inputs(&self) -> usize {
        1
    }

    fn go_on(&self, made: &mut [u8], _: usize, _: Option<View<u8>>, alone: Team) -> Result<(), OpError> {
        let (mut places, mut copy) = (self.room(made.len()), [0; BLOCK * SIZE]);
        for block in made.chunks_mut(BLOCK * SIZE) {
            let copy = &mut copy[..block.len()];
            copy.copy_from_slice(block);
            let work = Work::new(alone, &NeverInterrupted);
            self.block(View::of(copy), Target::of(block), &mut places, work)?;
        }
        Ok(())
    }
}
