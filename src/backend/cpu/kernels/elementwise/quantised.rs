//! Two 8-bit inputs that broadcast. The bytes are those of the plain evaluation: gemmlowp's roundings, in vectors.

use super::loops::zip;
use super::quick::Quick;
use super::round::Scale;
use super::Kernel;
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

/// Bytes of a tensor as numbers, less its zero point: at most 255 in size.
#[derive(Clone, Copy)]
struct Centred {
    flip: u8,
    zero: i32,
}

impl Centred {
    /// `None` where the zero point is not of the type.
    fn new(info: &TensorInfo) -> Option<Self> {
        let flip = flip(info.ty);
        let zero = info.zero_point.checked_add(flip.into()).filter(|zero| (0..256).contains(zero))?;
        Some(Centred { flip, zero })
    }

    #[inline(always)]
    fn of(self, byte: u8) -> i32 {
        i32::from(byte ^ self.flip) - self.zero
    }

    /// The byte for a number that is not yet within `range`, which is relative to the zero point too.
    #[inline(always)]
    fn byte(self, number: i32, (lo, hi): (i32, i32)) -> u8 {
        // Not clamp(), which panics where a senseless scale turns the bounds round.
        (number.max(lo).min(hi) + self.zero) as u8 ^ self.flip
    }
}

/// Bounds of results before the zero point is added.
fn range(out: &TensorInfo, activation: Activation) -> (i32, i32) {
    let (lo, hi) = activation.quantised_range(out.ty, out.scale, out.zero_point);
    (lo - out.zero_point, hi - out.zero_point)
}

/// A kernel that takes `real`, which is `exact` not yet rounded, within `unsure` of that, where that is worth it.
fn either(
    args: &Args,
    to: Centred,
    (lo, hi): (i32, i32),
    real: impl Fn(u8, u8) -> f32 + Send + Sync + 'static,
    unsure: f32,
    exact: impl Fn(u8, u8) -> u8 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    /// One pair of a hundred is in doubt then.
    const MOST: f32 = 1.0 / 200.0;
    let (lo, hi) = ((lo + to.zero) as f32, (hi + to.zero) as f32);
    if unsure < MOST && lo <= hi {
        let real = move |a, b| real(a, b).max(lo).min(hi);
        zip(args, 120, Quick { real, unsure, flip: to.flip, exact })
    } else {
        zip(args, 500, exact)
    }
}

const LEFT_SHIFT: u32 = 20;

/// `a + sign * b`.
pub fn sum(args: &Args, sign: i32) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let twice_larger = 2.0 * f64::from(a.scale().max(b.scale()));
    let part =
        |arg: &Arg| Scale::new(Multiplier::new(f64::from(arg.scale()) / twice_larger), 255 << LEFT_SHIFT);
    let (scale_a, scale_b) = (part(&a)?, part(&b)?);
    let to_out = Multiplier::new(twice_larger / (f64::from(1 << LEFT_SHIFT) * f64::from(out.scale)));
    let to_out = Scale::new(to_out, 256 << LEFT_SHIFT)?;
    let (range, centred) = (range(out, args.activation(2).ok()?), Centred::new(out)?);
    let (of_a, of_b) = (Centred::new(a.info)?, Centred::new(b.info)?);
    let exact = move |a: u8, b: u8| {
        let x = scale_a.apply(of_a.of(a) << LEFT_SHIFT);
        let y = scale_b.apply(of_b.of(b) << LEFT_SHIFT);
        centred.byte(to_out.apply(x + sign * y), range)
    };
    let (by_a, by_b) = (a.scale() / out.scale, sign as f32 * (b.scale() / out.scale));
    let start = centred.zero as f32 - of_a.zero as f32 * by_a - of_b.zero as f32 * by_b;
    // Each product and sum and the three numbers are rounded once each. The roundings of the exact way are smaller: under
    // three units of `2^-19` of the larger input's scale.
    let unsure = f32::EPSILON
        * (2.0 * 255.0 * (by_a.abs() + by_b.abs())
            + 2.0 * start.abs()
            + 512.0
            + 16.0 * by_a.abs().max(by_b.abs()));
    let (flip_a, flip_b) = (of_a.flip, of_b.flip);
    let real = move |a: u8, b: u8| f32::from(a ^ flip_a) * by_a + (f32::from(b ^ flip_b) * by_b + start);
    either(args, centred, range, real, unsure, exact)
}

/// `a * b`.
pub fn product(args: &Args) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let real = f64::from(a.scale() * b.scale()) / f64::from(out.scale);
    let to_out = Scale::new(Multiplier::new(real), 255 * 255)?;
    let (range, centred) = (range(out, args.activation(2).ok()?), Centred::new(out)?);
    let (of_a, of_b) = (Centred::new(a.info)?, Centred::new(b.info)?);
    let exact = move |a: u8, b: u8| centred.byte(to_out.apply(of_a.of(a) * of_b.of(b)), range);
    let (by, nudge) = (real as f32, to_out.nudge());
    // The scale, the product and the sum are rounded once each, and beyond 512 nothing matters.
    let unsure = 512.0 * 2.0 * f32::EPSILON;
    let zero = centred.zero as f32;
    let real = move |a: u8, b: u8| {
        let product = (of_a.of(a) * of_b.of(b)) as f32 * by;
        product + nudge.copysign(product) + zero
    };
    either(args, centred, range, real, unsure, exact)
}

/// Positive elements of `a` as they are, others times `b`, each side with its own scale.
pub fn prelu(args: &Args) -> Option<Box<dyn Kernel>> {
    let (input, alpha, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let positive = Multiplier::new(f64::from(input.scale() / out.scale));
    let negative = Multiplier::new(f64::from(input.scale() * alpha.scale()) / f64::from(out.scale));
    let (positive, negative) = (Scale::new(positive, 255)?, Scale::new(negative, 255 * 255)?);
    let (range, centred) = (range(out, Activation::None), Centred::new(out)?);
    let (of_x, of_alpha) = (Centred::new(input.info)?, Centred::new(alpha.info)?);
    zip(args, 500, move |x, alpha| {
        let x = of_x.of(x);
        let below = negative.apply(x * of_alpha.of(alpha));
        centred.byte(if x >= 0 { positive.apply(x) } else { below }, range)
    })
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
