//! SOFTMAX and LOG_SOFTMAX of lanes whose elements lie side by side. Floats are summed in a fixed order of their own, the same on every machine and
//! for any number of threads.

use super::elementwise::half::{narrow, widen};
use super::elementwise::math::exp_to_one;
use super::elementwise::Element;
use super::kernel::{elements, input, output};
use super::softmax_bytes::Bytes;
use super::vector::{fused, Level, Loop};
use super::{Kernel, Tiled, Work};
use crate::memory::{Target, View};
use crate::ops::norm::Lanes;
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::fixed_softmax::Exponentials;
use crate::tensor::OperandType::*;
use std::marker::PhantomData;

/// Elements of a lane that take well under a millisecond.
const MAX_LANE: usize = 1 << 17;
/// Elements that are summed side by side.
const SUMS: usize = 16;
/// Elements of a lane that is short, and of a block of such.
const SHORT: usize = SUMS;
const BLOCK: usize = 1024;

/// A kernel for this call, if it is one of a softmax.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    let axis = match ty {
        OperationType::SOFTMAX => args.i32_or(2, -1).ok()?,
        OperationType::LOG_SOFTMAX => args.i32(2).ok()?,
        _ => return None,
    };
    let (input, beta) = (args.get(0).ok()?, args.f32(1).ok()?);
    let lanes = Lanes::new(input.dims(), axis).ok()?;
    if lanes.len == 0 || lanes.len > MAX_LANE {
        return None;
    }
    let (level, len, logarithm) = (Level::detect(), lanes.len, ty == OperationType::LOG_SOFTMAX);
    let rows = lanes.stride == 1;
    match input.ty() {
        TENSOR_FLOAT32 => {
            let elements = PhantomData::<fn(f32)>;
            let same = |x: f32| x;
            Some(Box::new(Floats { level, len, beta, logarithm, rows, widen: same, narrow: same, elements }))
        }
        TENSOR_FLOAT16 => {
            let elements = PhantomData::<fn(u16)>;
            Some(Box::new(Floats { level, len, beta, logarithm, rows, widen, narrow, elements }))
        }
        ty if ty.is_quant8_asymm() => Some(Box::new(Bytes {
            level,
            len,
            exponentials: Exponentials::new(f64::from(beta) * f64::from(input.scale())),
            flip: if ty == TENSOR_QUANT8_ASYMM { 0 } else { 0x80 },
        })),
        _ => None,
    }
}

struct Floats<T, Widen, Narrow> {
    level: Level,
    /// Elements of a lane.
    len: usize,
    beta: f32,
    /// Whether results are logarithms.
    logarithm: bool,
    /// Whether lanes are the rows of the operand as it is given to the operation.
    rows: bool,
    widen: Widen,
    narrow: Narrow,
    elements: PhantomData<fn(T)>,
}

impl<T, Widen, Narrow> Kernel for Floats<T, Widen, Narrow>
where
    T: Element,
    Widen: Fn(T) -> f32 + Send + Sync,
    Narrow: Fn(f32) -> T + Send + Sync,
{
    fn name(&self) -> String {
        format!("softmax {} float", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, output::<T>(outputs, 0)?);
        let lanes = work.units_per_task(
            out.len() / self.len,
            self.len * self.picoseconds(),
            2 * self.len * size_of::<T>(),
        );
        work.for_each_chunk(out, lanes * self.len, |first, out| {
            self.level.run(FloatLanes { softmax: self, input: input.part(first, out.len()), out });
        })
    }

    fn picoseconds(&self) -> usize {
        1200
    }

    fn tiled(&self) -> Option<&dyn Tiled> {
        self.rows.then_some(self)
    }
}

impl<T, Widen, Narrow> Tiled for Floats<T, Widen, Narrow>
where
    T: Element,
    Widen: Fn(T) -> f32 + Send + Sync,
    Narrow: Fn(f32) -> T + Send + Sync,
{
    fn tile(&self, inputs: &[Option<View<u8>>], out: &mut Target<u8>) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, elements::<T>(out)?);
        self.level.run(FloatLanes { softmax: self, input, out });
        Ok(())
    }
}

struct FloatLanes<'a, T, Widen, Narrow> {
    softmax: &'a Floats<T, Widen, Narrow>,
    input: View<'a, T>,
    out: Target<'a, T>,
}

impl<T: Element, Widen: Fn(T) -> f32, Narrow: Fn(f32) -> T> Loop for FloatLanes<'_, T, Widen, Narrow> {
    #[inline(always)]
    fn run(self) {
        let is_short = self.softmax.len <= SHORT && !self.softmax.logarithm;
        match is_short {
            true => fused!(self.softmax.level, self.run_short::<FUSED>()),
            false => fused!(self.softmax.level, self.run_with::<FUSED>()),
        }
    }
}

impl<T: Element, Widen: Fn(T) -> f32, Narrow: Fn(f32) -> T> FloatLanes<'_, T, Widen, Narrow> {
    /// The same for lanes that are shorter than a vector or two, as those of pixels: many of them are a block, of all of which
    /// exponentials are made at once. A lane's folds come out the same, as what others start with changes nothing.
    #[inline(always)]
    fn run_short<const FUSED: bool>(mut self) {
        let Floats { len, beta, ref widen, ref narrow, .. } = *self.softmax;
        let (mut block, whole) = ([0f32; BLOCK], BLOCK / len * len);
        for start in (0..self.out.len()).step_by(whole) {
            let count = whole.min(self.out.len() - start);
            let (from, to) = (self.input.pointer(start, count), self.out.pointer(start, count));
            let block = &mut block[..count];
            for (i, x) in block.iter_mut().enumerate() {
                // SAFETY: as many were asked for.
                *x = widen(unsafe { from.add(i).read_unaligned() });
            }
            for lane in block.chunks_exact_mut(len) {
                let max = lane.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
                lane.iter_mut().for_each(|x| *x = (*x - max) * beta);
            }
            block.iter_mut().for_each(|x| *x = exp_to_one::<FUSED>(*x));
            for lane in block.chunks_exact_mut(len) {
                let sum = lane.iter().fold(0.0, |sum, &x| sum + x);
                lane.iter_mut().for_each(|x| *x /= sum);
            }
            for (i, &x) in block.iter().enumerate() {
                // SAFETY: as above.
                unsafe { to.add(i).write_unaligned(narrow(x)) };
            }
        }
    }

    #[inline(always)]
    fn run_with<const FUSED: bool>(mut self) {
        let Floats { len, beta, logarithm, ref widen, ref narrow, .. } = *self.softmax;
        // Blocks are whole, and behind the lane is what changes nothing: the compiler knows how long loops are.
        let (mut near, mut far) = ([[0f32; SUMS]; BLOCK / SUMS], Vec::new());
        let blocks = match near.get_mut(..len.div_ceil(SUMS)) {
            Some(blocks) => blocks,
            // Threads that allocate wait for each other.
            None => {
                far.resize(len.div_ceil(SUMS), [0f32; SUMS]);
                &mut far[..]
            }
        };
        for start in (0..self.out.len()).step_by(len) {
            let (from, to) = (self.input.pointer(start, len), self.out.pointer(start, len));
            let mut max = i32::MIN;
            for (i, x) in blocks.as_flattened_mut()[..len].iter_mut().enumerate() {
                // SAFETY: a lane was asked for.
                *x = widen(unsafe { from.add(i).read_unaligned() });
                max = max.max(ordered(x.to_bits() as i32));
            }
            let max = f32::from_bits(ordered(max) as u32);
            // SAFETY: as above.
            let put = |i: usize, x: f32| unsafe { to.add(i).write_unaligned(narrow(x)) };
            if logarithm {
                blocks.as_flattened_mut().iter_mut().for_each(|x| *x = (*x - max) * beta);
                blocks.as_flattened_mut()[len..].fill(f32::NEG_INFINITY);
                let log_sum = f64::from(sum(blocks, exp_to_one::<FUSED>)).ln() as f32;
                blocks.as_flattened()[..len].iter().enumerate().for_each(|(i, x)| put(i, x - log_sum));
            } else {
                let power = |x: &mut f32| *x = exp_to_one::<FUSED>((*x - max) * beta);
                blocks.iter_mut().for_each(|block| block.iter_mut().for_each(power));
                blocks.as_flattened_mut()[len..].fill(0.0);
                let share = 1.0 / sum(blocks, |x| x);
                blocks.as_flattened()[..len].iter().enumerate().for_each(|(i, x)| put(i, x * share));
            }
        }
    }
}

/// A float's bits as a number that is greater the greater the float is, and of such a number the bits. Compilers make vectors
/// of the greatest of whole numbers, for which no order matters.
#[inline(always)]
fn ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

/// The sum of `number` of each element, in an order that depends on nothing but how many there are.
#[inline(always)]
fn sum(blocks: &[[f32; SUMS]], number: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; SUMS];
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, &x)| *sum += number(x));
    }
    let mut left = SUMS;
    while left > 1 {
        left /= 2;
        for i in 0..left {
            sums[i] += sums[i + left];
        }
    }
    sums[0]
}
