//! QUANTIZE and DEQUANTIZE: from real numbers to 8-bit ones and back.

use super::walk::{fill, STRETCH};
use crate::ops::pace::Pace;
use crate::ops::signature::{var, Row, Slot, Ty};
use crate::ops::{
    no_check, same_as_first, Arg, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::requant::quantise;
use crate::tensor::{OperandType, OperandType::*};
use bytemuck::AnyBitPattern;
use half::f16;

const FLOATS: &[OperandType] = &[TENSOR_FLOAT16, TENSOR_FLOAT32];

pub static QUANTIZE: Operation = Operation {
    ty: OperationType::QUANTIZE,
    doc: "each element in units of the output's scale, rounded half away from zero",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_QUANT8_ASYMM]), Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED])],
        &[Slot { ty: Ty::Any(FLOATS), ..var("input", 0) }],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: same_as_first, eval: quantize },
};

fn quantize(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let out = args.output(0)?;
    // Keeping the low byte is right for both types: quantise() clamps to the output's.
    let byte = |x: f32| quantise(x, out.ty, out.scale, out.zero_point) as u8;
    fill(args, &args.get(0)?.floats()?, outs[0].elements()?, byte)
}

pub static DEQUANTIZE: Operation = Operation {
    ty: OperationType::DEQUANTIZE,
    doc: "the real number that each quantised element stands for",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_QUANT8_ASYMM, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT8_SYMM, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_SYMM, TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_FLOAT16]),
        ],
        &[var("input", 0).rank(1, 4)],
        &[var("output", 1)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: dequantize_shapes, eval: dequantize },
};

fn dequantize_shapes(args: &Args) -> Shapes {
    channels(&args.arg(0)?)?;
    same_as_first(args)
}

/// The scales that take turns along the elements, and after how many elements the next one's turn is.
fn channels<'a>(input: &Arg<'a>) -> Result<(&'a [f32], usize), OpError> {
    let Some(quant) = input.channel_quant() else {
        return Ok((std::slice::from_ref(&input.info.scale), input.count()?));
    };
    let along = quant.dim as usize;
    match input.dims().get(along) {
        Some(&n) if n as usize == quant.scales.len() => {
            // Of a tensor that exists, they are too many to count only where there are none in all, which take no turns.
            let turn = crate::tensor::element_count(&input.dims()[along + 1..]);
            Ok((&quant.scales, turn.unwrap_or(0)))
        }
        _ => Err(OpError::failed(format!(
            "{} scales along dimension {along} do not fit an input of {:?}",
            quant.scales.len(),
            input.dims()
        ))),
    }
}

fn dequantize(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    match args.get(0)?.ty() {
        TENSOR_QUANT8_ASYMM => to_floats(args, &mut outs[0], |q: u8| q.into()),
        _ => to_floats(args, &mut outs[0], |q: i8| q.into()),
    }
}

fn to_floats<T: AnyBitPattern>(args: &Args, out: &mut Out, number: impl Fn(T) -> i32) -> Result<(), OpError> {
    let zero = args.get(0)?.zero_point();
    let real = |q: T, scale: f32| number(q).wrapping_sub(zero) as f32 * scale;
    match out.info.ty {
        TENSOR_FLOAT16 => scaled(args, out.elements()?, |q, scale| f16::from_f32(real(q, scale))),
        _ => scaled(args, out.elements()?, real),
    }
}

/// Sets each element of `to` to what `real` makes of an element of the input and its scale.
fn scaled<T: AnyBitPattern, U>(args: &Args, to: &mut [U], real: impl Fn(T, f32) -> U) -> Result<(), OpError> {
    let input = args.get(0)?;
    let ((scales, turn), from) = (channels(&input)?, input.elements::<T>()?);
    if from.len() != to.len() {
        return Err(OpError::failed(format!("{} elements for an output of {}", from.len(), to.len())));
    }
    let mut pace = Pace::new(args);
    if turn == 1 {
        let count = scales.len().max(1);
        for (to, from) in to.chunks_mut(count).zip(from.chunks(count)) {
            pace.spend(count)?;
            to.iter_mut().zip(from).zip(scales).for_each(|((to, &q), &scale)| *to = real(q, scale));
        }
        return Ok(());
    }
    let turns = to.chunks_mut(turn.max(1)).zip(from.chunks(turn.max(1)));
    for ((to, from), &scale) in turns.zip(scales.iter().cycle()) {
        for (to, from) in to.chunks_mut(STRETCH).zip(from.chunks(STRETCH)) {
            pace.spend(to.len())?;
            to.iter_mut().zip(from).for_each(|(to, &q)| *to = real(q, scale));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, tensor, Tensor};
    use crate::tensor::{ChannelQuant, TensorInfo};

    fn dequantized(input: Tensor) -> Result<Vec<f32>, OpError> {
        let out = call(&DEQUANTIZE, &[Some(input)], &[TensorInfo::new(TENSOR_FLOAT32, &[])])?.remove(0);
        Ok(bytemuck::cast_slice(&out.data).to_vec())
    }

    #[test]
    fn quantizes_with_halves_away_from_zero() {
        let input = f32s(&[6], &[0.25, -0.25, 0.2, 1e9, f32::NEG_INFINITY, f32::NAN]);
        let run = |ty, zero| {
            let out = TensorInfo::quantised(ty, &[], 0.5, zero);
            call(&QUANTIZE, &[Some(input.clone())], &[out]).unwrap().remove(0).data.to_vec()
        };
        assert_eq!(run(TENSOR_QUANT8_ASYMM, 100), [101, 99, 100, 255, 0, 100]);
        let signed: Vec<i8> = bytemuck::cast_vec(run(TENSOR_QUANT8_ASYMM_SIGNED, -1));
        assert_eq!(signed, [0, -2, -1, 127, -128, -1]);
    }

    #[test]
    fn dequantizes() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[2], 0.5, 10);
        assert_eq!(dequantized(tensor(info, &[0u8, 255])), Ok(vec![-5.0, 122.5]));
        let info = TensorInfo::quantised(TENSOR_QUANT8_SYMM, &[2], 0.5, 0);
        assert_eq!(dequantized(tensor(info, &[-128i8, 1])), Ok(vec![-64.0, 0.5]));
    }

    #[test]
    fn channels_have_their_own_scales() {
        let per_channel = |scales: &[f32], dim| TensorInfo {
            channel_quant: Some(ChannelQuant { scales: scales.into(), dim }),
            ..TensorInfo::new(TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 2, 1])
        };
        let run = |scales, dim| dequantized(tensor(per_channel(scales, dim), &[1i8, 2, 3, -4]));
        assert_eq!(run(&[0.5, 2.0], 0), Ok(vec![0.5, 1.0, 6.0, -8.0]));
        assert_eq!(run(&[0.5, 2.0], 1), Ok(vec![0.5, 4.0, 1.5, -8.0]));
        assert!(run(&[0.5], 1).is_err() && run(&[0.5], 7).is_err());
        let empty = [0, 2, i32::MAX as u32, i32::MAX as u32];
        let info = TensorInfo { dims: empty[..].into(), ..per_channel(&[0.5, 2.0], 1) };
        assert_eq!(dequantized(tensor(info, &[0i8; 0])), Ok(vec![]));
    }
}
