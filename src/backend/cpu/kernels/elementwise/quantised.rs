//! Two 8-bit inputs that broadcast. The bytes are those of the plain evaluation: gemmlowp's roundings, in vectors.

use super::loops::zip;
use super::quick::{Quick, Reading, HALF_UNIT, ROUNDED};
use super::round::Scale;
#[cfg(target_arch = "aarch64")]
use super::sums_neon::{is_large, InVectors, Sums};
use super::Kernel;
#[cfg(target_arch = "x86_64")]
use super::{super::gemm::Requantisation, products_x86::Products};
#[cfg(target_arch = "aarch64")]
use crate::backend::cpu::kernels::vector::Level;
use crate::ops::{Arg, Args};
use crate::tensor::requant::{Activation, Multiplier};
use crate::tensor::rescale::Rescale;
use crate::tensor::{OperandType, TensorInfo};

/// What makes the bytes of this type unsigned, in the same order.
pub fn flip(ty: OperandType) -> u8 {
    if ty == OperandType::TENSOR_QUANT8_ASYMM {
        0
    } else {
        0x80
    }
}

/// Bytes of an input as numbers, less its zero point: at most 255 in size.
#[derive(Clone, Copy)]
struct Centred<const SIGNED: bool> {
    zero: i32,
}

impl<const SIGNED: bool> Centred<SIGNED> {
    /// `None` where the zero point is not of the type.
    fn new(info: &TensorInfo) -> Option<Self> {
        Bytes::new(info).map(|_| Centred { zero: info.zero_point })
    }

    #[inline(always)]
    fn number(byte: u8) -> i32 {
        if SIGNED {
            i32::from(byte as i8)
        } else {
            i32::from(byte)
        }
    }

    #[inline(always)]
    fn of(self, byte: u8) -> i32 {
        Self::number(byte) - self.zero
    }
}

/// How numbers become an output's bytes.
#[derive(Clone, Copy)]
struct Bytes {
    flip: u8,
    /// The zero point as the number of an unsigned byte.
    zero: i32,
}

impl Bytes {
    /// `None` where the zero point is not of the type.
    fn new(info: &TensorInfo) -> Option<Self> {
        let flip = flip(info.ty);
        let zero = info.zero_point.checked_add(flip.into()).filter(|zero| (0..256).contains(zero))?;
        Some(Bytes { flip, zero })
    }

    /// The byte for a number that is not yet within `range`, both relative to the zero point.
    #[inline(always)]
    fn byte(self, number: i32, (lo, hi): (i32, i32)) -> u8 {
        // Not clamp(), which panics where a senseless scale turns the bounds round.
        (number.max(lo).min(hi) + self.zero) as u8 ^ self.flip
    }

    /// How results that are off by at most `unsure` are read from floats.
    fn reading(self, (lo, hi): (i32, i32), unsure: f64) -> Option<Reading> {
        Reading::new(unsure, (lo + self.zero, hi + self.zero), self.flip)
    }
}

/// Bounds of results before the zero point is added.
fn range(out: &TensorInfo, activation: Activation) -> (i32, i32) {
    let (lo, hi) = activation.quantised_range(out.ty, out.scale, out.zero_point);
    (lo - out.zero_point, hi - out.zero_point)
}

/// Calls a function for which of the first two inputs are signed. They may differ: between operations the compiler chooses.
macro_rules! by_signs {
    ($args:expr, $function:ident($($arg:expr),*)) => {
        match [$args.get(0).ok()?, $args.get(1).ok()?].map(|arg| flip(arg.ty()) != 0) {
            [false, false] => $function::<false, false>($($arg),*),
            [false, true] => $function::<false, true>($($arg),*),
            [true, false] => $function::<true, false>($($arg),*),
            [true, true] => $function::<true, true>($($arg),*),
        }
    };
}

/// What a pair takes, in picoseconds: by floats, by words or factors in vectors, and exactly.
const QUICKLY: usize = 170;
#[cfg(target_arch = "x86_64")]
const IN_WORDS: usize = 150;
#[cfg(target_arch = "aarch64")]
const BY_FACTORS: usize = 100;
const EXACTLY: usize = 500;

const LEFT_SHIFT: u32 = 20;

/// `a + sign * b`.
pub fn sum(args: &Args, sign: i32) -> Option<Box<dyn Kernel>> {
    by_signs!(args, sum_of(args, sign))
}

fn sum_of<const A: bool, const B: bool>(args: &Args, sign: i32) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let twice_larger = 2.0 * f64::from(a.scale().max(b.scale()));
    let part =
        |arg: &Arg| Scale::new(Multiplier::new(f64::from(arg.scale()) / twice_larger), 255 << LEFT_SHIFT);
    let (scale_a, scale_b) = (part(&a)?, part(&b)?);
    let to_out = Multiplier::new(twice_larger / (f64::from(1 << LEFT_SHIFT) * f64::from(out.scale)));
    let to_out = Scale::new(to_out, 256 << LEFT_SHIFT)?;
    let (range, bytes) = (range(out, args.activation(2).ok()?), Bytes::new(out)?);
    let (of_a, of_b) = (Centred::<A>::new(a.info)?, Centred::<B>::new(b.info)?);
    let exact = move |a: u8, b: u8| {
        let x = scale_a.apply(of_a.of(a) << LEFT_SHIFT);
        let y = scale_b.apply(of_b.of(b) << LEFT_SHIFT);
        bytes.byte(to_out.apply(x + sign * y), range)
    };
    let by = [a.scale(), b.scale()].map(|scale| f64::from(scale) / f64::from(out.scale));
    let by = [by[0], f64::from(sign) * by[1]];
    let start = f64::from(bytes.zero) - f64::from(of_a.zero) * by[0] - f64::from(of_b.zero) * by[1];
    // The factors, the products, the start, its sum with one product and the result are rounded once each. The roundings of
    // the exact way are smaller: under three units of `2^-19` of the larger input's scale.
    let (size, start_size) = (255.0 * (by[0].abs() + by[1].abs()), start.abs() + 512.0);
    let exactness = 32.0 * by[0].abs().max(by[1].abs());
    let unsure = HALF_UNIT * (2.0 * size + start_size + (start_size + size) + exactness) + ROUNDED;
    let Some(reading) = bytes.reading(range, unsure) else { return zip(args, EXACTLY, exact) };
    let (factors, first) = (by.map(|by| by as f32), (start + reading.start()) as f32);
    let real = move |a: u8, b: u8| {
        let (a, b) = (Centred::<A>::number(a) as f32, Centred::<B>::number(b) as f32);
        a * factors[0] + (b * factors[1] + first)
    };
    let quick = Quick { real, reading, exact };
    #[cfg(target_arch = "aarch64")]
    if A && B && bytes.flip != 0 && is_large(out) && Level::detect().adds_high_products() {
        let flip = i32::from(bytes.flip);
        let bounds = [range.0, range.1].map(|bound| (bound + bytes.zero - flip) as i8);
        let sums = Sums::new(by, start - f64::from(flip), (bounds[0], bounds[1]), exact);
        if let Some(sums) = sums {
            return zip(args, BY_FACTORS, InVectors { sums, others: quick });
        }
    }
    zip(args, QUICKLY, quick)
}

/// `a * b`.
pub fn product(args: &Args) -> Option<Box<dyn Kernel>> {
    by_signs!(args, product_of(args))
}

/// How far a product of a number and a factor may be from what is rounded, where it is within 512, in which the factor, the
/// product, its sum with a nudge, and the result are rounded once each. A factor that is no number, as scales are so far apart,
/// is a [`Multiplier`] of zero, and not for floats.
const UNSURE: f64 = 3.0 * ROUNDED + ROUNDED;

fn product_of<const A: bool, const B: bool>(args: &Args) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let by = f64::from(a.scale() * b.scale()) / f64::from(out.scale);
    let multiplier = Multiplier::new(by);
    let to_out = Scale::new(multiplier, 255 * 255)?;
    let (range, bytes) = (range(out, args.activation(2).ok()?), Bytes::new(out)?);
    let (of_a, of_b) = (Centred::<A>::new(a.info)?, Centred::<B>::new(b.info)?);
    let exact = move |a: u8, b: u8| bytes.byte(to_out.apply(of_a.of(a) * of_b.of(b)), range);
    let reading = bytes.reading(range, UNSURE).filter(|_| by.is_finite());
    let Some(reading) = reading else { return zip(args, EXACTLY, exact) };
    let start = (f64::from(bytes.zero) + reading.start()) as f32;
    let (by, nudge) = (by as f32, to_out.nudge());
    let real = move |a: u8, b: u8| nudged((of_a.of(a) * of_b.of(b)) as f32 * by, nudge) + start;
    let quick = Quick { real, reading, exact };
    #[cfg(target_arch = "x86_64")]
    let quick = {
        let requantisation = Requantisation {
            multipliers: &[multiplier],
            ty: out.ty,
            zero: out.zero_point,
            range: (range.0 + out.zero_point, range.1 + out.zero_point),
            once: false,
            interrupt: args.interrupt,
        };
        // Zero points are of their types.
        let zeros = [of_a.zero as i16, of_b.zero as i16];
        match Products::<A, B, _>::new(zeros, &requantisation, quick) {
            Ok(products) => return zip(args, IN_WORDS, products),
            Err(quick) => quick,
        }
    };
    zip(args, QUICKLY, quick)
}

/// `x` further away from 0.
#[inline(always)]
fn nudged(x: f32, nudge: f32) -> f32 {
    x + nudge.copysign(x)
}

/// Positive elements of `a` as they are, others times `b`, each side with its own scale.
pub fn prelu(args: &Args) -> Option<Box<dyn Kernel>> {
    by_signs!(args, prelu_of(args))
}

fn prelu_of<const A: bool, const B: bool>(args: &Args) -> Option<Box<dyn Kernel>> {
    let (input, alpha, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let above = f64::from(input.scale() / out.scale);
    let below = f64::from(input.scale() * alpha.scale()) / f64::from(out.scale);
    let (positive, negative) = (Multiplier::new(above), Multiplier::new(below));
    let (positive, negative) = (Scale::new(positive, 255)?, Scale::new(negative, 255 * 255)?);
    let (range, bytes) = (range(out, Activation::None), Bytes::new(out)?);
    let (of_x, of_alpha) = (Centred::<A>::new(input.info)?, Centred::<B>::new(alpha.info)?);
    let exact = move |x: u8, alpha: u8| {
        let x = of_x.of(x);
        let below = negative.apply(x * of_alpha.of(alpha));
        bytes.byte(if x >= 0 { positive.apply(x) } else { below }, range)
    };
    let reading = bytes.reading(range, UNSURE).filter(|_| above.is_finite() && below.is_finite());
    let Some(reading) = reading else { return zip(args, EXACTLY, exact) };
    let start = (f64::from(bytes.zero) + reading.start()) as f32;
    let (above, below) = ((above as f32, positive.nudge()), (below as f32, negative.nudge()));
    let real = move |x: u8, alpha: u8| {
        let x = of_x.of(x);
        let times = |x: i32, (by, nudge): (f32, f32)| nudged(x as f32 * by, nudge);
        let below = times(x * of_alpha.of(alpha), below);
        (if x >= 0 { times(x, above) } else { below }) + start
    };
    zip(args, QUICKLY, Quick { real, reading, exact })
}

#[derive(Clone, Copy)]
pub enum Extreme {
    Greatest,
    Least,
}

/// The greater or the lesser of two, in the output's units.
pub fn extreme(args: &Args, which: Extreme) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let flip = flip(out.ty);
    let same =
        |info: &TensorInfo| (info.ty, info.scale, info.zero_point) == (out.ty, out.scale, out.zero_point);
    if same(a.info) && same(b.info) {
        return match which {
            Extreme::Greatest => zip(args, 50, move |a: u8, b: u8| (a ^ flip).max(b ^ flip) ^ flip),
            Extreme::Least => zip(args, 50, move |a: u8, b: u8| (a ^ flip).min(b ^ flip) ^ flip),
        };
    }
    let table = |arg: &Arg| -> [u8; 256] {
        let rescale = Rescale::new(arg.info, out);
        std::array::from_fn(|byte| rescale.apply(byte as i32) as u8 ^ flip)
    };
    let (from_a, from_b) = (table(&a), table(&b));
    let pair = move |a: u8, b: u8| (from_a[usize::from(a)], from_b[usize::from(b)]);
    match which {
        Extreme::Greatest => zip(args, 900, move |a, b| {
            let (a, b) = pair(a, b);
            a.max(b) ^ flip
        }),
        Extreme::Least => zip(args, 900, move |a, b| {
            let (a, b) = pair(a, b);
            a.min(b) ^ flip
        }),
    }
}
