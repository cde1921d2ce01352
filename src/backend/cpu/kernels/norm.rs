//! L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION of lanes whose elements lie side by side.
//! Sums of double precision are made in sixteen parts, in an order that is the same on every machine; what is divided by
//! them is divided as the plain evaluation does. Lanes that lie otherwise are another module's affair (`forms`).

use super::elementwise::half::{narrow, widen};
use super::elementwise::{round, Element};
use super::kernel::{input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::norm::{Lanes, SHORTEST};
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType::*;
use std::marker::PhantomData;

/// Parts of a sum, and elements that are computed side by side.
const SIDE_BY_SIDE: usize = 16;
/// What a lane takes besides its elements, about, in picoseconds: its sums have parts to be added, and there is a root.
const LANE: usize = 100_000;
/// Squares and other terms of a lane that take well under a millisecond.
const MAX_TERMS: usize = 1 << 19;
/// Terms that take as long as a power.
const POWER: usize = 20;

/// What a lane is brought to.
#[derive(Clone, Copy)]
enum Norm {
    /// Its length is 1.
    Length,
    /// It has a given mean and deviation.
    Moments { gamma: f32, beta: f32, epsilon: f32 },
    /// Each element is damped by the squares of its neighbours.
    Response { radius: usize, bias: f32, alpha: f32, beta: f32 },
}

/// A kernel for this call, if it is one of a normalisation, for lanes that come last.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    let input = args.get(0).ok()?;
    let number = |i: usize| args.f32(i).ok();
    let (norm, len) = match ty {
        OperationType::L2_NORMALIZATION => (Norm::Length, lane(args, 1)?),
        OperationType::LOCAL_RESPONSE_NORMALIZATION => {
            let radius = usize::try_from(args.i32(1).ok()?).ok()?;
            let (bias, alpha, beta) = (number(2)?, number(3)?, number(4)?);
            (Norm::Response { radius, bias, alpha, beta }, lane(args, 5)?)
        }
        OperationType::INSTANCE_NORMALIZATION => {
            let sides = if args.bool(4).ok()? { [2, 3] } else { [1, 2] }.map(|i| input.dim(i) as usize);
            let norm = Norm::Moments { gamma: number(1)?, beta: number(2)?, epsilon: number(3)? };
            (norm, sides[0].checked_mul(sides[1])?)
        }
        _ => return None,
    };
    let terms = match norm {
        Norm::Response { radius, beta, .. } => {
            let power = if matches!(beta, 0.5 | 0.75 | 1.0) { 0 } else { POWER };
            radius.saturating_mul(2).saturating_add(1).min(len) + power
        }
        _ => 2,
    };
    if len == 0 || input.count().ok()? == 0 || len.checked_mul(terms)? > MAX_TERMS {
        return None;
    }
    let picoseconds = terms * 500 + 1500;
    let out = args.output(0).ok()?;
    let (scale, zero, of) = (out.scale, out.zero_point, input.zero_point());
    let (lo, hi) = out.ty.integer_range().unwrap_or_default();
    // Lanes are brought to less than 2: no result is further away than this.
    const FAR: f32 = 1024.0;
    let element = move |x: f32| {
        let units = x / scale;
        let units = if units.is_nan() { 0.0 } else { units };
        (round(units.clamp(-FAR, FAR)) + zero).clamp(lo, hi)
    };
    match input.ty() {
        TENSOR_FLOAT32 => kernel(norm, len, picoseconds, |x: f32| x, |x| x),
        TENSOR_FLOAT16 => kernel(norm, len, picoseconds, widen, narrow),
        TENSOR_QUANT8_ASYMM => {
            let number = move |q: u8| i32::from(q).wrapping_sub(of) as f32;
            kernel(norm, len, picoseconds, number, move |x| element(x) as u8)
        }
        TENSOR_QUANT8_ASYMM_SIGNED => {
            let number = move |q: i8| i32::from(q).wrapping_sub(of) as f32;
            kernel(norm, len, picoseconds, number, move |x| element(x) as i8)
        }
        _ => None,
    }
}

/// Elements of a lane along the axis in this input.
fn lane(args: &Args, axis: usize) -> Option<usize> {
    Some(Lanes::new(args.get(0).ok()?.dims(), args.i32_or(axis, -1).ok()?).ok()?.len)
}

fn kernel<T: Element>(
    norm: Norm,
    len: usize,
    picoseconds: usize,
    number: impl Fn(T) -> f32 + Send + Sync + 'static,
    element: impl Fn(f32) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let level = Level::detect();
    Some(Box::new(Normalisation { level, norm, len, picoseconds, number, element, elements: PhantomData }))
}

struct Normalisation<T, Number, Make> {
    level: Level,
    norm: Norm,
    /// Elements of a lane.
    len: usize,
    /// Time that an element takes, about.
    picoseconds: usize,
    number: Number,
    element: Make,
    elements: PhantomData<fn(T) -> T>,
}

impl<T, Number, Make> Kernel for Normalisation<T, Number, Make>
where
    T: Element,
    Number: Fn(T) -> f32 + Send + Sync,
    Make: Fn(f32) -> T + Send + Sync,
{
    fn name(&self) -> String {
        format!("normalisation {}", self.level.name())
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
            self.len * self.picoseconds + LANE,
            2 * self.len * size_of::<T>(),
        );
        work.for_each_chunk(out, lanes * self.len, |first, out| {
            self.level.run(LaneLoop { normalisation: self, input: input.part(first, out.len()), out });
        })
    }
}

struct LaneLoop<'a, T, Number, Make> {
    normalisation: &'a Normalisation<T, Number, Make>,
    input: View<'a, T>,
    out: Target<'a, T>,
}

impl<T: Element, Number: Fn(T) -> f32, Make: Fn(f32) -> T> Loop for LaneLoop<'_, T, Number, Make> {
    #[inline(always)]
    fn run(mut self) {
        let Normalisation { norm, len, ref number, ref element, .. } = *self.normalisation;
        for start in (0..self.out.len()).step_by(len) {
            let (from, to) = (self.input.pointer(start, len), self.out.pointer(start, len));
            // SAFETY: a lane was asked for, and `i` is below its length.
            let x = |i: usize| number(unsafe { from.add(i).read_unaligned() });
            // SAFETY: as above.
            let put = |i: usize, y: f32| unsafe { to.add(i).write_unaligned(element(y)) };
            match norm {
                Norm::Length => {
                    let length = sum(len, |i| f64::from(x(i)) * f64::from(x(i))).sqrt() as f32;
                    // Not max(): a NaN must stay one.
                    let divisor = if length < SHORTEST { SHORTEST } else { length };
                    (0..len).for_each(|i| put(i, x(i) / divisor));
                }
                Norm::Moments { gamma, beta, epsilon } => {
                    let mean = sum(len, |i| x(i).into()) / len as f64;
                    let square = |i| (f64::from(x(i)) - mean) * (f64::from(x(i)) - mean);
                    let variance = sum(len, square) / len as f64;
                    let scale = gamma / (variance as f32 + epsilon).sqrt();
                    (0..len).for_each(|i| put(i, (x(i) - mean as f32) * scale + beta));
                }
                Norm::Response { radius, bias, alpha, beta } => {
                    let base = |squares: f32| bias + alpha * squares;
                    // A power takes as long as many roots.
                    match beta {
                        0.5 => respond(len, radius, x, put, |squares| 1.0 / base(squares).sqrt()),
                        0.75 => respond(len, radius, x, put, |squares| {
                            let root = base(squares).sqrt();
                            1.0 / (root * root.sqrt())
                        }),
                        1.0 => respond(len, radius, x, put, |squares| 1.0 / base(squares)),
                        _ => respond(len, radius, x, put, |squares| base(squares).powf(-beta)),
                    }
                }
            }
        }
    }
}

/// The sum of `term` of each element, in an order that depends on nothing but how many there are.
#[inline(always)]
fn sum(len: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut parts = [0f64; SIDE_BY_SIDE];
    let whole = len - len % SIDE_BY_SIDE;
    for block in (0..whole).step_by(SIDE_BY_SIDE) {
        for (i, part) in parts.iter_mut().enumerate() {
            *part += term(block + i);
        }
    }
    for (i, part) in (whole..len).zip(&mut parts) {
        *part += term(i);
    }
    parts.into_iter().sum()
}

/// Puts each element times the `factor` that follows from the squares of those within `radius` of it, which are added first
/// to last as plainly.
#[inline(always)]
fn respond(
    len: usize,
    radius: usize,
    x: impl Fn(usize) -> f32,
    put: impl Fn(usize, f32),
    factor: impl Fn(f32) -> f32,
) {
    let square = |i: usize| x(i) * x(i);
    for first in (0..len).step_by(SIDE_BY_SIDE) {
        let after = first.saturating_add(radius);
        if first >= radius && after.saturating_add(SIDE_BY_SIDE) <= len {
            let mut sums = [0f32; SIDE_BY_SIDE];
            for from in first - radius..=after {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum += square(from + i);
                }
            }
            sums.into_iter().enumerate().for_each(|(i, sum)| put(first + i, x(first + i) * factor(sum)));
            continue;
        }
        for i in first..len.min(first + SIDE_BY_SIDE) {
            let window = i.saturating_sub(radius)..i.saturating_add(radius).saturating_add(1).min(len);
            put(i, x(i) * factor(window.map(square).fold(0.0, |sum, square| sum + square)));
        }
    }
}
