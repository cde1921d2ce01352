//! Operations on one input. 8-bit elements have but 256 values: whatever the operation, its plain evaluation on all of
//! them makes a table.

use super::functions::Element;
use super::half::{narrow, widen};
use super::loops::map;
use super::math::{exp, exp_m1, logistic, tanh};
use super::round::round;
use super::table::Table;
use super::{Kernel, Source};
use crate::backend::cpu::kernels::vector::{fused, Level};
use crate::memory::AlignedBuf;
use crate::ops::elementwise::hard_swish;
use crate::ops::{evaluate, Arg, Args, NeverInterrupted, Operation, OperationType};
use crate::tensor::requant::{within, Activation};
use crate::tensor::{OperandType, OperandType::*, TensorInfo};
use smallvec::smallvec;

pub(super) fn select(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    let (input, output) = (args.get(0).ok()?, args.output(0).ok()?);
    if !is_unary(operation.ty) || output.dims[..] != *input.dims() {
        return None;
    }
    match (operation.ty, input.ty()) {
        (OperationType::QUANTIZE, TENSOR_FLOAT32) => quantise(output, |x| x),
        (OperationType::QUANTIZE, TENSOR_FLOAT16) => quantise(output, widen),
        (OperationType::DEQUANTIZE, ty) if ty != TENSOR_QUANT8_SYMM_PER_CHANNEL => {
            dequantise(&input, output.ty)
        }
        (OperationType::DEQUANTIZE, _) => None,
        (OperationType::CAST, ty) if is_wide(ty) => cast(ty, output.ty),
        (_, ty) if !is_wide(ty) => table(operation, args, source),
        (ty, TENSOR_INT32) => match ty {
            OperationType::ABS => map(200, i32::wrapping_abs),
            OperationType::NEG => map(200, i32::wrapping_neg),
            _ => None,
        },
        (ty, _) => floats(ty, args),
    }
}

pub(super) fn is_unary(ty: OperationType) -> bool {
    use OperationType::*;
    const UNARY: [OperationType; 18] = [
        ABS,
        CAST,
        DEQUANTIZE,
        ELU,
        EXP,
        FLOOR,
        HARD_SWISH,
        LOG,
        LOGICAL_NOT,
        LOGISTIC,
        NEG,
        QUANTIZE,
        RELU,
        RELU1,
        RELU6,
        RSQRT,
        SIN,
        SQRT,
    ];
    ty == TANH || UNARY.contains(&ty)
}

/// Whether elements have more than a byte.
fn is_wide(ty: OperandType) -> bool {
    ty.element_size() != Some(1)
}

/// A kernel that looks elements up, by the plain evaluation of all bytes.
fn table(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    let size = args.output(0).ok()?.ty.element_size()?;
    let results = match source.runs() {
        // It will not run: any table does.
        false => AlignedBuf::zeroed(256 * size)?,
        true => {
            let info = TensorInfo { dims: smallvec![256], ..args.get(0).ok()?.info.clone() };
            let bytes: Vec<u8> = (0..=u8::MAX).collect();
            let mut inputs = args.inputs.to_vec();
            inputs[0] = Some(Arg { info: &info, data: Some(&bytes) });
            let call = Args { inputs: &inputs, interrupt: &NeverInterrupted, ..*args };
            evaluate::run(operation, &call).ok()?.pop()?.data
        }
    };
    match size {
        1 => Some(Box::new(Table::new(results[..].try_into().ok()?))),
        2 => look_up::<u16>(&results),
        4 => look_up::<u32>(&results),
        _ => None,
    }
}

fn look_up<T: Element>(results: &[u8]) -> Option<Box<dyn Kernel>> {
    let table: [T; 256] = bytemuck::try_cast_slice(results).ok()?.try_into().ok()?;
    map(400, move |byte: u8| table[usize::from(byte)])
}

fn floats(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    const FAST: usize = 200;
    const EXPONENTIAL: usize = 700;
    const CALL: usize = 6000;
    let level = Level::detect();
    match ty {
        OperationType::ABS => either(args, FAST, f32::abs),
        OperationType::NEG => either(args, FAST, |x| -x),
        OperationType::FLOOR => either(args, FAST, f32::floor),
        OperationType::SQRT => either(args, FAST, f32::sqrt),
        OperationType::RSQRT => either(args, FAST, |x| 1.0 / x.sqrt()),
        OperationType::RELU => clamp(args, Activation::Relu),
        OperationType::RELU1 => clamp(args, Activation::Relu1),
        OperationType::RELU6 => clamp(args, Activation::Relu6),
        OperationType::HARD_SWISH => either(args, FAST, hard_swish),
        OperationType::ELU => {
            let alpha = args.f32(1).ok()?;
            fused!(
                level,
                either(args, EXPONENTIAL, move |x| x.max(0.0) + (alpha * exp_m1::<FUSED>(x)).min(0.0))
            )
        }
        OperationType::EXP => fused!(level, either(args, EXPONENTIAL, exp::<FUSED>)),
        OperationType::LOGISTIC => fused!(level, either(args, EXPONENTIAL, logistic::<FUSED>)),
        OperationType::TANH => fused!(level, either(args, EXPONENTIAL, tanh::<FUSED>)),
        OperationType::LOG => either(args, CALL, f32::ln),
        OperationType::SIN => either(args, CALL, f32::sin),
        _ => None,
    }
}

/// `f` of a float tensor of either width.
fn either(
    args: &Args,
    picoseconds: usize,
    f: impl Fn(f32) -> f32 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    match args.get(0).ok()?.ty() {
        TENSOR_FLOAT32 => map(picoseconds, f),
        TENSOR_FLOAT16 => map(picoseconds + 200, move |x| narrow(f(widen(x)))),
        _ => None,
    }
}

/// With the same bits as [`Activation::apply`].
fn clamp(args: &Args, activation: Activation) -> Option<Box<dyn Kernel>> {
    let range = activation.float_range();
    either(args, 200, move |x| within(range, x))
}

/// `real` makes a number of an element.
fn quantise<S: Element>(
    out: &TensorInfo,
    real: impl Fn(S) -> f32 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let byte = quantiser(out)?;
    map(300, move |x| byte(real(x)))
}

/// What makes the byte of such a tensor of a number, as [`crate::tensor::requant::quantise`] does.
pub fn quantiser(out: &TensorInfo) -> Option<impl Fn(f32) -> u8 + Send + Sync + 'static> {
    let (scale, zero) = (out.scale, out.zero_point);
    let (lo, hi) = out.ty.integer_range()?;
    // Results beyond the type are clamped anyway: no zero point is that far away.
    const FAR: f32 = 1024.0;
    if !(-256..=256).contains(&zero) {
        return None;
    }
    Some(move |x: f32| {
        let units = x / scale;
        let units = if units.is_nan() { 0.0 } else { units };
        (round(units.clamp(-FAR, FAR)) + zero).clamp(lo, hi) as u8
    })
}

fn dequantise(input: &Arg, to: OperandType) -> Option<Box<dyn Kernel>> {
    let (scale, zero) = (input.scale(), input.zero_point());
    match (input.ty() == TENSOR_QUANT8_ASYMM, to) {
        (true, TENSOR_FLOAT32) => map(200, move |q: u8| i32::from(q).wrapping_sub(zero) as f32 * scale),
        (false, TENSOR_FLOAT32) => map(200, move |q: i8| i32::from(q).wrapping_sub(zero) as f32 * scale),
        (true, TENSOR_FLOAT16) => {
            map(400, move |q: u8| narrow(i32::from(q).wrapping_sub(zero) as f32 * scale))
        }
        (false, TENSOR_FLOAT16) => {
            map(400, move |q: i8| narrow(i32::from(q).wrapping_sub(zero) as f32 * scale))
        }
        _ => None,
    }
}

/// From a type of more than a byte.
fn cast(from: OperandType, to: OperandType) -> Option<Box<dyn Kernel>> {
    let low_byte = |x: i32| x.clamp(0, 255) as u8;
    match (from, to) {
        (TENSOR_FLOAT32, TENSOR_INT32) => map(200, |x: f32| x as i32),
        (TENSOR_FLOAT32, TENSOR_FLOAT16) => map(300, narrow),
        (TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM) => map(200, move |x: f32| low_byte(x as i32)),
        (TENSOR_FLOAT16, TENSOR_INT32) => map(300, |x| widen(x) as i32),
        (TENSOR_FLOAT16, TENSOR_FLOAT32) => map(200, widen),
        (TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM) => map(300, move |x| low_byte(widen(x) as i32)),
        // A NaN becomes a quiet one here too.
        (TENSOR_FLOAT16, TENSOR_FLOAT16) => map(300, |x| narrow(widen(x))),
        (TENSOR_INT32, TENSOR_FLOAT32) => map(200, |x: i32| x as f32),
        (TENSOR_INT32, TENSOR_FLOAT16) => map(300, |x: i32| narrow(x as f32)),
        (TENSOR_INT32, TENSOR_QUANT8_ASYMM) => map(200, low_byte),
        (from, to) if from == to => match from.element_size()? {
            2 => map(100, |bits: u16| bits),
            4 => map(200, |bits: u32| bits),
            _ => None,
        },
        _ => None,
    }
}
