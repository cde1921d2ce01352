//! Random calls of operations, from valid to absurd, as a compilation sees them: what looks at a call ahead must neither overflow nor
//! go by sizes that only an empty tensor can have.

use super::kernels::{self, Kernel, Source, Work};
use super::pool::ThreadPool;
use super::routine::is_data;
use super::samples::{f32_info, programs_of, run, Build};
use super::views::pieces;
use crate::memory::{AlignedBuf, Slab, Target, View};
use crate::ops::evaluate::shapes;
use crate::ops::hostile::{random_call, Random};
use crate::ops::signature::{find, Operand};
use crate::ops::testing::{i32s, tensor, InterruptedAfter, Tensor};
use crate::ops::{Arg, Args, NeverInterrupted, OpError, Operation, OperationType};
use crate::tensor::{element_count, OperandType, TensorInfo};
use std::panic::catch_unwind;
use std::sync::LazyLock;

/// Elements of an output beyond which a call is not looked at: compilations have a limit, too.
const MOST: usize = 1 << 28;
/// The same of a kernel that is run.
const MOST_RUN: usize = 1 << 14;

/// Looks at a call as a compilation does, knowing only what steers. Whether it may succeed.
fn look(operation: &Operation, inputs: &[Option<Tensor>], outputs: &[TensorInfo]) -> Result<(), OpError> {
    let operand = |t: &Option<Tensor>| t.as_ref().map(|t| t.info.clone());
    let infos: Vec<_> = inputs.iter().map(operand).collect();
    let operands: Vec<_> =
        infos.iter().map(|info| info.as_ref().map_or(Operand::Omitted(None), Operand::Present)).collect();
    let out_operands: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let signature_index =
        find(operation.signatures, &operands, &out_operands).map_err(OpError::Failed)?.signature_index;
    let interrupt = &InterruptedAfter::checks(1 << 20);
    let steering = |t: &Tensor| !is_data(&t.info, t.data.len());
    let args: Vec<_> = inputs
        .iter()
        .map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: steering(t).then_some(&t.data[..]) }))
        .collect();
    let args = Args { signature_index, inputs: &args, outputs, interrupt };
    (operation.check)(&args)?;
    let dims = shapes(operation, &args)?;
    if dims.iter().any(|dims| element_count(dims).is_none_or(|count| count > MOST)) {
        return Err(OpError::failed("too large"));
    }
    let made: Vec<TensorInfo> =
        outputs.iter().zip(dims).map(|(info, dims)| TensorInfo { dims, ..info.clone() }).collect();
    let args = Args { outputs: &made, ..args };
    if let Some(kernel) = kernels::select(operation, &args, &mut Source::later()) {
        execute(&*kernel, operation, &args, inputs);
    }
    let values: Vec<_> = (0..inputs.len()).map(Some).collect();
    let outputs: Vec<_> = (inputs.len()..inputs.len() + made.len()).collect();
    let _ = pieces(operation.ty, &args, &values, &outputs);
    Ok(())
}

/// Makes the kernel of a call with what it packs, and runs it on what the inputs hold, be the results what they may.
fn execute(kernel: &dyn Kernel, operation: &Operation, args: &Args, inputs: &[Option<Tensor>]) {
    let count = |info: &TensorInfo| element_count(&info.dims).unwrap_or(usize::MAX);
    if args.outputs.iter().map(count).fold(0, usize::saturating_add) > MOST_RUN {
        return;
    }
    let mut known = args.inputs.to_vec();
    for &i in kernel.packed_inputs() {
        if let (Some(Some(arg)), Some(Some(tensor))) = (known.get_mut(i), inputs.get(i)) {
            arg.data = Some(&tensor.data);
        }
    }
    let args = Args { inputs: &known, ..*args };
    let slab = Slab::default();
    let Some(kernel) = kernels::select(operation, &args, &mut Source::pack(&slab)) else { return };
    let views: Vec<_> =
        inputs.iter().map(|input| input.as_ref().map(|input| View::of(&input.data[..]))).collect();
    let sizes = args.outputs.iter().map(|info| info.byte_size().unwrap_or(0));
    let mut made: Vec<AlignedBuf> = sizes.map(|size| AlignedBuf::zeroed(size).unwrap()).collect();
    let mut targets: Vec<_> = made.iter_mut().map(|made| Target::of(&mut made[..])).collect();
    static POOL: LazyLock<ThreadPool> = LazyLock::new(|| ThreadPool::new(2).unwrap());
    let _ = kernel.run(&views, &mut targets, Work::new(POOL.team(2), &NeverInterrupted));
}

#[test]
fn nothing_that_looks_at_a_call_ahead_panics() {
    let mut panicked = Vec::new();
    for operation in OperationType::ALL.iter().filter_map(|ty| ty.operation()) {
        let random = &mut Random::new(operation.ty as u64 + 77);
        for _ in 0..calls() {
            random.tame = random.one_in(3);
            let Some((inputs, outputs)) = random_call(operation, random) else { continue };
            if catch_unwind(|| look(operation, &inputs, &outputs)).is_err() {
                panicked.push(operation.ty);
                break;
            }
        }
    }
    assert_eq!(panicked, []);
}

/// Calls of each operation.
fn calls() -> usize {
    std::env::var("NNHAL_STORM").ok().and_then(|calls| calls.parse().ok()).unwrap_or(2000)
}

fn operation(ty: OperationType) -> &'static Operation {
    ty.operation().unwrap()
}

fn floats_of(dims: &[u32]) -> Tensor {
    let count = element_count(dims).unwrap();
    tensor(TensorInfo::new(OperandType::TENSOR_FLOAT32, dims), &vec![0f32; count])
}

/// Dimensions that are as large as they can be in tensors of no elements, whose products do not fit any integer.
#[test]
fn empty_tensors_of_huge_dimensions_are_looked_at() {
    const M: u32 = i32::MAX as u32;
    let unknown = [TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])];
    let ints = |values: &[i32]| i32s(&[values.len() as u32], values);
    let calls = [
        (OperationType::TILE, vec![floats_of(&[1, 4, 1, 1]), ints(&[0, 1, M as i32, M as i32])]),
        (OperationType::REVERSE, vec![floats_of(&[0, 4, M, M]), ints(&[1])]),
        (OperationType::TRANSPOSE, vec![floats_of(&[0, 4, M, M]), ints(&[3, 1, 2, 0])]),
        (OperationType::SLICE, vec![floats_of(&[0, 4, M, M]), ints(&[0, 1, 0, 0]), ints(&[0, 3, -1, -1])]),
        (OperationType::PAD, vec![floats_of(&[0, 4, M, M]), i32s(&[4, 2], &[0, 0, 1, 1, 0, 0, 0, 0])]),
    ];
    for (ty, inputs) in calls {
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        assert_eq!(look(operation(ty), &inputs, &unknown), Ok(()), "{ty}");
    }
    let reduced = [Some(floats_of(&[M, M, M, 0])), Some(ints(&[0, 1, 2])), Some(crate::ops::testing::int(0))];
    let _ = look(operation(OperationType::REDUCE_MAX), &reduced, &unknown);
    let index = [TensorInfo::new(OperandType::TENSOR_INT32, &[])];
    let searched = [Some(floats_of(&[M, M, M, M, 0])), Some(crate::ops::testing::int(0))];
    let _ = look(operation(OperationType::ARGMAX), &searched, &index);
}

/// A client chooses how many pixels a block has, be there elements or none.
#[test]
fn blocks_of_very_many_pixels_take_no_memory_for_each() {
    let output = [TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])];
    for (dims, blocks, pads) in [
        ([1, 1, 1, 1], [8192, 8192], [0, 8191, 0, 8191]),
        ([0, 1, 1, 1], [65_535, 65_537], [0, 65_534, 0, 65_536]),
    ] {
        let inputs = [floats_of(&dims), i32s(&[2], &blocks), i32s(&[2, 2], &pads)].map(Some);
        assert_eq!(look(operation(OperationType::SPACE_TO_BATCH_ND), &inputs, &output), Ok(()), "{dims:?}");
    }
}

/// What goes together is looked for among steps on such tensors, too.
#[test]
fn models_of_empty_tensors_are_compiled_and_run() {
    const M: i32 = i32::MAX;
    for steps in [
        vec![OperationType::RELU, OperationType::LOGISTIC, OperationType::TANH],
        vec![OperationType::FLOOR, OperationType::RELU6],
    ] {
        let mut b = Build::new();
        let input = b.input(f32_info(&[1, 4, 1, 1]));
        let multiples = b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[4]), &[0, 1, M, M]);
        let unknown = || f32_info(&[]);
        let mut last = b.call(OperationType::TILE, 0, &[input, multiples], unknown());
        for ty in steps {
            last = b.call(ty, 0, &[last], unknown());
        }
        let none = b.ints(&[0])[0];
        for ty in [OperationType::ADD, OperationType::MUL, OperationType::SUB] {
            last = b.call(ty, 0, &[last, last, none], unknown());
        }
        let beta = b.constant(TensorInfo::new(OperandType::FLOAT32, &[]), &[1f32]);
        last = b.call(OperationType::SOFTMAX, 0, &[last, beta], unknown());
        let axes = b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[2]), &[2, 3]);
        let keep = b.ints(&[1])[0];
        last = b.call(OperationType::MEAN, 0, &[last, axes, keep], unknown());
        last = b.call(OperationType::SUB, 0, &[last, last, none], f32_info(&[0, 4, 1, 1]));
        let model = b.finish(last);
        for program in programs_of(&model, 2) {
            assert!(run(&program).is_empty());
        }
    }
}
