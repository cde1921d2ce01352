//! Operators whose results are known as soon as the model is read and the dimensions of all tensors are known.

use super::call::{info, Call, Mapped};
use super::graph::TensorType;

pub fn shape(call: &mut Call) -> Mapped {
    let dims: Vec<i32> = call.tensor(0)?.dims.iter().map(|&dim| dim as i32).collect();
    give_ints(call, &dims)
}

pub fn rank(call: &mut Call) -> Mapped {
    let rank = call.tensor(0)?.dims.len() as i32;
    give_ints(call, &[rank])
}

fn give_ints(call: &mut Call, values: &[i32]) -> Mapped {
    let output = call.output_tensor(0)?;
    if output.ty != TensorType::Int32 {
        return Err(format!("its output is {}, which NNAPI lacks", output.ty).into());
    }
    if info(output)?.byte_size() != Some(4 * values.len()) {
        return Err(format!("its output has not {} elements", values.len()).into());
    }
    call.give(0, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// A sparse constant, which was made whole when the model was read.
pub fn densify(call: &mut Call) -> Mapped {
    let tensor = call.tensor(0)?;
    let (from, to) = (info(tensor)?, info(call.output_tensor(0)?)?);
    if (from.ty, &from.dims) != (to.ty, &to.dims) {
        return Err("its output has another type or other dimensions than its input".into());
    }
    let bytes = tensor.data.as_deref().ok_or("its input must be a constant")?;
    call.give(0, bytes.to_vec())
}

pub fn zeros_like(call: &mut Call) -> Mapped {
    let output = info(call.output_tensor(0)?)?;
    let size = output.byte_size().ok_or("its output is too large")?;
    // The byte that stands for 0 in a quantised tensor is its zero point.
    let zero = if output.ty.is_quant8_asymm() { output.zero_point as u8 } else { 0 };
    call.give(0, vec![zero; size])
}
