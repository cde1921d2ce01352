//! MAX_POOL_2D: the largest value of each window; padding never wins.

use super::geometry::{pool_floats, pool_integers, shapes};
use super::{signatures, ROWS};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run};

pub static MAX_POOL_2D: Operation = Operation {
    ty: OperationType::MAX_POOL_2D,
    doc: "the largest value of each window",
    signatures: &signatures(ROWS),
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let out = &mut outs[0];
    if out.info.ty.is_float() {
        // A NaN wins and stays.
        let larger = |max: f32, x: f32| if x > max || x.is_nan() { x } else { max };
        return pool_floats(args, out, f32::NEG_INFINITY, larger, |max, _| max);
    }
    pool_integers(args, out, i32::MIN, i32::max, |max, _| max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, int, tensor};
    use crate::tensor::{OperandType::*, TensorInfo};

    #[test]
    fn padding_never_wins() {
        let mut inputs = vec![f32s(&[1, 1, 2, 1], &[-5.0, -2.0])];
        inputs.extend([1, 1, 0, 0, 1, 1, 2, 1, 0].map(int));
        let out = call_simple::<f32>(&MAX_POOL_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 1, 3, 1], vec![-5.0, -2.0, -2.0])));
    }

    #[test]
    fn the_activation_clamps_in_the_outputs_units() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 1, 3, 1], 0.5, 100);
        let mut inputs = vec![tensor(info, &[90u8, 95, 250])];
        inputs.extend([2, 1, 1, 2, 1, 3].map(int));
        let out = call_simple::<u8>(&MAX_POOL_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 1, 2, 1], vec![100, 112])));
    }
}
