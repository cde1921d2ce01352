//! Operations on two inputs that broadcast.

use super::half::{narrow, widen};
use super::loops::zip;
use super::quantised::{self, Extreme};
use super::Kernel;
use crate::ops::{Args, OperationType};
use crate::tensor::requant::{within, Activation};
use crate::tensor::OperandType::*;

pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    match ty {
        OperationType::ADD => {
            arithmetic(args, |a, b| a + b, i32::wrapping_add, |args| quantised::sum(args, 1))
        }
        OperationType::SUB => {
            arithmetic(args, |a, b| a - b, i32::wrapping_sub, |args| quantised::sum(args, -1))
        }
        OperationType::MUL => arithmetic(args, |a, b| a * b, i32::wrapping_mul, quantised::product),
        OperationType::DIV => quotient(args),
        OperationType::MAXIMUM => {
            extreme(args, |a, b| if a < b { b } else { a }, i32::max, Extreme::Greatest)
        }
        OperationType::MINIMUM => extreme(args, |a, b| if b < a { b } else { a }, i32::min, Extreme::Least),
        OperationType::PRELU if is_float(args) => {
            floats(args, |x, alpha| if x >= 0.0 { x } else { x * alpha })
        }
        OperationType::PRELU => quantised::prelu(args),
        OperationType::POW => slow_floats(args, f32::powf),
        OperationType::LOGICAL_AND => zip(args, 50, |a: u8, b: u8| u8::from(a != 0) & u8::from(b != 0)),
        OperationType::LOGICAL_OR => zip(args, 50, |a: u8, b: u8| u8::from(a | b != 0)),
        _ => compare(args, Verdict::of(ty)?),
    }
}

fn is_float(args: &Args) -> bool {
    args.get(0).is_ok_and(|arg| arg.ty().is_float())
}

/// `f` of float tensors of either width.
fn floats(args: &Args, f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static) -> Option<Box<dyn Kernel>> {
    match args.get(0).ok()?.ty() {
        TENSOR_FLOAT32 => zip(args, 200, f),
        TENSOR_FLOAT16 => zip(args, 500, move |a, b| narrow(f(widen(a), widen(b)))),
        _ => None,
    }
}

/// The same of a function that does not compile to vectors.
fn slow_floats(args: &Args, f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static) -> Option<Box<dyn Kernel>> {
    match args.get(0).ok()?.ty() {
        TENSOR_FLOAT32 => zip(args, 10_000, f),
        TENSOR_FLOAT16 => zip(args, 10_000, move |a, b| narrow(f(widen(a), widen(b)))),
        _ => None,
    }
}

/// `f` and then an activation, with the same bits as [`Activation::apply`].
fn activated(
    args: &Args,
    activation: Activation,
    f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let range = activation.float_range();
    match activation {
        Activation::None => floats(args, f),
        _ => floats(args, move |a, b| within(range, f(a, b))),
    }
}

fn arithmetic(
    args: &Args,
    float: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
    integer: impl Fn(i32, i32) -> i32 + Send + Sync + 'static,
    quantised: impl FnOnce(&Args) -> Option<Box<dyn Kernel>>,
) -> Option<Box<dyn Kernel>> {
    let activation = args.activation(2).ok()?;
    match args.get(0).ok()?.ty() {
        TENSOR_INT32 if activation == Activation::None => zip(args, 200, integer),
        TENSOR_INT32 => None,
        ty if ty.is_quant8_asymm() => quantised(args),
        _ => activated(args, activation, float),
    }
}

fn quotient(args: &Args) -> Option<Box<dyn Kernel>> {
    let activation = args.activation(2).ok()?;
    match args.get(0).ok()?.ty() {
        TENSOR_INT32 if activation == Activation::None => zip(args, 4000, floor_div),
        _ => activated(args, activation, |a, b| a / b),
    }
}

/// Division rounding down; by zero it gives 0.
fn floor_div(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    let (quotient, remainder) = (a.wrapping_div(b), a.wrapping_rem(b));
    quotient - i32::from(remainder != 0 && (remainder < 0) != (b < 0))
}

fn extreme(
    args: &Args,
    float: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
    integer: impl Fn(i32, i32) -> i32 + Send + Sync + 'static,
    which: Extreme,
) -> Option<Box<dyn Kernel>> {
    match args.get(0).ok()?.ty() {
        TENSOR_INT32 => zip(args, 200, integer),
        ty if ty.is_quant8_asymm() => quantised::extreme(args, which),
        _ => floats(args, float),
    }
}

/// What a comparison says: if the first is less, if both are equal, if it is greater, if they have no order.
#[derive(Clone, Copy)]
struct Verdict([u8; 4]);

impl Verdict {
    fn of(ty: OperationType) -> Option<Self> {
        Some(Verdict(match ty {
            OperationType::LESS => [1, 0, 0, 0],
            OperationType::LESS_EQUAL => [1, 1, 0, 0],
            OperationType::EQUAL => [0, 1, 0, 0],
            OperationType::NOT_EQUAL => [1, 0, 1, 1],
            OperationType::GREATER_EQUAL => [0, 1, 1, 0],
            OperationType::GREATER => [0, 0, 1, 0],
            _ => return None,
        }))
    }

    #[inline(always)]
    fn on<T: PartialOrd>(self, a: T, b: T) -> u8 {
        let [less, equal, greater, unordered] = self.0;
        // Each comparison is a mask of its own: no branches.
        let pick = |holds: bool, value: u8| if holds { value } else { 0 };
        let ordered = a <= b || a > b;
        pick(a < b, less) | pick(a == b, equal) | pick(a > b, greater) | pick(!ordered, unordered)
    }
}

fn compare(args: &Args, verdict: Verdict) -> Option<Box<dyn Kernel>> {
    let (a, b) = (args.get(0).ok()?, args.get(1).ok()?);
    match a.ty() {
        TENSOR_FLOAT32 => zip(args, 200, move |a: f32, b| verdict.on(a, b)),
        TENSOR_FLOAT16 => zip(args, 300, move |a, b| verdict.on(widen(a), widen(b))),
        TENSOR_INT32 => zip(args, 200, move |a: i32, b| verdict.on(a, b)),
        TENSOR_BOOL8 => zip(args, 100, move |a: u8, b: u8| verdict.on(u8::from(a != 0), u8::from(b != 0))),
        ty if ty.is_quant8_asymm() => {
            // By the real numbers that they stand for.
            let flip = quantised::flip(ty);
            let real = |zero: i32, scale: f32| {
                move |byte: u8| (i32::from(byte ^ flip) - i32::from(flip)).wrapping_sub(zero) as f32 * scale
            };
            let (of_a, of_b) = (real(a.zero_point(), a.scale()), real(b.zero_point(), b.scale()));
            zip(args, 300, move |a, b| verdict.on(of_a(a), of_b(b)))
        }
        _ => None,
    }
}
