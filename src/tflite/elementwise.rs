//! Arithmetic, comparisons and functions of one element each.

use super::call::{dims, is_quantised, options, Call, Domain, Mapped};
use super::error::Refusal;
use super::graph::{Quantisation, Tensor, TensorType};
use super::schema::Options;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};

/// ADD, SUB, MUL and DIV: two inputs and a fused activation.
pub fn arithmetic(call: &mut Call, ty: OperationType) -> Mapped {
    let code = options!(call, Add | Sub | Mul | Div(o) => o.activation, or 0);
    if ty == OperationType::DIV && call.tensor(0)?.ty == TensorType::Int32 {
        return Err("NNAPI's DIV of integers rounds down, this one to zero".into());
    }
    let activation = call.activation(code)?;
    if code != 0 && call.tensor(0)?.ty == TensorType::Int32 {
        return clamped(call, ty, code);
    }
    let domain = arithmetic_domain(call, ty)?;
    call.emit_in(domain, ty, 2, &[activation])
}

/// NNAPI fuses no activation with arithmetic of integers.
fn clamped(call: &mut Call, ty: OperationType, activation: i8) -> Mapped {
    let (least, most) = match activation {
        1 => (0, None),
        2 => (-1, Some(1)),
        _ => (0, Some(6)),
    };
    let (a, b, none) = (call.input(0)?, call.input(1)?, call.activation(0)?);
    let dims = dims(call.output_tensor(0)?)?;
    let result = call.temporary_like(a, &dims);
    call.emit(ty, &[a, b, none], &[result]);
    let mut operands = [result, call.builder().ints(&[1], &[least])];
    let Some(most) = most else {
        return call.emit_to_output(Domain::Own, OperationType::MAXIMUM, &operands);
    };
    let raised = call.temporary_like(a, &dims);
    call.emit(OperationType::MAXIMUM, &operands, &[raised]);
    operands = [raised, call.builder().ints(&[1], &[most])];
    call.emit_to_output(Domain::Own, OperationType::MINIMUM, &operands)
}

/// Where an operation of two quantised inputs can be computed: NNAPI has no quantised DIV, and MUL only where the output
/// is coarser than the product of the inputs.
fn arithmetic_domain(call: &Call, ty: OperationType) -> Result<Domain, Refusal> {
    let scales = (scale(call.tensor(0)?), scale(call.tensor(1)?), scale(call.output_tensor(0)?));
    Ok(match (ty, scales) {
        (OperationType::DIV, _) => Domain::Float,
        (OperationType::MUL, (Some(a), Some(b), Some(out))) if out <= a * b => Domain::Float,
        _ => Domain::Own,
    })
}

fn scale(tensor: &Tensor) -> Option<f32> {
    match tensor.quantisation {
        Quantisation::Tensor { scale, .. } if is_quantised(tensor) => Some(scale),
        _ => None,
    }
}

/// Two inputs and nothing else.
pub fn binary(call: &mut Call, ty: OperationType) -> Mapped {
    call.emit_in(Domain::Own, ty, 2, &[])
}

/// Two inputs and nothing else; NNAPI has it in floats only.
pub fn float_binary(call: &mut Call, ty: OperationType) -> Mapped {
    call.emit_in(Domain::Float, ty, 2, &[])
}

/// One input and nothing else.
pub fn unary(call: &mut Call, ty: OperationType) -> Mapped {
    call.emit_in(Domain::Own, ty, 1, &[])
}

/// One input and nothing else; NNAPI does not have it quantised.
pub fn float_unary(call: &mut Call, ty: OperationType) -> Mapped {
    call.emit_in(Domain::Float, ty, 1, &[])
}

/// The activations that NNAPI computes only where the output is quantised as the input is.
pub fn relu(call: &mut Call, ty: OperationType) -> Mapped {
    let domain = if same_quantisation(call)? { Domain::Own } else { Domain::Float };
    call.emit_in(domain, ty, 1, &[])
}

/// Whether the output is quantised as input 0 is.
pub fn same_quantisation(call: &Call) -> Result<bool, Refusal> {
    Ok(call.tensor(0)?.quantisation == call.output_tensor(0)?.quantisation)
}

pub fn elu(call: &mut Call) -> Mapped {
    let alpha = call.builder().float(1.0);
    call.emit_in(Domain::Float, OperationType::ELU, 1, &[alpha])
}

/// LEAKY_RELU is PRELU with one alpha for all.
pub fn leaky_relu(call: &mut Call) -> Mapped {
    let alpha = options!(call, LeakyRelu(o) => o.alpha);
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let alpha = call.builder().constant(info, alpha.to_le_bytes().to_vec());
    call.emit_in(Domain::Float, OperationType::PRELU, 1, &[alpha])
}

/// NNAPI lacks SQUARED_DIFFERENCE: the difference is multiplied with itself. Quantised operands are computed in floats, too,
/// because an 8-bit difference would be rounded once more and squared with its error.
pub fn squared_difference(call: &mut Call) -> Mapped {
    let (mut a, mut b) = (call.float_input(0)?, call.float_input(1)?);
    let scales = (scale(call.tensor(0)?), scale(call.tensor(1)?));
    let step = scales.0.zip(scales.1).map(|(a, b)| a.max(b) / 64.0);
    if let ((Some(a_scale), Some(b_scale)), Some(step)) = (scales, step) {
        (a, b) = (in_steps(call, a, a_scale, step), in_steps(call, b, b_scale, step));
    }
    let none = call.activation(0)?;
    let dims = dims(call.output_tensor(0)?)?;
    let difference = call.temporary_like(a, &dims);
    call.emit(OperationType::SUB, &[a, b, none], &[difference]);
    let Some(step) = step else {
        return call.emit_to_output(Domain::Float, OperationType::MUL, &[difference, difference, none]);
    };
    let square = call.temporary_like(a, &dims);
    call.emit(OperationType::MUL, &[difference, difference, none], &[square]);
    let unit = float_constant(call, step * step);
    call.emit_to_output(Domain::Float, OperationType::MUL, &[square, unit, none])
}

/// `x`, whose scale is `scale`, in whole steps. TensorFlow Lite takes the difference of quantised inputs in 64ths of the
/// coarser one's scale, to which it rounds the finer one; without that, a mean over many squares shows that ours are the
/// more exact. Whole numbers keep the difference exact, so that only the square is rounded.
fn in_steps(call: &mut Call, x: OperandIndex, scale: f32, step: f32) -> OperandIndex {
    let ratio = f64::from(scale) / (f64::from(step) * 128.0);
    // Its fixed-point multiplier rounds to parts of a step first: as many as make the ratio a fraction in [0.5, 1).
    let parts =
        (0..31).map(|e| f32::from(2u8).powi(e)).find(|&parts| ratio * f64::from(parts) >= 0.5).unwrap_or(1.0);
    let in_parts = float_constant(call, parts / step);
    let x = combine(call, OperationType::MUL, x, in_parts);
    let x = rounded(call, x);
    if parts == 1.0 {
        return x;
    }
    // Then to whole steps, halves away from zero.
    let (back, forth) = (float_constant(call, 1.0 / parts), float_constant(call, -1.0 / parts));
    let halves = [back, forth].map(|factor| {
        let scaled = combine(call, OperationType::MUL, x, factor);
        let zero = float_constant(call, 0.0);
        let positive = combine(call, OperationType::MAXIMUM, scaled, zero);
        rounded(call, positive)
    });
    combine(call, OperationType::SUB, halves[0], halves[1])
}

/// `x` rounded to whole numbers, halves up.
fn rounded(call: &mut Call, x: OperandIndex) -> OperandIndex {
    let half = float_constant(call, 0.5);
    let raised = combine(call, OperationType::ADD, x, half);
    let result = like(call, x);
    call.emit(OperationType::FLOOR, &[raised], &[result]);
    result
}

/// `ty` of `x` and `y`, of `x`'s dimensions.
pub fn combine(call: &mut Call, ty: OperationType, x: OperandIndex, y: OperandIndex) -> OperandIndex {
    let result = like(call, x);
    let none = call.builder().int(0);
    let operands = [x, y, none];
    call.emit(ty, if ty == OperationType::MAXIMUM { &operands[..2] } else { &operands }, &[result]);
    result
}

pub fn like(call: &mut Call, x: OperandIndex) -> OperandIndex {
    let dims = call.builder().info(x).dims.clone();
    call.temporary_like(x, &dims)
}

pub fn float_constant(call: &mut Call, value: f32) -> OperandIndex {
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    call.builder().constant(info, value.to_le_bytes().to_vec())
}

/// In [0, 1], by that to [-1, 1] of what is positive.
pub fn relu_0_to_1(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    let positive = like(call, x);
    call.emit(OperationType::RELU, &[x], &[positive]);
    call.emit_to_output(Domain::Float, OperationType::RELU1, &[positive])
}

/// NNAPI rounds down only.
pub fn ceil(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    let (negative, floor) = (like(call, x), like(call, x));
    call.emit(OperationType::NEG, &[x], &[negative]);
    call.emit(OperationType::FLOOR, &[negative], &[floor]);
    call.emit_to_output(Domain::Float, OperationType::NEG, &[floor])
}

/// `1 - 2 * sin(x / 2)^2`, which is the cosine of `x` and errs no more than the sine does.
pub fn cos(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    let factors = [0.5, -2.0, 1.0].map(|value| float_constant(call, value));
    let half = combine(call, OperationType::MUL, x, factors[0]);
    let sine = like(call, x);
    call.emit(OperationType::SIN, &[half], &[sine]);
    let square = combine(call, OperationType::MUL, sine, sine);
    let twice = combine(call, OperationType::MUL, square, factors[1]);
    let none = call.activation(0)?;
    call.emit_to_output(Domain::Float, OperationType::ADD, &[twice, factors[2], none])
}

/// Any number but 0, made large beyond 1 and then clamped to it.
pub fn sign(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    let far = float_constant(call, f32::from_bits(0x7e80_0000)); // 2^126; the smallest number is 2^-149
    let farther = combine(call, OperationType::MUL, x, far);
    let clamped = call.activation(2)?;
    call.emit_to_output(Domain::Float, OperationType::MUL, &[farther, far, clamped])
}

/// What is left of whole numbers: NNAPI's DIV rounds down.
pub fn floor_mod(call: &mut Call) -> Mapped {
    if call.tensor(0)?.ty != TensorType::Int32 {
        return Err("a quotient of floats is rounded, which leaves something else".into());
    }
    let (a, b, none) = (call.input(0)?, call.input(1)?, call.activation(0)?);
    let dims = dims(call.output_tensor(0)?)?;
    let (quotient, whole) = (call.temporary_like(a, &dims), call.temporary_like(a, &dims));
    call.emit(OperationType::DIV, &[a, b, none], &[quotient]);
    call.emit(OperationType::MUL, &[quotient, b, none], &[whole]);
    call.emit_to_output(Domain::Own, OperationType::SUB, &[a, whole, none])
}

/// One ADD after the other.
pub fn add_n(call: &mut Call) -> Mapped {
    let (mut sum, none) = (call.input(0)?, call.activation(0)?);
    let last = call.operator.inputs.len() - 1;
    for i in 1..last {
        let next = call.input(i)?;
        sum = combine(call, OperationType::ADD, sum, next);
    }
    let next = call.input(last)?;
    call.emit_to_output(Domain::Own, OperationType::ADD, &[sum, next, none])
}

pub fn square(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    let none = call.activation(0)?;
    call.emit_to_output(Domain::Float, OperationType::MUL, &[x, x, none])
}

/// NNAPI's DIV of integers rounds down already.
pub fn floor_div(call: &mut Call) -> Mapped {
    let none = call.activation(0)?;
    if call.tensor(0)?.ty == TensorType::Int32 {
        return call.emit_in(Domain::Own, OperationType::DIV, 2, &[none]);
    }
    let (a, b) = (call.float_input(0)?, call.float_input(1)?);
    let dims = dims(call.output_tensor(0)?)?;
    let quotient = call.temporary_like(a, &dims);
    call.emit(OperationType::DIV, &[a, b, none], &[quotient]);
    call.emit_to_output(Domain::Float, OperationType::FLOOR, &[quotient])
}

/// QUANTIZE takes floats, or integers to be quantised in another way.
pub fn quantize(call: &mut Call) -> Mapped {
    let x = call.float_input(0)?;
    call.emit_to_output(Domain::Own, OperationType::QUANTIZE, &[x])
}

/// Constants of half floats up to this size become floats here.
const FEW_HALVES: usize = 1 << 10;

/// DEQUANTIZE of floats of 16 bits is a CAST. Weights often are such, which the driver widens as it packs them; of few
/// constants the floats are the smaller model.
pub fn dequantize(call: &mut Call) -> Mapped {
    let tensor = call.tensor(0)?;
    if tensor.ty != TensorType::Float16 {
        call.state.widens_weights |= tensor.data.is_some();
        return call.emit_in(Domain::Own, OperationType::DEQUANTIZE, 1, &[]);
    }
    if let Some(data) = tensor.data.as_ref().filter(|data| data.len() <= FEW_HALVES) {
        let info = super::call::info(tensor)?;
        super::call::check_size(tensor, &info, data)?;
        let halves = data.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]));
        let floats = halves.flat_map(|x| x.to_f32().to_le_bytes()).collect();
        if call.bind_output(0, TensorInfo::new(OperandType::TENSOR_FLOAT32, &info.dims), floats)? {
            return Ok(());
        }
    }
    call.emit_in(Domain::Own, OperationType::CAST, 1, &[])
}
