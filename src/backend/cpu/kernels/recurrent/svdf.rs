//! SVDF of floats: the features of all filters are one product; then each filter's memory takes its newest feature, is
//! weighted by age, and moves on.

use super::super::gemm::{Float, Packed, Shape};
use super::super::isa::Isa;
use super::super::kernel::{elements, input};
use super::super::vector::{Level, Loop};
use super::super::{Kernel, Source, Work};
use super::cell::activate;
use super::layer::{multiply, pack, MOST_UNITS};
use crate::memory::{Target, View, Weights};
use crate::ops::recurrent::SvdfCall;
use crate::ops::scratch::filled;
use crate::ops::{Args, OpError};
use crate::tensor::OperandType;

pub fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let call = SvdfCall::from_args(args).ok()?;
    if args.get(0).ok()?.ty() != OperandType::TENSOR_FLOAT32 || call.batch == 0 {
        return None;
    }
    // What a unit remembers is weighted without a look whether to stop: of more, it is done plainly.
    if (call.filters / call.units).saturating_mul(call.memory) > MOST_UNITS {
        return None;
    }
    let shape = Shape { columns: call.filters, segments: 1, depth: call.input };
    let features = pack(isa, args, &[SvdfCall::FEATURE], (call.batch, shape), source)?;
    let has_bias = args.opt(SvdfCall::BIAS).is_some();
    Some(Box::new(Svdf { level: Level::detect(), call, features, has_bias }))
}

struct Svdf {
    level: Level,
    call: SvdfCall,
    features: Packed<Float>,
    has_bias: bool,
}

impl Kernel for Svdf {
    fn name(&self) -> String {
        format!("svdf, gemm {}", self.features.micro.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let SvdfCall { batch, input: size, filters, memory, units, .. } = self.call;
        let (x, state) = (input::<f32>(inputs, 0)?, input::<f32>(inputs, SvdfCall::STATE)?);
        let time = input::<f32>(inputs, SvdfCall::TIME)?.part(0, filters * memory);
        let bias = match self.has_bias {
            true => Some(input::<f32>(inputs, SvdfCall::BIAS)?.part(0, units)),
            false => None,
        };
        let mut features = filled(work.interrupt, 0f32, batch * filters)?;
        multiply(&self.features, batch, |b| x.pointer(b * size, size), &mut features, work)?;
        let [next, out] = outputs else { return Err(OpError::Unresolved) };
        let (next, out) = (elements::<f32>(next)?, elements::<f32>(out)?);
        let rank = filters / units;
        let picoseconds = rank.saturating_mul(memory).saturating_mul(400) + 3000;
        work.for_each_range(batch * units, picoseconds, |cells| {
            let (start, count) = (cells.start * rank * memory, cells.len() * rank * memory);
            // SAFETY: each cell, with the memory of its filters, is of one range.
            let (next, out) =
                unsafe { (next.disjoint_part(start, count), out.disjoint_part(cells.start, cells.len())) };
            let state = state.part(start, count);
            let features = &features[cells.start * rank..cells.end * rank];
            self.level.run(Cells { svdf: self, first: cells.start, features, state, time, bias, next, out });
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.features.weights()
    }

    fn packed_inputs(&self) -> &[usize] {
        &[SvdfCall::FEATURE]
    }
}

/// Some units of some elements of the batch, counted through all of them.
struct Cells<'a> {
    svdf: &'a Svdf,
    first: usize,
    /// The newest, one for each filter.
    features: &'a [f32],
    state: View<'a, f32>,
    /// Weights by age, of all filters.
    time: View<'a, f32>,
    bias: Option<View<'a, f32>>,
    next: Target<'a, f32>,
    out: Target<'a, f32>,
}

/// Sums that are formed side by side: how many must not depend on the machine.
const LANES: usize = 16;

impl Loop for Cells<'_> {
    #[inline(always)]
    fn run(mut self) {
        let SvdfCall { memory, units, filters, activation, .. } = self.svdf.call;
        let rank = filters / units;
        for cell in 0..self.out.len() {
            let unit = (self.first + cell) % units;
            let mut sum = [self.bias.map_or(0.0, |bias| bias.get(unit))];
            for filter in 0..rank {
                let (at, newest) = ((cell * rank + filter) * memory, self.features[cell * rank + filter]);
                // All but the oldest and the newest go from one place to the one before.
                let (old, aged) = (self.state.pointer(at, memory), memory - 1);
                let weights = self.time.pointer((unit * rank + filter) * memory, memory);
                let next = self.next.pointer(at, memory);
                // SAFETY: `memory` elements of each were asked for.
                unsafe {
                    sum[0] += weighted(old, weights, aged) + newest * weights.add(aged).read_unaligned();
                    if aged > 0 {
                        libc::memcpy(next.cast(), old.add(1).cast(), (aged - 1) * size_of::<f32>());
                        next.add(aged - 1).write_unaligned(newest);
                    }
                    next.add(aged).write_unaligned(0.0);
                }
            }
            activate(self.svdf.level, activation, &mut sum);
            self.out.set(cell, sum[0]);
        }
    }
}

/// The sum of the products of `count` elements.
///
/// # Safety
/// Both must be valid for as many reads.
#[inline(always)]
unsafe fn weighted(values: *const f32, weights: *const f32, count: usize) -> f32 {
    let (blocks, mut sums) = (count / LANES, [0f32; LANES]);
    for block in 0..blocks {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let i = block * LANES + lane;
            // SAFETY: by contract.
            *sum += unsafe { values.add(i).read_unaligned() * weights.add(i).read_unaligned() };
        }
    }
    // SAFETY: by contract.
    let rest = |i: usize| unsafe { values.add(i).read_unaligned() * weights.add(i).read_unaligned() };
    sums.iter().sum::<f32>() + (blocks * LANES..count).map(rest).sum::<f32>()
}
