//! Two 8-bit inputs that broadcast. The bytes are those of the plain evaluation: gemmlowp's roundings, in vectors.

use super::loops::zip;
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

const LEFT_SHIFT: u32 = 20;

/// `a + sign * b`.
pub fn sum(args: &Args, sign: i32) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let twice_larger = 2.0 * f64::from(a.scale().max(b.scale()));
    let part = |arg: &Arg| {
        let multiplier = Multiplier::new(f64::from(arg.scale()) / twice_larger);
        Some((multiplier, Scale::new(multiplier, 255 << LEFT_SHIFT)?))
    };
    let ((half_a, scale_a), (half_b, scale_b)) = (part(&a)?, part(&b)?);
    let to_out = Multiplier::new(twice_larger / (f64::from(1 << LEFT_SHIFT) * f64::from(out.scale)));
    let to_out = Scale::new(to_out, 256 << LEFT_SHIFT)?;
    let (range, centred) = (range(out, args.activation(2).ok()?), Centred::new(out)?);
    let (of_a, of_b) = (Centred::new(a.info)?, Centred::new(b.info)?);
    let finish = move |x: i32, y: i32| centred.byte(to_out.apply(x + sign * y), range);
    // The half that the larger scale is multiplied by needs no rounding.
    const HALF: Multiplier = Multiplier { mantissa: 1 << 30, shift: 0 };
    let exact = |x: i32| x << (LEFT_SHIFT - 1);
    match (half_a == HALF, half_b == HALF) {
        (true, true) => zip(args, 400, move |a, b| finish(exact(of_a.of(a)), exact(of_b.of(b)))),
        (true, false) => {
            zip(args, 500, move |a, b| finish(exact(of_a.of(a)), scale_b.apply(of_b.of(b) << LEFT_SHIFT)))
        }
        (false, true) => {
            zip(args, 500, move |a, b| finish(scale_a.apply(of_a.of(a) << LEFT_SHIFT), exact(of_b.of(b))))
        }
        (false, false) => None,
    }
}

/// `a * b`.
pub fn product(args: &Args) -> Option<Box<dyn Kernel>> {
    let (a, b, out) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let to_out = Multiplier::new(f64::from(a.scale() * b.scale()) / f64::from(out.scale));
    let to_out = Scale::new(to_out, 255 * 255)?;
    let (range, centred) = (range(out, args.activation(2).ok()?), Centred::new(out)?);
    let (of_a, of_b) = (Centred::new(a.info)?, Centred::new(b.info)?);
    zip(args, 300, move |a, b| centred.byte(to_out.apply(of_a.of(a) * of_b.of(b)), range))
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
