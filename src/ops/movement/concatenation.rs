//! CONCATENATION: tensors end to end along an axis, requantised to the output where they need be.

use super::walk::{around_axis, Move, Moves, Walk};
use crate::ops::scratch::{collected, Values};
use crate::ops::signature::{int, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::rescale::byte_table;
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static CONCATENATION: Operation = Operation {
    ty: OperationType::CONCATENATION,
    doc: "joins tensors along an axis; quantised ones are rescaled to the output",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(1, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), int("axis")],
        &[var("output", 0)],
    )
    .repeat_input(0)],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// The axis, which is not counted from the end here.
fn axis(args: &Args) -> Result<usize, OpError> {
    let (axis, rank) = (args.i32(args.len() - 1)?, args.get(0)?.dims().len());
    usize::try_from(axis)
        .ok()
        .filter(|&axis| axis < rank)
        .ok_or_else(|| OpError::failed(format!("axis {axis} is out of range for rank {rank}")))
}

fn shapes(args: &Args) -> Shapes {
    let axis = axis(args)?;
    let mut dims = Dims::from(args.get(0)?.dims());
    for i in 1..args.len() - 1 {
        let own = args.get(i)?.dims();
        let fits = own.len() == dims.len() && (0..own.len()).all(|d| d == axis || own[d] == dims[d]);
        if !fits {
            return Err(OpError::failed(format!("input {i} has dimensions {own:?}, unlike {dims:?} before")));
        }
        dims[axis] = dims[axis]
            .checked_add(own[axis])
            .ok_or_else(|| OpError::failed("the joined dimension is too large"))?;
    }
    Ok(vec![dims])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let out = &mut outs[0];
    if out.data.is_empty() {
        return Ok(());
    }
    for Move { input, walk, .. } in moves(args, &[out.info])? {
        walk.run(args, out.info.ty, &requantised(args, input, out.info)?, out.data)?;
    }
    Ok(())
}

/// The moves of inputs that are in the output's quantisation.
pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let axis = axis(args)?;
    let (outer, inner) = around_axis(&outs[0].dims, axis);
    let row = |dims: &[u32]| inner as i64 * i64::from(dims[axis]);
    let (whole, mut start) = (row(&outs[0].dims), 0);
    let mut moves = Vec::with_capacity(args.len());
    for input in 0..args.len() - 1 {
        let part = row(args.get(input)?.dims());
        let walk = Walk::new([(outer as i64, part, whole), (part, 1, 1)]).start(0, start);
        moves.push(Move { input, output: 0, walk });
        start += part;
    }
    Ok(moves)
}

/// Whether the output has another quantisation than the input.
pub(super) fn is_requantised(input: &TensorInfo, output: &TensorInfo) -> bool {
    let same = input.scale == output.scale && input.zero_point == output.zero_point;
    !same && input.ty.is_quant8_asymm()
}

/// What becomes of the input's elements where the output has another quantisation.
pub(super) fn requantisation(input: &TensorInfo, output: &TensorInfo) -> Option<[u8; 256]> {
    is_requantised(input, output).then(|| byte_table(input, output, |real| real))
}

/// The input's elements in the output's quantisation.
fn requantised<'a>(args: &Args<'a>, i: usize, output: &TensorInfo) -> Result<Values<'a, u8>, OpError> {
    let input = args.arg(i)?;
    let bytes = input.bytes()?;
    let Some(table) = requantisation(input.info, output) else { return Ok(Values::Given(bytes)) };
    Ok(Values::Made(collected(args.interrupt, bytes.iter().map(|&q| table[usize::from(q)]))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, tensor, Tensor};

    fn joined(inputs: &[Tensor], axis: i32, out: TensorInfo) -> Result<(Vec<u32>, Vec<u8>), OpError> {
        let axis = crate::ops::testing::int(axis);
        let inputs: Vec<_> = inputs.iter().chain([&axis]).cloned().map(Some).collect();
        let out = call(&CONCATENATION, &inputs, &[out])?.remove(0);
        Ok((out.dims.to_vec(), out.data.to_vec()))
    }

    #[test]
    fn joins_along_any_axis() {
        let inputs = [f32s(&[2, 1], &[1.0, 2.0]), f32s(&[2, 0], &[]), f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0])];
        let (dims, data) = joined(&inputs, 1, inputs[0].info.clone()).unwrap();
        assert_eq!((dims, bytemuck::cast_slice(&data)), (vec![2, 3], &[1.0f32, 3.0, 4.0, 2.0, 5.0, 6.0][..]));
        for axis in [-1, 2, 0, i32::MIN] {
            assert!(joined(&inputs, axis, inputs[0].info.clone()).is_err(), "{axis}");
        }
    }

    #[test]
    fn requantises_and_saturates() {
        let input = |ty, scale, zero, values: &[u8]| {
            tensor(TensorInfo::quantised(ty, &[values.len() as u32], scale, zero), values)
        };
        let ty = TENSOR_QUANT8_ASYMM;
        let out = TensorInfo::quantised(ty, &[], 1.0, 100);
        let inputs = [input(ty, 1.0, 100, &[7, 255]), input(ty, 2.5, 0, &[0, 1, 2, 255])];
        // 2.5 rounds away from zero.
        assert_eq!(joined(&inputs, 0, out), Ok((vec![6], vec![7, 255, 100, 103, 105, 255])));
        let ty = TENSOR_QUANT8_ASYMM_SIGNED;
        let out = TensorInfo::quantised(ty, &[], 0.5, 0);
        let inputs = [input(ty, 1.0, -1, &[0xff, 0, 0x80, 0x7f])];
        assert_eq!(joined(&inputs, 0, out), Ok((vec![4], vec![0, 2, 0x80, 0x7f])));
    }
}
