//! FLOOR: the largest integer not above each element.

use crate::ops::scratch::collected;
use crate::ops::signature::{var, Row};
use crate::ops::{no_check, same_as_first, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::*;

pub static FLOOR: Operation = Operation {
    ty: OperationType::FLOOR,
    doc: "the largest integer not above each element",
    signatures: &[Signature::new(
        &[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
        &[var("input", 0).rank(1, 4)],
        &[var("output", 0).rank(1, 4)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: same_as_first, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let floored = collected(args.interrupt, args.get(0)?.floats()?.iter().map(|x| x.floor()))?;
    outs[0].store_floats(args.interrupt, &floored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s};

    #[test]
    fn rounds_down() {
        let out = call_simple::<f32>(&FLOOR, &[f32s(&[1, 3], &[-0.5, 0.0, 1.9])]);
        assert_eq!(out, Ok((vec![1, 3], vec![-1.0, 0.0, 1.0])));
    }
}
