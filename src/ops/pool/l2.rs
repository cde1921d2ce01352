//! L2_POOL_2D: the root of each window's mean square, padding left out.

use super::geometry::{pool_floats, shapes};
use super::signatures;
use crate::ops::signature::Row;
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run};
use crate::tensor::OperandType::*;

pub static L2_POOL_2D: Operation = Operation {
    ty: OperationType::L2_POOL_2D,
    doc: "the root of each window's mean square, padding left out",
    signatures: &signatures(&[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])]),
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    pool_floats(args, &mut outs[0], 0.0, |sum, x| sum + x * x, |sum, cells| (sum / cells as f32).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int};

    #[test]
    fn root_of_the_mean_square() {
        let mut inputs = vec![f32s(&[1, 2, 1, 2], &[1.0, 7.0, -3.0, 3.0])];
        inputs.extend([2, 1, 1, 2, 1, 0].map(int));
        inputs.push(boolean(true));
        let out = call_simple::<f32>(&L2_POOL_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 2, 1, 1], vec![5.0, 3.0])));
    }
}
