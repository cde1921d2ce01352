//! `x * logistic(x * f(x * x))` for polynomials `f`: GELU, of which NNAPI has no operation, can be written so. One loop goes through all
//! calls for each element, which rounds as their own loops do.

use super::call::{Call, Input, Tile};
use crate::backend::cpu::kernels::elementwise::loops::map;
use crate::backend::cpu::kernels::elementwise::math::logistic;
use crate::backend::cpu::kernels::vector::{fused, Level};
use crate::backend::cpu::kernels::Kernel;
use crate::ops::OperationType::{self, ADD, LOGISTIC, MUL};
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;

/// A kernel for these calls, if they are such a product whose polynomial has as many factors as one of GELU's forms.
pub fn select(calls: &[Call]) -> Option<Box<dyn Kernel>> {
    let factors = factors(calls)?;
    match factors.len() {
        2 => bent::<2>(factors.try_into().ok()?),
        7 => bent::<7>(factors.try_into().ok()?),
        _ => None,
    }
}

/// The kernel; the highest factor comes first.
fn bent<const N: usize>(factors: [f32; N]) -> Option<Box<dyn Kernel>> {
    let picoseconds = 700 + 100 * N;
    fused!(
        Level::detect(),
        map(picoseconds, move |x: f32| {
            let (square, mut f) = (x * x, factors[0]);
            for &next in &factors[1..] {
                f = square * f + next;
            }
            x * logistic::<FUSED>(x * f)
        })
    )
}

/// The polynomial's factors, the highest first.
fn factors(calls: &[Call]) -> Option<Vec<f32>> {
    let (end, [square, inner @ .., argument, part, product]) = (calls.len(), calls) else { return None };
    let is_whole = binary(square, MUL)?.iter().all(is_operand)
        && is_operand(&binary(argument, MUL)?[0])
        && is_made(&binary(argument, MUL)?[1], end - 4)
        && part.operation.ty == LOGISTIC
        && matches!(part.inputs[..], [Some(input)] if is_made(&input, end - 3))
        && is_operand(&binary(product, MUL)?[0])
        && is_made(&binary(product, MUL)?[1], end - 2);
    let mut factors = Vec::new();
    for (i, pair) in inner.chunks(2).enumerate() {
        let [multiplied, added] = pair else { return None };
        let ([a, b], [sum, next]) = (binary(multiplied, MUL)?, binary(added, ADD)?);
        match i {
            0 => factors.push(number(&b)?),
            _ if is_made(&b, 2 * i) => {}
            _ => return None,
        }
        if !is_made(&a, 0) || !is_made(&sum, 2 * i + 1) {
            return None;
        }
        factors.push(number(&next)?);
    }
    is_whole.then_some(factors)
}

/// The inputs of a call of a binary operation without an activation.
fn binary<'a>(call: &Call<'a>, ty: OperationType) -> Option<[Input<'a>; 2]> {
    let [Some(a), Some(b), ..] = call.inputs[..] else { return None };
    let activation = || call.with(&[], Tile::Elements(1), |args| args.activation(2).ok());
    (call.operation.ty == ty && activation() == Some(Activation::None)).then_some([a, b])
}

fn is_operand(input: &Input) -> bool {
    matches!(input, Input::Operand)
}

fn is_made(input: &Input, call: usize) -> bool {
    matches!(input, Input::Made(i) if *i == call)
}

fn number(input: &Input) -> Option<f32> {
    match input {
        Input::Constant(info, bytes) if info.ty == OperandType::TENSOR_FLOAT32 => {
            Some(f32::from_ne_bytes(bytes[..].try_into().ok()?))
        }
        _ => None,
    }
}
