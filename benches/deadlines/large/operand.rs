//! The operands that slots become by what they are given, and values for them.

use super::given::Given::{self, *};
use nnhal::memory::AlignedBuf;
use nnhal::model::{Constant, Lifetime, Operand, OperationKind};
use nnhal::ops::{evaluate, signature, Arg, Args, NeverInterrupted, OpError, OperationType};
use nnhal::tensor::{ChannelQuant, OperandType, TensorInfo};
use std::sync::Arc;
use OperandType::*;
use OperationType::*;

/// Bytes for an output whose dimensions only the evaluation tells.
const UNKNOWN_OUTPUT: usize = 64 << 20;

/// The operand for a slot; those before it are there.
pub fn operand(ty: OperationType, slot: &str, of: OperandType, given: &Given, before: &[Operand]) -> Operand {
    let dims = match given {
        Tensor(dims) | Weights(dims) | Boxes(dims) | Numbers(dims, _) => &dims[..],
        Scalar(_) | Omitted => &[],
    };
    let mut info = quantised(TensorInfo::new(of, dims));
    if let Boxes(_) = given {
        (info.scale, info.zero_point) = if info.scale == 0.0 { (0.0, 0) } else { (0.125, 0) };
    }
    if let (TENSOR_QUANT8_SYMM_PER_CHANNEL, [channels, .., last]) = (of, dims) {
        let dim = if ty == DEPTHWISE_CONV_2D { 3 } else { 0 };
        let scales = vec![1.0 / 128.0; if dim == 3 { *last } else { *channels } as usize];
        info = TensorInfo {
            channel_quant: Some(ChannelQuant { scales: scales.into(), dim }),
            scale: 0.0,
            ..info
        };
    }
    if slot.ends_with("bias") && of == TENSOR_INT32 {
        let filter_scale = match before[1].info.channel_quant {
            Some(_) => 0.0,
            None => before[1].info.scale,
        };
        info.scale = before[0].info.scale * filter_scale;
    }
    let lifetime = match given {
        Tensor(_) | Boxes(_) => Lifetime::Input,
        Omitted => Lifetime::NoValue,
        Weights(_) => constant(&whole(&info)),
        Scalar(x) => constant(&scalar(of, *x)),
        Numbers(_, numbers) => constant(bytemuck::cast_slice(numbers)),
    };
    Operand { info, lifetime, extension: None }
}

pub fn constant(bytes: &[u8]) -> Lifetime {
    Lifetime::Constant(Constant::Private(Arc::new(AlignedBuf::copy_of(bytes).expect("memory"))))
}

fn scalar(ty: OperandType, x: f32) -> Vec<u8> {
    match ty {
        BOOL => vec![u8::from(x != 0.0)],
        FLOAT16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        FLOAT32 => x.to_le_bytes().to_vec(),
        _ => (x as i32).to_le_bytes().to_vec(),
    }
}

/// `info` with a scale and zero point that are usual for its type.
pub fn quantised(info: TensorInfo) -> TensorInfo {
    let (scale, zero_point) = match info.ty {
        TENSOR_QUANT8_ASYMM => (1.0 / 128.0, 128),
        TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM => (1.0 / 128.0, 0),
        TENSOR_QUANT16_ASYMM => (0.125, 0),
        TENSOR_QUANT16_SYMM => (1.0 / 2048.0, 0),
        _ => (0.0, 0),
    };
    TensorInfo { scale, zero_point, ..info }
}

/// An output without dimensions.
pub fn output_info(ty: OperationType, slot: &str, of: OperandType, first: &TensorInfo) -> TensorInfo {
    let mut info = quantised(TensorInfo::new(of, &[]));
    if first.ty == of {
        (info.scale, info.zero_point) = (first.scale, first.zero_point);
    }
    if of.is_quant8_asymm() {
        let least = if of == TENSOR_QUANT8_ASYMM { 0 } else { -128 };
        (info.scale, info.zero_point) = match ty {
            LOGISTIC | SOFTMAX => (1.0 / 256.0, least),
            TANH | L2_NORMALIZATION => (1.0 / 128.0, least + 128),
            CONV_2D | DEPTHWISE_CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D | FULLY_CONNECTED => {
                (1.0, least)
            }
            _ => (info.scale, info.zero_point),
        };
    }
    if slot == "hits" {
        (info.scale, info.zero_point) = (1.0, 0);
    }
    info
}

/// What a call is, by its operands.
pub fn kind(
    ty: OperationType,
    operands: &[Operand],
    outputs: &[TensorInfo],
) -> Result<OperationKind, String> {
    let operation = ty.operation().ok_or("unknown")?;
    let seen = operands.iter().map(|operand| match operand.lifetime {
        Lifetime::NoValue => signature::Operand::Omitted(None),
        _ => signature::Operand::Present(&operand.info),
    });
    let outs: Vec<_> = outputs.iter().map(signature::Operand::Present).collect();
    let found = signature::find(operation.signatures, &seen.collect::<Vec<_>>(), &outs)?;
    Ok(OperationKind::Known { operation, signature_index: found.signature_index })
}

/// Checks a call as the driver does; gives the sizes of its outputs.
pub fn checked(
    kind: &OperationKind,
    operands: &[Operand],
    outputs: &[TensorInfo],
) -> Result<Vec<usize>, String> {
    let &OperationKind::Known { operation, signature_index } = kind else { return Err("unknown".into()) };
    let values = operands.iter().map(|operand| match &operand.lifetime {
        Lifetime::Constant(constant) => constant.bytes().map(Some),
        _ => Ok(None),
    });
    let values = values.collect::<Result<Vec<_>, _>>().map_err(|why| why.to_string())?;
    let inputs = operands.iter().zip(&values).map(|(operand, value)| match operand.lifetime {
        Lifetime::NoValue => None,
        _ => Some(Arg { info: &operand.info, data: value.as_ref().map(|bytes| &bytes[..]) }),
    });
    let inputs: Vec<_> = inputs.collect();
    let args = Args { signature_index, inputs: &inputs, outputs, interrupt: &NeverInterrupted };
    (operation.check)(&args).map_err(|why| why.to_string())?;
    let sizes = match evaluate::shapes(operation, &args) {
        Ok(dims) => outputs
            .iter()
            .zip(&dims)
            .map(|(info, dims)| {
                evaluate::with_dims(info, dims).byte_size().ok_or_else(|| "too large".to_string())
            })
            .collect::<Result<_, _>>()?,
        Err(OpError::Unresolved) => vec![UNKNOWN_OUTPUT; outputs.len()],
        Err(why) => return Err(why.to_string()),
    };
    Ok(sizes)
}

/// Values for all of a tensor.
fn whole(info: &TensorInfo) -> Vec<u8> {
    pattern(info, false).into_iter().cycle().take(info.byte_size().expect("a size")).collect()
}

/// Values that repeat: positive, of some spread; for boxes their corners.
pub fn pattern(info: &TensorInfo, boxes: bool) -> Vec<u8> {
    const PERIOD: u32 = 3 << 14;
    let value = |i: u32| {
        let spread = (i.wrapping_mul(2_654_435_761) >> 8) % 1000;
        match boxes {
            // Left, top, right, bottom: in eighths where they are integers.
            true => (spread % 100 + if i % 4 < 2 { 0 } else { 128 }) as f32,
            false => (spread + 1) as f32 / 1000.0,
        }
    };
    let values = (0..PERIOD).map(value);
    match info.ty {
        TENSOR_FLOAT32 => values.flat_map(f32::to_le_bytes).collect(),
        TENSOR_FLOAT16 => values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
        TENSOR_INT32 => values.flat_map(|x| (1 + (x * 100.0) as i32).to_le_bytes()).collect(),
        TENSOR_BOOL8 => values.map(|x| u8::from(x > 0.5)).collect(),
        TENSOR_QUANT16_ASYMM | TENSOR_QUANT16_SYMM => {
            values.flat_map(|x| (if boxes { x * 8.0 } else { x * 1000.0 } as u16).to_le_bytes()).collect()
        }
        _ => values.map(|x| (x * 127.0) as u8).collect(),
    }
}
