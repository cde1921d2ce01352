//! The ways through tensors that elementwise operations share: one input, or two that broadcast. Nothing here knows
//! what is computed.

use crate::ops::pace::Pace;
use crate::ops::{broadcast, Args, OpError, Out};
use crate::tensor::rescale::byte_table;
use crate::tensor::OperandType::*;
use bytemuck::{AnyBitPattern, NoUninit};
use half::f16;

/// Elements worked on in one go, between notes of the work done.
pub const STRETCH: usize = 1 << 14;

/// Sets each element of `to` to `f` of the element of `from`.
pub fn fill<S: Copy, T>(args: &Args, from: &[S], to: &mut [T], f: impl Fn(S) -> T) -> Result<(), OpError> {
    if from.len() != to.len() {
        return Err(OpError::failed(format!("{} elements for an output of {}", from.len(), to.len())));
    }
    let mut pace = Pace::new(args);
    for (from, to) in from.chunks(STRETCH).zip(to.chunks_mut(STRETCH)) {
        pace.spend(to.len())?;
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = f(from));
    }
    Ok(())
}

/// Output 0 as `f` of input 0, element by element as they lie in memory.
pub fn map<S: AnyBitPattern, T: AnyBitPattern + NoUninit>(
    args: &Args,
    outs: &mut [Out],
    f: impl Fn(S) -> T,
) -> Result<(), OpError> {
    fill(args, args.get(0)?.elements()?, outs[0].elements()?, f)
}

/// [`map`] over a float tensor of either width.
pub fn map_floats(args: &Args, outs: &mut [Out], f: impl Fn(f32) -> f32) -> Result<(), OpError> {
    match args.get(0)?.ty() {
        TENSOR_FLOAT16 => map(args, outs, |x: f16| f16::from_f32(f(x.to_f32()))),
        _ => map(args, outs, f),
    }
}

/// [`map_floats`], or for 8-bit quantised tensors `f` of the real numbers they stand for. Those take but 256 values, so
/// a table answers for all elements.
pub fn map_reals(args: &Args, outs: &mut [Out], f: impl Fn(f32) -> f32) -> Result<(), OpError> {
    let input = args.get(0)?;
    if !input.ty().is_quant8_asymm() {
        return map_floats(args, outs, f);
    }
    let table = byte_table(input.info, args.output(0)?, f);
    map(args, outs, |byte: u8| table[usize::from(byte)])
}

/// The shape rule of operations whose two first inputs broadcast to the output.
pub fn broadcast_shapes(args: &Args) -> crate::ops::Shapes {
    Ok(vec![broadcast::dims(args.get(0)?.dims(), args.get(1)?.dims())?])
}

/// Output 0 as `f` of the broadcast of inputs 0 and 1, element by element as they lie in memory.
pub fn zip<S: AnyBitPattern, T: AnyBitPattern + NoUninit>(
    args: &Args,
    outs: &mut [Out],
    f: impl Fn(S, S) -> T,
) -> Result<(), OpError> {
    let (a, b) = (args.get(0)?, args.get(1)?);
    zip_slices(args, a.elements()?, b.elements()?, outs[0].elements()?, f)
}

/// [`zip`] over float tensors of either width.
pub fn zip_floats(args: &Args, outs: &mut [Out], f: impl Fn(f32, f32) -> f32) -> Result<(), OpError> {
    match args.get(0)?.ty() {
        TENSOR_FLOAT16 => zip(args, outs, |a: f16, b: f16| f16::from_f32(f(a.to_f32(), b.to_f32()))),
        _ => zip(args, outs, f),
    }
}

/// [`zip`] over 8-bit quantised tensors: `f` maps quantised values as they are, and its result is clamped to the type. Each
/// tensor may be signed or not: between operations the compiler chooses.
pub fn zip_quantised(args: &Args, outs: &mut [Out], f: impl Fn(i32, i32) -> i32) -> Result<(), OpError> {
    let types = [args.get(0)?.ty(), args.get(1)?.ty(), args.output(0)?.ty];
    if let Some(ty) = types.into_iter().find(|ty| !ty.is_quant8_asymm()) {
        return Err(OpError::failed(format!("{ty} is not an 8-bit quantised tensor")));
    }
    let [signed_a, signed_b, signed_out] = types.map(|ty| ty == TENSOR_QUANT8_ASYMM_SIGNED);
    let number = |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
    let (lo, hi) = if signed_out { (-128, 127) } else { (0, 255) };
    zip(args, outs, |a: u8, b: u8| f(number(a, signed_a), number(b, signed_b)).clamp(lo, hi) as u8)
}

/// Sets `to` to `f` of the broadcast of `a` and `b`, which are the elements of inputs 0 and 1.
///
/// The walk is row by row, a row being the last dimension, so that the inner loop is a plain one.
pub fn zip_slices<S: Copy, T>(
    args: &Args,
    a: &[S],
    b: &[S],
    to: &mut [T],
    f: impl Fn(S, S) -> T,
) -> Result<(), OpError> {
    let (dims_a, dims_b) = (args.get(0)?.dims(), args.get(1)?.dims());
    let mut pace = Pace::new(args);
    if dims_a == dims_b {
        return zip_row(&mut pace, a, b, to, f);
    }
    let ((outer_a, row_a), (outer_b, row_b)) = (split_rows(dims_a), split_rows(dims_b));
    let row = if row_a == 1 { row_b } else { row_a };
    if row == 0 {
        return Ok(());
    }
    let mut rows = to.chunks_exact_mut(row);
    // A row may be one element, and to come to the next one take a step in each of many dimensions of 1.
    let steps = outer_a.len().max(outer_b.len()) / 4;
    broadcast::for_each(outer_a, outer_b, |ia, ib| {
        pace.spend(steps)?;
        match (a.get(ia * row_a..(ia + 1) * row_a), b.get(ib * row_b..(ib + 1) * row_b), rows.next()) {
            (Some(a), Some(b), Some(to)) => zip_row(&mut pace, a, b, to, &f),
            _ => Err(OpError::failed("operands have fewer elements than their dimensions say")),
        }
    })
}

/// The outer dimensions and the length of a row; a tensor of rank 0 is one row of one.
fn split_rows(dims: &[u32]) -> (&[u32], usize) {
    dims.split_last().map_or((dims, 1), |(&last, outer)| (outer, last as usize))
}

/// One row: `a` and `b` are as long as `to`, or of length 1 and repeated.
fn zip_row<S: Copy, T>(
    pace: &mut Pace,
    a: &[S],
    b: &[S],
    to: &mut [T],
    f: impl Fn(S, S) -> T,
) -> Result<(), OpError> {
    let n = to.len();
    if [a.len(), b.len()].iter().any(|&len| len != n && len != 1) {
        return Err(OpError::failed(format!("{} and {} elements for an output of {n}", a.len(), b.len())));
    }
    for (i, to) in to.chunks_mut(STRETCH).enumerate() {
        pace.spend(to.len())?;
        let at = i * STRETCH;
        let part = at..at + to.len();
        let a = if a.len() == n { &a[part.clone()] } else { a };
        let b = if b.len() == n { &b[part] } else { b };
        match (a, b) {
            (a, b) if a.len() == b.len() => {
                to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (&a, &b))| *to = f(a, b));
            }
            (&[a], b) => to.iter_mut().zip(b).for_each(|(to, &b)| *to = f(a, b)),
            (a, b) => to.iter_mut().zip(a).for_each(|(to, &a)| *to = f(a, b[0])),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{ABS, ADD, SELECT};
    use crate::ops::evaluate::evaluate;
    use crate::ops::testing::{call_simple, f32s, int, tensor, InterruptedAfter, Tensor};
    use crate::ops::{Arg, OpError, Operation};
    use crate::tensor::{OperandType, TensorInfo};

    #[test]
    fn broadcasts_rows_longer_than_a_stretch() {
        let n = 3 * super::STRETCH + 5;
        let ramp: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let long = f32s(&[1, n as u32], &ramp);
        let short = f32s(&[2, 1], &[100.0, 200.0]);
        let expected: Vec<f32> =
            [100.0, 200.0].iter().flat_map(|s| ramp.iter().map(move |r| r + s)).collect();
        for inputs in [[long.clone(), short.clone(), int(0)], [short, long, int(0)]] {
            assert_eq!(call_simple::<f32>(&ADD, &inputs), Ok((vec![2, n as u32], expected.clone())));
        }
    }

    #[test]
    fn broadcasts_inner_and_outer_dimensions_both_ways() {
        let a = f32s(&[2, 1, 2], &[10.0, 20.0, 30.0, 40.0]);
        let b = f32s(&[3, 1], &[1.0, 2.0, 3.0]);
        let sums = [11.0, 21.0, 12.0, 22.0, 13.0, 23.0, 31.0, 41.0, 32.0, 42.0, 33.0, 43.0];
        for inputs in [[a.clone(), b.clone(), int(0)], [b, a, int(0)]] {
            assert_eq!(call_simple::<f32>(&ADD, &inputs), Ok((vec![2, 3, 2], sums.to_vec())));
        }
    }

    #[test]
    fn an_interrupt_ends_the_work_between_stretches() {
        let n = 32 * super::STRETCH;
        let long = f32s(&[n as u32], &vec![1.0; n]);
        let rows = f32s(&[n as u32, 1], &vec![1.0; n]);
        let truth = tensor(TensorInfo::new(OperandType::TENSOR_BOOL8, &[n as u32]), &vec![1u8; n]);
        let attempt = |operation: &Operation, inputs: &[&Tensor], patience| {
            let args: Vec<_> =
                inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
            let out = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[]);
            evaluate(operation, &args, &[out], &InterruptedAfter::checks(patience)).map(|_| ())
        };
        let (act, one) = (int(0), f32s(&[1, 2], &[1.0, 2.0]));
        let cases: [(&Operation, Vec<&Tensor>); 4] = [
            (&ABS, vec![&long]),
            (&ADD, vec![&long, &long, &act]),
            (&ADD, vec![&rows, &one, &act]),
            (&SELECT, vec![&truth, &long, &long]),
        ];
        for (operation, inputs) in cases {
            assert_eq!(attempt(operation, &inputs, 3), Err(OpError::Cancelled), "{}", operation.ty);
            assert_eq!(attempt(operation, &inputs, 200), Ok(()), "{}", operation.ty);
        }
    }
}
