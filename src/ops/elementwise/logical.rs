//! LOGICAL_AND and LOGICAL_OR with broadcasting, and LOGICAL_NOT. Any non-zero byte is true.

use super::walk::{broadcast_shapes, map, zip};
use crate::ops::signature::Row;
use crate::ops::signature::{is, Slot};
use crate::ops::{no_check, same_as_first, Operation, OperationType, Run, Signature};
use crate::tensor::OperandType::*;

const ROWS: &[Row] = &[Row(3, &[])];
const INPUTS: &[Slot] = &[is("a", TENSOR_BOOL8), is("b", TENSOR_BOOL8)];
const OUTPUT: &[Slot] = &[is("output", TENSOR_BOOL8)];

pub static LOGICAL_AND: Operation = Operation {
    ty: OperationType::LOGICAL_AND,
    doc: "whether both elements are true, with broadcasting",
    signatures: &[Signature::new(ROWS, INPUTS, OUTPUT)],
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| zip(args, outs, |a: u8, b: u8| u8::from(a != 0 && b != 0)),
    },
};

pub static LOGICAL_OR: Operation = Operation {
    ty: OperationType::LOGICAL_OR,
    doc: "whether either element is true, with broadcasting",
    signatures: &[Signature::new(ROWS, INPUTS, OUTPUT)],
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| zip(args, outs, |a: u8, b: u8| u8::from(a != 0 || b != 0)),
    },
};

pub static LOGICAL_NOT: Operation = Operation {
    ty: OperationType::LOGICAL_NOT,
    doc: "whether each element is false",
    signatures: &[Signature::new(ROWS, &[is("input", TENSOR_BOOL8)], OUTPUT)],
    check: no_check,
    run: Run::Shaped { shapes: same_as_first, eval: |args, outs| map(args, outs, |x: u8| u8::from(x == 0)) },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn bools(dims: &[u32], values: &[u8]) -> Tensor {
        tensor(TensorInfo::new(TENSOR_BOOL8, dims), values)
    }

    #[test]
    fn results_are_zero_or_one() {
        let inputs = [bools(&[2, 1], &[0, 7]), bools(&[2], &[0, 255])];
        assert_eq!(call_simple::<u8>(&LOGICAL_AND, &inputs), Ok((vec![2, 2], vec![0, 0, 0, 1])));
        assert_eq!(call_simple::<u8>(&LOGICAL_OR, &inputs), Ok((vec![2, 2], vec![0, 1, 1, 1])));
        assert_eq!(call_simple::<u8>(&LOGICAL_NOT, &inputs[..1]), Ok((vec![2, 1], vec![1, 0])));
    }
}
