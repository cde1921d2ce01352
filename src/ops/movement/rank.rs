//! RANK: how many dimensions a tensor has.

use crate::ops::signature::{int, Row, Slot, Ty};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static RANK: Operation = Operation {
    ty: OperationType::RANK,
    doc: "the number of a tensor's dimensions, as a scalar",
    signatures: &[Signature::new(
        &[Row(4, &[])],
        &[Slot { name: "input", ty: Ty::Any(ANY_TENSOR), rank: (1, u8::MAX), optional: false }],
        &[int("rank")],
    )],
    check: no_check,
    run: Run::Shaped { shapes: |_| Ok(vec![smallvec![]]), eval },
};

static ANY_TENSOR: &[crate::tensor::OperandType] = &[
    TENSOR_FLOAT16,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT16_SYMM,
    TENSOR_BOOL8,
    TENSOR_QUANT8_SYMM_PER_CHANNEL,
    TENSOR_QUANT16_ASYMM,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT8_ASYMM_SIGNED,
];

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let rank = i32::try_from(args.get(0)?.dims().len()).map_err(|_| OpError::failed("rank too large"))?;
    outs[0].store_integers(args.interrupt, &[rank])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s};
    use crate::tensor::TensorInfo;

    #[test]
    fn gives_a_scalar() {
        let out = call(&RANK, &[Some(f32s(&[1, 0, 3], &[]))], &[TensorInfo::new(INT32, &[])]).unwrap();
        assert_eq!((out[0].dims.as_slice(), &out[0].data[..]), (&[][..], &3i32.to_le_bytes()[..]));
        assert!(call(&RANK, &[Some(f32s(&[1], &[0.0]))], &[TensorInfo::new(TENSOR_INT32, &[1])]).is_err());
    }
}
