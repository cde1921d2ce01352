//! Good calls once more, as models of one operation that the CPU backend compiles and runs: folded constants, planned
//! memory, fast kernels and late dimensions must not change what an operation gives.

use super::unknown::less_known;
use super::{OperandType, OperationType, Random, TensorInfo, Value};
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{Arguments, Backend, CompileOptions, Control, Memory};
use nnhal::memory::{ClientSlice, Mapping};
use nnhal::model::{Constant, Lifetime, Model, Operand, Operation, OperationKind, Subgraph};
use nnhal::ops::signature;
use nnhal::tensor::Dims;
use std::sync::{Arc, LazyLock};

static BACKEND: LazyLock<CpuBackend> = LazyLock::new(|| CpuBackend::new(2).unwrap());

/// Runs `operation` in a model, with inputs that are constants or the model's; it must give `values`.
pub fn runs_in_a_model(
    operation: OperationType,
    inputs: &[Option<&Value>],
    values: &[Value],
    random: &mut Random,
) {
    let first = inputs.iter().position(Option::is_some);
    let mut operands: Vec<Operand> = Vec::new();
    for (i, value) in inputs.iter().enumerate() {
        operands.push(operand(*value, Some(i) == first, random));
    }
    let outputs: Vec<usize> = (operands.len()..operands.len() + values.len()).collect();
    operands.extend(values.iter().map(|value| Operand {
        info: less_known(&value.info, random),
        lifetime: Lifetime::Output,
        extension: None,
    }));
    let given: Vec<usize> =
        (0..inputs.len()).filter(|&i| matches!(operands[i].lifetime, Lifetime::Input)).collect();
    let tensors: Vec<_> = given.iter().map(|&i| inputs[i].map(input_tensor)).collect();
    let model = Model {
        main: Subgraph {
            operations: vec![Operation {
                kind: kind(operation, &operands, inputs.len()),
                inputs: (0..inputs.len()).collect(),
                outputs: outputs.clone(),
            }],
            inputs: given,
            outputs,
            operands,
        },
        referenced: vec![],
        relaxed: false,
    };
    check(operation, &model, &tensors, values);
}

fn operand(value: Option<&Value>, must_be_input: bool, random: &mut Random) -> Operand {
    let Some(value) = value else {
        return Operand {
            info: TensorInfo::new(OperandType::TENSOR_FLOAT32, &[]),
            lifetime: Lifetime::NoValue,
            extension: None,
        };
    };
    let info = value.info.clone();
    // A constant's dimensions are all known, so none is 0.
    if !must_be_input && !value.data.is_empty() && random.coin() {
        let bytes = Arc::new(value.clone().data);
        return Operand { info, lifetime: Lifetime::Constant(Constant::Private(bytes)), extension: None };
    }
    Operand { info: less_known(&info, random), lifetime: Lifetime::Input, extension: None }
}

fn kind(operation: OperationType, operands: &[Operand], inputs: usize) -> OperationKind {
    let seen: Vec<signature::Operand> = operands
        .iter()
        .map(|operand| match operand.lifetime {
            Lifetime::NoValue => signature::Operand::Omitted(None),
            _ => signature::Operand::Present(&operand.info),
        })
        .collect();
    let rules = operation.operation().expect("an operation that the driver has");
    let found = signature::find(rules.signatures, &seen[..inputs], &seen[inputs..]).expect("a valid call");
    OperationKind::Known { operation: rules, signature_index: found.signature_index }
}

fn memory(bytes: &[u8]) -> Arc<Mapping> {
    let mapping = Arc::new(Mapping::anonymous(bytes.len()).unwrap());
    ClientSlice::whole(mapping.clone()).write(bytes).unwrap();
    mapping
}

/// A value in memory, and its dimensions.
type Tensor = (Memory, Dims);

fn input_tensor(value: &Value) -> Tensor {
    (Memory::Mapped(memory(&value.data)), value.info.dims.clone())
}

fn check(operation: OperationType, model: &Model, tensors: &[Option<Tensor>], values: &[Value]) {
    let control = Control::default();
    let executable = BACKEND
        .compile(model, &CompileOptions::default(), &control)
        .unwrap_or_else(|e| panic!("{operation:?} is not compiled: {e}\n{model:?}"));
    let outputs: Vec<_> = values.iter().map(|value| memory(&vec![0xa5; value.data.len()])).collect();
    let places = outputs.iter().map(|output| Some((Memory::Mapped(output.clone()), Dims::new()))).collect();
    let arguments = Arguments::in_own_memories(tensors.to_vec(), places);
    let outcome = executable.bind(arguments).and_then(|binding| binding.run(&control));
    let shapes =
        outcome.unwrap_or_else(|e| panic!("{operation:?} does not run in a model: {e}\n{model:?}")).outputs;
    for ((value, output), shape) in values.iter().zip(&outputs).zip(&shapes) {
        assert!(shape.sufficient && shape.dims == value.info.dims, "{operation:?}: {shape:?}\n{model:?}");
        let data = ClientSlice::whole(output.clone()).to_private().unwrap();
        let got = Value { info: value.info.clone(), data };
        assert!(same(operation, &got, value), "{operation:?}: {got:?} is not {value:?}\n{model:?}");
    }
}

/// The same bytes, or, where a kernel may add floats in another order or has a polynomial of its own, nearly the same
/// numbers.
fn same(operation: OperationType, got: &Value, want: &Value) -> bool {
    use OperationType::*;
    let is_near = match operation {
        CONV_2D | DEPTHWISE_CONV_2D | FULLY_CONNECTED => 1e-4,
        BIDIRECTIONAL_SEQUENCE_LSTM | LSTM | UNIDIRECTIONAL_SEQUENCE_LSTM => 1e-4,
        BIDIRECTIONAL_SEQUENCE_RNN | RNN | SVDF | UNIDIRECTIONAL_SEQUENCE_RNN => 1e-4,
        EXP | LOGISTIC | TANH | ELU | SOFTMAX | LOG_SOFTMAX => 2e-6,
        L2_NORMALIZATION | LOCAL_RESPONSE_NORMALIZATION | INSTANCE_NORMALIZATION => 2e-6,
        _ => 0.0,
    };
    if is_near == 0.0 || !want.info.ty.is_float() {
        return got.data[..] == want.data[..];
    }
    // Half floats are rounded to eleven bits at the end, and two that lie near each other may be rounded apart.
    let rounding = if want.info.ty == OperandType::TENSOR_FLOAT16 { 5e-4 } else { 0.0 };
    let near = |(a, b): (f64, f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= (is_near + rounding) * (1.0 + b.abs())
    };
    got.numbers().at.into_iter().zip(want.numbers().at).all(near)
}
