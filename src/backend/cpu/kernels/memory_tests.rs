//! Kernels that run for a client which has no memory left: what they need for themselves is on its account, and not to get it is
//! an error and nothing worse.

use super::*;
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{AlignedBuf, Budget, Counted, Slab, Target, View};
use crate::ops::testing::{f32s, float, int, tensor, Tensor};
use crate::ops::{signature, Arg, NeverInterrupted, OpError};
use crate::tensor::TensorInfo;
use OperandType::*;

/// All that a client may have, and what it has left.
const SHARE: usize = 8 << 20;
const LEFT: usize = 4096;

/// Runs the kernel for a call whose client has so little memory left.
fn run(ty: OperationType, inputs: &[Tensor], output: &TensorInfo) -> Result<(), OpError> {
    let operation = ty.operation().expect("an operation");
    let args: Vec<_> = inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let present: Vec<_> = inputs.iter().map(|t| signature::Operand::Present(&t.info)).collect();
    let declared = [signature::Operand::Present(output)];
    let found = signature::find(operation.signatures, &present, &declared).expect("a signature");
    let (signature_index, outputs) = (found.signature_index, std::slice::from_ref(output));
    let call = Args { signature_index, inputs: &args, outputs, interrupt: &NeverInterrupted };
    let kernel = select(operation, &call, &mut Source::pack(&Slab::default())).expect("a kernel");
    let mut data = AlignedBuf::zeroed(output.byte_size().expect("a size")).expect("memory");
    let views: Vec<_> = inputs.iter().map(|t| Some(View::of(&t.data))).collect();
    let pool = ThreadPool::new(1).expect("threads");
    let budget = Budget::new(2 * SHARE as u64);
    let _account = budget.on_account_of(1);
    let _most = Counted::take(SHARE - LEFT).expect("nearly all that it may have");
    kernel.run(&views, &mut [Target::of(&mut data)], Work::new(pool.team(1), &NeverInterrupted))
}

fn bytes(dims: &[u32]) -> Tensor {
    let count = dims.iter().product::<u32>() as usize;
    tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, 0.5, 0), &vec![1u8; count])
}

fn floats(dims: &[u32]) -> Tensor {
    f32s(dims, &vec![1.0; dims.iter().product::<u32>() as usize])
}

#[test]
fn long_lanes_are_an_error() {
    for (len, fits) in [(1 << 10, true), (1 << 17, false)] {
        let output = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, len], 1.0 / 256.0, 0);
        let ran = run(OperationType::SOFTMAX, &[bytes(&[1, len]), float(1.0)], &output);
        assert_eq!(ran.is_ok(), fits, "{ran:?}");
        assert!(fits || matches!(ran, Err(OpError::OutOfMemory(_))), "{ran:?}");
    }
}

#[test]
fn rows_that_are_repeated_are_an_error() {
    const ROWS: u32 = 16;
    for (width, fits) in [(16, true), (1 << 15, false)] {
        let steps = [0, 0, 0, 0, 1, 1, 2, 0].map(int);
        let (image, filter) = ([1, ROWS, width, 1], [1, ROWS, 1, 2]);
        let of_floats = [&[floats(&image), floats(&filter), floats(&[2])], &steps[..]].concat();
        let bias = tensor(TensorInfo::quantised(TENSOR_INT32, &[2], 0.25, 0), &[1i32; 2]);
        let of_bytes = [&[bytes(&image), bytes(&filter), bias], &steps[..]].concat();
        let output = |ty, scale| TensorInfo::quantised(ty, &[1, 1, width, 2], scale, 0);
        let outputs = [output(TENSOR_FLOAT32, 0.0), output(TENSOR_QUANT8_ASYMM, 16.0)];
        for (inputs, output) in [of_floats, of_bytes].iter().zip(&outputs) {
            let ran = run(OperationType::DEPTHWISE_CONV_2D, inputs, output);
            assert_eq!(ran.is_ok(), fits, "{}: {ran:?}", output.ty);
            assert!(fits || matches!(ran, Err(OpError::OutOfMemory(_))), "{}: {ran:?}", output.ty);
        }
    }
}

#[test]
fn lines_under_very_many_rows_of_a_filter_are_an_error() {
    for (rows, fits) in [(8, true), (1 << 10, false)] {
        let steps = [0, 0, 0, 0, 1, 1, 0].map(int);
        let tensors = [floats(&[1, rows, 4, 3]), floats(&[2, rows, 2, 3]), floats(&[2])];
        let inputs = [&tensors[..], &steps[..]].concat();
        let ran = run(OperationType::CONV_2D, &inputs, &TensorInfo::new(TENSOR_FLOAT32, &[1, 1, 3, 2]));
        assert_eq!(ran.is_ok(), fits, "{ran:?}");
        assert!(fits || matches!(ran, Err(OpError::OutOfMemory(_))), "{ran:?}");
    }
}
