//! Operands with values, and calls of operations.

use super::property::count_success;
use super::{
    is_quantised, runs_in_a_model, shapes_resolve_late, spoiled_calls, validates, Nd, OperandType,
    OperationType, Random, TensorInfo,
};
use half::f16;
use nnhal::memory::AlignedBuf;
use nnhal::ops::{evaluate::evaluate, Arg, NeverInterrupted, OpError};
use smallvec::smallvec;
use OperandType::*;

#[derive(Debug)]
pub struct Value {
    pub info: TensorInfo,
    pub data: AlignedBuf,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Value { info: self.info.clone(), data: AlignedBuf::copy_of(&self.data).unwrap() }
    }
}

impl Value {
    /// Real values in a float type, rounded to it.
    pub fn of_reals(info: TensorInfo, values: &[f64]) -> Self {
        let bytes: Vec<u8> = match info.ty {
            TENSOR_FLOAT16 | FLOAT16 => {
                values.iter().flat_map(|&x| f16::from_f64(x).to_bits().to_le_bytes()).collect()
            }
            _ => values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
        };
        Value { info, data: AlignedBuf::copy_of(&bytes).unwrap() }
    }

    /// Integers as they lie in memory.
    pub fn of_raw(info: TensorInfo, values: &[i64]) -> Self {
        let size = info.ty.element_size().unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect();
        Value { info, data: AlignedBuf::copy_of(&bytes).unwrap() }
    }

    /// Numbers in the operand's type: raw ones in an integer type, real ones in a float type.
    pub fn of_numbers(info: TensorInfo, values: &[f64]) -> Self {
        if info.ty.is_float() {
            return Value::of_reals(info, values);
        }
        Value::of_raw(info, &values.iter().map(|&x| x as i64).collect::<Vec<_>>())
    }

    /// The operand's type and quantisation, as an output's declaration.
    pub fn like(&self) -> TensorInfo {
        TensorInfo { dims: smallvec![], ..self.info.clone() }
    }

    pub fn dims(&self) -> Vec<usize> {
        self.info.dims.iter().map(|&d| d as usize).collect()
    }

    /// The numbers as they lie in memory: raw integers, or floats.
    pub fn numbers(&self) -> Nd {
        let data = &self.data[..];
        let at: Vec<f64> = match self.info.ty {
            TENSOR_FLOAT32 | FLOAT32 => {
                bytemuck::cast_slice::<u8, f32>(data).iter().map(|&x| x.into()).collect()
            }
            TENSOR_FLOAT16 | FLOAT16 => {
                bytemuck::cast_slice::<u8, f16>(data).iter().map(|&x| x.into()).collect()
            }
            TENSOR_INT32 | INT32 => bytemuck::cast_slice::<u8, i32>(data).iter().map(|&x| x.into()).collect(),
            TENSOR_QUANT16_SYMM => bytemuck::cast_slice::<u8, i16>(data).iter().map(|&x| x.into()).collect(),
            TENSOR_QUANT16_ASYMM => bytemuck::cast_slice::<u8, u16>(data).iter().map(|&x| x.into()).collect(),
            TENSOR_QUANT8_ASYMM | TENSOR_BOOL8 | BOOL => data.iter().map(|&x| x.into()).collect(),
            _ => data.iter().map(|&x| f64::from(x as i8)).collect(),
        };
        Nd { dims: self.dims(), at }
    }

    /// The real numbers that the operand stands for.
    pub fn reals(&self) -> Nd {
        let mut nd = self.numbers();
        if let Some(channels) = &self.info.channel_quant {
            let dim = channels.dim as usize;
            let scaled = Nd::from_fn(&nd.dims, |i| nd.get(i) * f64::from(channels.scales[i[dim]]));
            return scaled;
        }
        if is_quantised(self.info.ty) {
            let (scale, zero) = (f64::from(self.info.scale), f64::from(self.info.zero_point));
            nd.at.iter_mut().for_each(|x| *x = (*x - zero) * scale);
        }
        nd
    }
}

pub fn int(value: i32) -> Value {
    Value::of_raw(TensorInfo::new(INT32, &[]), &[value.into()])
}

/// A one-dimensional INT32 tensor.
pub fn ints(values: &[i32]) -> Value {
    let raw: Vec<i64> = values.iter().map(|&x| x.into()).collect();
    Value::of_raw(TensorInfo::new(TENSOR_INT32, &[values.len() as u32]), &raw)
}

pub fn boolean(value: bool) -> Value {
    Value::of_raw(TensorInfo::new(BOOL, &[]), &[value.into()])
}

pub fn float(value: f64) -> Value {
    Value::of_reals(TensorInfo::new(FLOAT32, &[]), &[value])
}

/// A float scalar as it accompanies tensors of `ty`: FLOAT16 beside TENSOR_FLOAT16, else FLOAT32.
pub fn scalar(ty: OperandType, value: f64) -> Value {
    let ty = if ty == TENSOR_FLOAT16 { FLOAT16 } else { FLOAT32 };
    Value::of_reals(TensorInfo::new(ty, &[]), &[value])
}

/// A call that must succeed; `None` is an input left out. Variants of it with something spoiled must not
/// panic, with something unknown must validate, and in a model must give the same.
#[track_caller]
pub fn call_with(operation: OperationType, inputs: &[Option<&Value>], outputs: &[TensorInfo]) -> Vec<Value> {
    let values = try_call(operation, inputs, outputs).unwrap_or_else(|e| {
        let inputs: Vec<_> = inputs.iter().map(|v| v.map_or("-".into(), describe)).collect();
        panic!("{operation:?}({}): {e}", inputs.join(", "))
    });
    count_success(operation);
    let rules = operation.operation().expect("an operation that the driver has");
    let random = &mut Random::new(seed(inputs));
    spoiled_calls(rules, inputs, outputs, random);
    let results: Vec<TensorInfo> = values.iter().map(|v| v.info.clone()).collect();
    validates(rules, inputs, &results, random);
    shapes_resolve_late(rules, inputs, &results, random);
    runs_in_a_model(operation, inputs, &values, random);
    values
}

/// A call that may fail; `None` is an input left out.
pub fn try_call(
    operation: OperationType,
    inputs: &[Option<&Value>],
    outputs: &[TensorInfo],
) -> Result<Vec<Value>, OpError> {
    let args: Vec<_> = inputs.iter().map(|v| v.map(|v| Arg { info: &v.info, data: Some(&v.data) })).collect();
    let rules = operation.operation().expect("an operation that the driver has");
    let computed = evaluate(rules, &args, outputs, &NeverInterrupted)?;
    let values = computed.into_iter().zip(outputs).map(|(computed, info)| Value {
        info: TensorInfo { dims: computed.dims, ..info.clone() },
        data: computed.data,
    });
    Ok(values.collect())
}

/// A number that depends on the values of a call.
fn seed(inputs: &[Option<&Value>]) -> u64 {
    let bytes = inputs.iter().flatten().flat_map(|v| v.data.iter().take(64));
    bytes.fold(7, |seed: u64, &byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
}

/// A call with all inputs given that must succeed.
#[track_caller]
pub fn call(operation: OperationType, inputs: &[&Value], outputs: &[TensorInfo]) -> Vec<Value> {
    call_with(operation, &inputs.iter().map(|&v| Some(v)).collect::<Vec<_>>(), outputs)
}

/// An operand for a message: its type, and dimensions or small value.
fn describe(value: &Value) -> String {
    let numbers = value.numbers().at;
    if numbers.len() <= 8 && !is_quantised(value.info.ty) {
        return format!("{} {:?} = {numbers:?}", value.info.ty, value.info.dims);
    }
    format!("{} {:?}", value.info.ty, value.info.dims)
}
