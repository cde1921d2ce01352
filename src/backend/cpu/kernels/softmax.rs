//! SOFTMAX and LOG_SOFTMAX of lanes whose elements lie side by side. Floats are summed in a fixed order of their own, the same on every machine and
//! for any number of threads.

use super::elementwise::half::{narrow, widen};
use super::elementwise::math::exp_to_one;
use super::elementwise::Element;
use super::gemm::Room;
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
use std::mem::MaybeUninit;

/// Elements of a lane that take well under a millisecond.
const MAX_LANE: usize = 1 << 17;
/// Elements that are summed side by side.
const SUMS: usize = 16;
/// Elements of a lane that is short, of a block of such, and of a lane at most that needs no memory but the stack's.
const SHORT: usize = SUMS;
const BLOCK: usize = 1024;
/// From the `n`th on, for each element of a block: the bits of those that are kept if the last `n` are.
static IS_OF_REST: [u32; 2 * SUMS] = {
    let mut bits = [0; 2 * SUMS];
    let mut i = SUMS;
    while i < bits.len() {
        bits[i] = !0;
        i += 1;
    }
    bits
};

/// A kernel for this call, if it is one of a softmax.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    let axis = match ty {
        OperationType::SOFTMAX => args.i32_or(2, -1).ok()?,
        OperationType::LOG_SOFTMAX => args.i32(2).ok()?,
        _ => return None,
    };
    let (input, beta) = (args.get(0).ok()?, args.f32(1).ok()?);
    let lanes = Lanes::new(input.dims(), axis).ok()?;
    // By other factors exponentials would grow beyond all bounds. A softmax's are refused, a log softmax's evaluated plainly.
    let is_usual = beta > 0.0 && (1..=MAX_LANE).contains(&lanes.len);
    if !is_usual {
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
        work.try_for_each_chunk(out, lanes * self.len, |first, out| {
            self.lanes(input.part(first, out.len()), out)
        })
    }

    fn picoseconds(&self) -> usize {
        600
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
        self.lanes(input::<T>(inputs, 0)?, elements::<T>(out)?)
    }
}

impl<T: Element, Widen: Fn(T) -> f32, Narrow: Fn(f32) -> T> Floats<T, Widen, Narrow> {
    /// Fills `out`, which are whole lanes.
    fn lanes(&self, input: View<T>, out: Target<T>) -> Result<(), OpError> {
        let (mut room, bytes) =
            (Room::default(), if self.len > BLOCK { self.len * size_of::<f32>() } else { 0 });
        room.make(bytes)?;
        let far = bytemuck::cast_slice_mut(&mut room[..bytes]);
        self.level.run(FloatLanes { softmax: self, input, out, far });
        Ok(())
    }
}

struct FloatLanes<'a, T, Widen, Narrow> {
    softmax: &'a Floats<T, Widen, Narrow>,
    input: View<'a, T>,
    out: Target<'a, T>,
    /// Room for a lane, if it is longer than a block.
    far: &'a mut [f32],
}

impl<T: Element, Widen: Fn(T) -> f32, Narrow: Fn(f32) -> T> Loop for FloatLanes<'_, T, Widen, Narrow> {
    #[inline(always)]
    fn run(self) {
        match self.softmax.len <= SHORT {
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
        let Floats { len, beta, logarithm, ref widen, ref narrow, .. } = *self.softmax;
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
            if logarithm {
                for lane in block.chunks_exact_mut(len) {
                    let sum = lane.iter().fold(0.0, |sum, &x| sum + exp_to_one::<FUSED>(x));
                    let log_sum = f64::from(sum).ln() as f32;
                    lane.iter_mut().for_each(|x| *x -= log_sum);
                }
            } else {
                block.iter_mut().for_each(|x| *x = exp_to_one::<FUSED>(*x));
                for lane in block.chunks_exact_mut(len) {
                    let sum = lane.iter().fold(0.0, |sum, &x| sum + x);
                    lane.iter_mut().for_each(|x| *x /= sum);
                }
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
        let mut near = [const { MaybeUninit::<f32>::uninit() }; BLOCK];
        let powers = if len <= BLOCK { near.as_mut_ptr().cast() } else { self.far.as_mut_ptr() };
        let (whole, rest) = (len / SUMS * SUMS, len % SUMS);
        // The last elements go together, also where some are in a block already: what is handled one by one takes longer than blocks.
        let is_of_rest = &IS_OF_REST[rest..rest + SUMS];
        for start in (0..self.out.len()).step_by(len) {
            let (from, to) = (self.input.pointer(start, len), self.out.pointer(start, len));
            // SAFETY: a lane was asked for, and `i` is below its length.
            let at = |i: usize| widen(unsafe { from.add(i).read_unaligned() });
            // SAFETY: as above, of `i` and as many elements behind it.
            let block = |i: usize| wide(unsafe { from.add(i).cast::<[T; SUMS]>().read_unaligned() }, widen);
            // SAFETY: as above.
            let put = |i: usize, x: f32| unsafe { to.add(i).write_unaligned(narrow(x)) };
            let mut maxima = block(len - SUMS);
            for i in (0..whole).step_by(SUMS) {
                maxima = greater(block(i), maxima);
            }
            let max = folded(maxima, |a, b| if a > b { a } else { b });
            let power = |x: [f32; SUMS]| {
                let mut powers = x;
                for x in &mut powers {
                    *x = exp_to_one::<FUSED>((*x - max) * beta);
                }
                powers
            };
            let mut sums = [0f32; SUMS];
            for i in (0..whole).step_by(SUMS) {
                let made = power(block(i));
                // SAFETY: there is room for all elements of a lane that are in whole blocks.
                unsafe { powers.add(i).cast::<[f32; SUMS]>().write_unaligned(made) };
                for (sum, power) in sums.iter_mut().zip(made) {
                    *sum += power;
                }
            }
            let last = power(block(len - SUMS));
            if rest > 0 {
                for ((sum, power), bits) in sums.iter_mut().zip(last).zip(is_of_rest) {
                    *sum += f32::from_bits(power.to_bits() & bits);
                }
            }
            let sum = folded(sums, |a, b| a + b);
            if logarithm {
                let log_sum = f64::from(sum).ln() as f32;
                for i in 0..len {
                    put(i, (at(i) - max) * beta - log_sum);
                }
                continue;
            }
            let share = 1.0 / sum;
            for i in 0..whole {
                // SAFETY: it was written above.
                put(i, unsafe { powers.add(i).read() } * share);
            }
            if rest > 0 {
                for (i, power) in (len - SUMS..).zip(last) {
                    put(i, power * share);
                }
            }
        }
    }
}

/// A block's elements as floats.
#[inline(always)]
fn wide<T: Copy>(block: [T; SUMS], widen: &impl Fn(T) -> f32) -> [f32; SUMS] {
    let mut floats = [0f32; SUMS];
    for (float, x) in floats.iter_mut().zip(block) {
        *float = widen(x);
    }
    floats
}

/// The greater element of each two; the second one beside a NaN.
#[inline(always)]
fn greater(a: [f32; SUMS], mut b: [f32; SUMS]) -> [f32; SUMS] {
    for (a, b) in a.into_iter().zip(&mut b) {
        *b = if a > *b { a } else { *b };
    }
    b
}

/// What `of` makes of all elements, in an order that depends on nothing. It is a function of its own, as a compiler that sees into it
/// takes apart the loops that make its elements.
#[inline(never)]
fn folded(mut all: [f32; SUMS], of: impl Fn(f32, f32) -> f32) -> f32 {
    let mut left = SUMS;
    while left > 1 {
        left /= 2;
        for i in 0..left {
            all[i] = of(all[i + left], all[i]);
        }
    }
    all[0]
}
