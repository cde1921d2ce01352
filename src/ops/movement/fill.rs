//! FILL: a tensor of one value.

use super::steer::vector;
use crate::ops::signature::{is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

pub static FILL: Operation = Operation {
    ty: OperationType::FILL,
    doc: "makes a tensor of given dimensions and one value",
    signatures: &[Signature::new(
        &[
            Row(4, &[TENSOR_FLOAT16, FLOAT16]),
            Row(4, &[TENSOR_FLOAT32, FLOAT32]),
            Row(4, &[TENSOR_INT32, INT32]),
        ],
        &[is("dimensions", TENSOR_INT32), var("value", 1)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let dims = vector(args, 0)?;
    if dims.is_empty() {
        return Err(OpError::failed("a tensor has at least one dimension"));
    }
    let dim =
        |&dim: &i32| u32::try_from(dim).map_err(|_| OpError::failed(format!("dimension {dim} is negative")));
    Ok(vec![dims.iter().map(dim).collect::<Result<_, _>>()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    fill(args, args.get(1)?.bytes()?, outs[0].data)
}

/// Fills `to` with the element `value`.
pub fn fill(args: &Args, value: &[u8], to: &mut [u8]) -> Result<(), OpError> {
    if value.is_empty() {
        return Err(OpError::failed("empty value"));
    }
    for chunk in to.chunks_mut(value.len() << 16) {
        chunk.chunks_exact_mut(value.len()).for_each(|element| element.copy_from_slice(value));
        args.interrupt.yield_point()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, float, i32s};
    use crate::tensor::TensorInfo;

    fn filled(dims: &[i32]) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let inputs = [Some(i32s(&[dims.len() as u32], dims)), Some(float(2.5))];
        let out = call(&FILL, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])?.remove(0);
        Ok((out.dims.to_vec(), bytemuck::cast_slice(&out.data).to_vec()))
    }

    #[test]
    fn fills() {
        assert_eq!(filled(&[2, 1]), Ok((vec![2, 1], vec![2.5, 2.5])));
        assert_eq!(filled(&[0, 7]), Ok((vec![0, 7], vec![])));
    }

    #[test]
    fn refuses_hostile_dimensions() {
        for dims in [&[-1][..], &[i32::MIN, 2], &[i32::MAX, i32::MAX], &[]] {
            assert!(filled(dims).is_err(), "{dims:?}");
        }
    }
}
