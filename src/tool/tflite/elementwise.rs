//! Arithmetic, comparisons and functions of one element each.

use super::call::{dims, is_quantised, options, Call, Domain, Mapped};
use super::error::Refusal;
use super::graph::{Quantisation, Tensor, TensorType};
use super::schema::OptionsRef;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use crate::tool::builder::OperandIndex;

/// ADD, SUB, MUL and DIV: two inputs and a fused activation.
pub fn arithmetic(call: &mut Call, ty: OperationType) -> Mapped {
    let code = options!(call, Add | Sub | Mul | Div(o) => o.activation()?, or 0);
    if ty == OperationType::DIV && call.tensor(0)?.ty == TensorType::Int32 {
        return Err("NNAPI's DIV of integers rounds down, this one to zero".into());
    }
    let domain = arithmetic_domain(call, ty)?;
    let activation = call.activation(code)?;
    call.emit_in(domain, ty, 2, &[activation])
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
    let alpha = options!(call, LeakyRelu(o) => o.alpha()?);
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let alpha = call.builder().constant(info, alpha.to_le_bytes().to_vec());
    call.emit_in(Domain::Float, OperationType::PRELU, 1, &[alpha])
}

/// NNAPI lacks SQUARED_DIFFERENCE: the difference is multiplied with itself. In floats even where it is quantised, as an
/// 8-bit difference would be rounded once more and squared with its error.
pub fn squared_difference(call: &mut Call) -> Mapped {
    let (mut a, mut b) = (call.float_input(0)?, call.float_input(1)?);
    if let (Some(a_scale), Some(b_scale)) = (scale(call.tensor(0)?), scale(call.tensor(1)?)) {
        let step = a_scale.max(b_scale) / 64.0;
        a = if a_scale < b_scale { stepped(call, a, step) } else { a };
        b = if b_scale < a_scale { stepped(call, b, step) } else { b };
    }
    let none = call.activation(0)?;
    let dims = dims(call.output_tensor(0)?)?;
    let difference = call.temporary_like(a, &dims);
    call.emit(OperationType::SUB, &[a, b, none], &[difference]);
    call.emit_to_output(Domain::Float, OperationType::MUL, &[difference, difference, none])
}

/// `x` in whole steps. TensorFlow Lite takes the difference of quantised inputs in 64ths of the coarser one's scale, to
/// which it rounds the finer one; without that, a mean over many squares shows that ours are the more exact.
fn stepped(call: &mut Call, x: OperandIndex, step: f32) -> OperandIndex {
    let dims = call.builder().info(x).dims.clone();
    let mut apply = |ty: OperationType, x: OperandIndex, constant: Option<f32>| {
        let result = call.temporary_like(x, &dims);
        let Some(constant) = constant else {
            call.emit(ty, &[x], &[result]);
            return result;
        };
        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
        let constant = call.builder().constant(info, constant.to_le_bytes().to_vec());
        let none = call.builder().int(0);
        call.emit(ty, &[x, constant, none], &[result]);
        result
    };
    let steps = apply(OperationType::MUL, x, Some(1.0 / step));
    let steps = apply(OperationType::ADD, steps, Some(0.5));
    let steps = apply(OperationType::FLOOR, steps, None);
    apply(OperationType::MUL, steps, Some(step))
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

/// DEQUANTIZE of floats of 16 bits, as weights often are, becomes a constant of 32 bits here.
pub fn dequantize(call: &mut Call) -> Mapped {
    let tensor = call.tensor(0)?;
    if tensor.ty != TensorType::Float16 {
        return call.emit_in(Domain::Own, OperationType::DEQUANTIZE, 1, &[]);
    }
    if let Some(data) = tensor.data {
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
