//! What was written runs as what was compiled; bytes that were tampered with give errors, not panics.

use crate::backend::cpu::arguments::{Bound, Held, Memories};
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::pool::ThreadPool;
use crate::backend::cpu::program::Program;
use crate::backend::cpu::samples::{data_of, f32_info, floats, Build};
use crate::backend::{
    Activity, Artifact, BackendError, CompileOptions, Control, Noted, OperationId, Preference, Recorder,
    Saved,
};
use crate::memory::{Access, Budget, ClientSlice, Counted, Mapping};
use crate::model::{Constant, Lifetime, Model};
use crate::ops::{NeverInterrupted, OperationType};
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;
use std::sync::Arc;
use OperandType::*;

/// Convolutions, a sum with a large constant, a fully connected layer.
fn float_model() -> Model {
    let mut b = Build::new();
    let image = b.input(f32_info(&[1, 6, 6, 4]));
    let filter = b.constant(f32_info(&[20, 3, 3, 4]), &floats(720, 1.0));
    let bias = b.constant(f32_info(&[20]), &floats(20, 2.0));
    let mut inputs = vec![image, filter, bias];
    inputs.extend(b.ints(&[1, 1, 1, 0]));
    let conv = b.call(OperationType::CONV_2D, 0, &inputs, f32_info(&[1, 6, 6, 20]));
    let filter = b.constant(f32_info(&[1, 4, 4, 20]), &floats(320, 3.0));
    let bias = b.constant(f32_info(&[20]), &floats(20, 4.0));
    let mut inputs = vec![conv, filter, bias];
    inputs.extend(b.ints(&[1, 2, 2, 1, 3]));
    let depthwise = b.call(OperationType::DEPTHWISE_CONV_2D, 0, &inputs, f32_info(&[1, 3, 3, 20]));
    let addend = b.constant(f32_info(&[10, 3, 3, 20]), &floats(1800, 5.0));
    let mut inputs = vec![depthwise, addend];
    inputs.extend(b.ints(&[0]));
    let sum = b.call(OperationType::ADD, 0, &inputs, f32_info(&[10, 3, 3, 20]));
    let weights = b.constant(f32_info(&[7, 180]), &floats(1260, 6.0));
    let bias = b.constant(f32_info(&[7]), &floats(7, 7.0));
    let mut inputs = vec![sum, weights, bias];
    inputs.extend(b.ints(&[1]));
    let out = b.call(OperationType::FULLY_CONNECTED, 0, &inputs, f32_info(&[10, 7]));
    Model { main: b.finish(out), referenced: vec![], relaxed: false }
}

fn quantised_model() -> Model {
    let q = |dims: &[u32]| TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, dims, 0.5, 3);
    let weights: Vec<i8> = (0..3 * 3 * 8 * 40).map(|i| (i * 7 % 251) as i8).collect();
    let biases = |count: i32| (0..count).map(|i| i * 30 - 400).collect::<Vec<i32>>();
    let bias_info = |n| TensorInfo::quantised(TENSOR_INT32, &[n], 0.25, 0);
    let mut b = Build::new();
    let image = b.input(q(&[1, 5, 5, 8]));
    let filter = b.constant(q(&[40, 3, 3, 8]), &weights);
    let bias = b.constant(bias_info(40), &biases(40));
    let mut inputs = vec![image, filter, bias];
    inputs.extend(b.ints(&[1, 1, 1, 1]));
    let wide = TensorInfo { scale: 40.0, ..q(&[1, 5, 5, 40]) };
    let conv = b.call(OperationType::CONV_2D, 0, &inputs, wide.clone());
    let filter = b.constant(q(&[1, 6, 6, 40]), &weights[..1440]);
    let bias = b.constant(TensorInfo { scale: 20.0, ..bias_info(40) }, &biases(40));
    let mut inputs = vec![conv, filter, bias];
    inputs.extend(b.ints(&[1, 1, 1, 1, 0]));
    let out = TensorInfo { scale: 900.0, ..wide };
    let out = b.call(OperationType::DEPTHWISE_CONV_2D, 0, &inputs, out);
    Model { main: b.finish(out), referenced: vec![], relaxed: false }
}

/// A choice between two subgraphs, on an input of unknown length.
fn branching_model() -> Model {
    let branch = |ty| {
        let mut b = Build::new();
        let x = b.input(f32_info(&[0]));
        let addend = b.constant(f32_info(&[1]), &[2.5f32]);
        let mut inputs = vec![x, addend];
        inputs.extend(b.ints(&[0]));
        let out = b.call(ty, 0, &inputs, f32_info(&[0]));
        b.finish(out)
    };
    let mut b = Build::new();
    let condition = b.input(TensorInfo::new(TENSOR_BOOL8, &[1]));
    let x = b.input(f32_info(&[0]));
    let then = b.operand(TensorInfo::new(SUBGRAPH, &[]), Lifetime::Subgraph(0));
    let otherwise = b.operand(TensorInfo::new(SUBGRAPH, &[]), Lifetime::Subgraph(1));
    let out = b.call(OperationType::IF, 0, &[condition, then, otherwise, x], f32_info(&[0]));
    Model {
        main: b.finish(out),
        referenced: vec![branch(OperationType::ADD), branch(OperationType::MUL)],
        relaxed: false,
    }
}

/// Rounds of a loop: three layers by the same weights, and one of another activation.
fn repeating_model() -> Model {
    let mut b = Build::new();
    let mut x = b.input(f32_info(&[2, 32]));
    let weights = b.constant(f32_info(&[32, 32]), &floats(1024, 0.1));
    let bias = b.constant(f32_info(&[32]), &floats(32, 2.0));
    for activation in [1, 1, 0, 1] {
        let mut inputs = vec![x, weights, bias];
        inputs.extend(b.ints(&[activation]));
        x = b.call(OperationType::FULLY_CONNECTED, 0, &inputs, f32_info(&[2, 32]));
    }
    Model { main: b.finish(x), referenced: vec![], relaxed: false }
}

/// What is moved by kernels that note where.
fn moving_model() -> Model {
    let mut b = Build::new();
    let x = b.input(f32_info(&[4, 6, 8]));
    let order = b.constant(TensorInfo::new(TENSOR_INT32, &[3]), &[2, 0, 1]);
    let turned = b.call(OperationType::TRANSPOSE, 0, &[x, order], f32_info(&[8, 4, 6]));
    Model { main: b.finish(turned), referenced: vec![], relaxed: false }
}

fn models() -> [Model; 4] {
    [float_model(), quantised_model(), branching_model(), repeating_model()]
}

fn compile(model: &Model) -> Program {
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    Program::compile(model, &CompileOptions::default(), pool, &Control::default()).unwrap()
}

fn artifacts() -> [Artifact; 4] {
    models().map(|model| compile(&model).artifact(&NeverInterrupted).unwrap())
}

fn load(model: &[u8], data: &Arc<Mapping>) -> Result<Program, BackendError> {
    let saved = Saved { models: vec![model.to_vec()], data: vec![data.clone()] };
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    Program::load(saved, Preference::default(), pool, &Control::default())
}

fn whole(len: usize) -> ClientSlice {
    ClientSlice::new(Arc::new(Mapping::anonymous(len).unwrap()), 0, len).unwrap()
}

/// Runs on made-up inputs; unknown dimensions become 3.
fn run(program: &Program) -> Result<Vec<u8>, BackendError> {
    run_under(program, &Control::default())
}

fn run_under(program: &Program, control: &Control) -> Result<Vec<u8>, BackendError> {
    let input = |info: &TensorInfo| {
        let dims: Vec<u32> = info.dims.iter().map(|&d| if d == 0 { 3 } else { d }).collect();
        let count = crate::tensor::byte_size(info.ty, &dims).filter(|&n| n < 1 << 20)?;
        let data = whole(count);
        let bytes: Vec<u8> = match info.ty {
            TENSOR_FLOAT32 => bytemuck::cast_slice(&floats(count / 4, 9.0)).to_vec(),
            _ => (0..count).map(|i| i as u8).collect(),
        };
        data.write(&bytes).unwrap();
        Some(Bound { data, dims: dims.into() })
    };
    let inputs: Vec<_> = program.interface().inputs.iter().map(input).collect();
    let out = whole(1 << 16);
    let output = |info: &TensorInfo| Some(Bound { data: out.clone(), dims: info.dims.clone() });
    let outputs: Vec<_> = program.interface().outputs.iter().map(output).collect();
    program.run(Held::new(&inputs, &outputs, &Memories::of(&inputs, &outputs))?, control)?;
    Ok(out.to_private().unwrap().to_vec())
}

#[test]
fn what_is_loaded_runs_as_what_was_compiled() {
    for model in models() {
        let compiled = compile(&model);
        let artifact = compiled.artifact(&NeverInterrupted).unwrap();
        let data = data_of(&artifact);
        let loaded = load(&artifact.models[0], &data).unwrap();
        assert_eq!(compiled.interface(), loaded.interface());
        let expected = run(&compiled).unwrap();
        assert!(expected.iter().any(|&b| b != 0));
        assert_eq!(expected, run(&loaded).unwrap());
        let again = loaded.artifact(&NeverInterrupted).unwrap();
        assert_eq!(artifact.models[0], again.models[0]);
        let bytes = |a: &Artifact| {
            a.data[0].iter().map(|(_, p)| p.to_private().unwrap().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(bytes(&artifact), bytes(&again));
    }
}

/// The constants in a file of a client's, none of them aligned.
fn of_client(mut model: Model, file: &std::fs::File) -> Model {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    let (len, mut at) = (1 << 16, 1);
    file.set_len(len).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as usize, Access::Read).unwrap());
    for operand in &mut model.main.operands {
        let Lifetime::Constant(constant) = &mut operand.lifetime else { continue };
        let bytes = constant.bytes().unwrap();
        file.write_all_at(&bytes, at as u64).unwrap();
        *constant = Constant::Client(ClientSlice::new(mapping.clone(), at, bytes.len()).unwrap());
        at += bytes.len().next_multiple_of(4);
    }
    model
}

#[test]
fn weights_are_the_same_wherever_the_constants_lie_and_not_there_if_those_vanish() {
    for model in models() {
        let file = tempfile::tempfile().unwrap();
        let (private, client) =
            (compile(&model).artifact(&NeverInterrupted).unwrap(), of_client(model, &file));
        let packed = compile(&client).artifact(&NeverInterrupted).unwrap();
        assert_eq!(private.models, packed.models);
        let data = |artifact| ClientSlice::whole(data_of(artifact)).to_private().unwrap().to_vec();
        assert_eq!(data(&private), data(&packed));
        let has_weights = !private.data[0].is_empty();
        file.set_len(0).unwrap();
        let pool = Arc::new(ThreadPool::new(1).unwrap());
        let gone = Program::compile(&client, &CompileOptions::default(), pool, &Control::default());
        assert!(!has_weights || matches!(gone, Err(BackendError::Memory { .. })));
    }
}

#[test]
fn what_is_large_is_data_and_what_is_packed_is_not_kept_twice() {
    let artifact = compile(&float_model()).artifact(&NeverInterrupted).unwrap();
    let data: usize = artifact.data[0].iter().map(|(_, part)| part.len()).sum();
    // The weights and the addend, with the padding of panels.
    assert!(artifact.models[0].len() < 4096, "{} model bytes", artifact.models[0].len());
    let plain = 4 * (720 + 320 + 1800 + 1260);
    assert!((plain..plain * 5 / 2).contains(&data), "{data} data bytes");
    assert!(artifact.data[0].iter().all(|(start, _)| start % 64 == 0));
}

#[test]
fn calls_that_are_alike_have_one_kernel() {
    let is_one = |program: &Program| {
        let steps = &program.routines()[0].steps;
        let kernel = |i: usize| Arc::as_ptr(steps[i].kernel.as_ref().unwrap()).cast::<()>();
        [1, 2, 3].map(|i| kernel(i) == kernel(0))
    };
    let compiled = compile(&repeating_model());
    assert_eq!(is_one(&compiled), [true, false, true]);
    let artifact = compiled.artifact(&NeverInterrupted).unwrap();
    let loaded = load(&artifact.models[0], &data_of(&artifact)).unwrap();
    assert_eq!(is_one(&loaded), [true, false, true]);
    let bytes: usize = artifact.data[0].iter().map(|(_, part)| part.len()).sum();
    assert!((2 * 4 * 1024..3 * 4 * 1024).contains(&bytes), "the weights {bytes} bytes");
}

#[test]
fn what_is_loaded_while_memory_is_short_says_so() {
    const SHARE: usize = 4 << 20;
    for artifact in
        artifacts().into_iter().chain([compile(&moving_model()).artifact(&NeverInterrupted).unwrap()])
    {
        let data = data_of(&artifact);
        let budget = Budget::new(2 * SHARE as u64);
        let _account = budget.on_account_of(1);
        // Whatever it is that is refused.
        let mut refusals = 0;
        for left in (0..20_000).step_by(100) {
            let _held = Counted::take(SHARE - left).unwrap();
            match load(&artifact.models[0], &data) {
                Ok(_) => break,
                Err(BackendError::OutOfMemory(_)) => refusals += 1,
                Err(why) => panic!("{left} bytes: {why}"),
            }
        }
        assert!(refusals > 1, "{refusals} refusals");
    }
}

#[test]
fn what_is_compiled_while_memory_is_short_is_the_same_or_an_error() {
    const SHARE: usize = 4 << 20;
    let shape = |program: &Program| {
        let Artifact { models, data } = program.artifact(&NeverInterrupted).unwrap();
        let parts: Vec<_> = data[0].iter().map(|(start, part)| (*start, part.len())).collect();
        (models, parts)
    };
    for model in models() {
        let whole = shape(&compile(&model));
        let budget = Budget::new(2 * SHARE as u64);
        let _account = budget.on_account_of(1);
        let mut refusals = 0;
        for left in (0..1 << 20).step_by(1000) {
            let held = Counted::take(SHARE - left).unwrap();
            let pool = Arc::new(ThreadPool::new(1).unwrap());
            let made = Program::compile(&model, &CompileOptions::default(), pool, &Control::default());
            drop(held);
            match made {
                Ok(program) => {
                    assert_eq!(shape(&program), whole, "{left} bytes");
                    break;
                }
                Err(BackendError::OutOfMemory(_) | BackendError::Memory { .. }) => refusals += 1,
                Err(why) => panic!("{left} bytes: {why}"),
            }
        }
        assert!(refusals > 1, "{refusals} refusals");
    }
}

#[test]
fn changed_data_change_values_only() {
    for artifact in artifacts() {
        let data = data_of(&artifact);
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let loaded = load(&artifact.models[0], &data).unwrap();
            // After loading as well as before.
            ClientSlice::new(data.clone(), 0, data.len()).unwrap().write(&vec![byte; data.len()]).unwrap();
            run(&loaded).unwrap();
            run(&load(&artifact.models[0], &data).unwrap()).unwrap();
        }
    }
}

#[test]
fn data_of_another_length_is_refused() {
    let artifact = compile(&float_model()).artifact(&NeverInterrupted).unwrap();
    let len = data_of(&artifact).len();
    for other in [0, len - 1, len + 1, len + 64] {
        assert!(load(&artifact.models[0], &Arc::new(Mapping::anonymous(other).unwrap())).is_err(), "{other}");
    }
}

#[test]
fn every_cut_is_refused() {
    for artifact in artifacts() {
        let data = data_of(&artifact);
        for end in 0..artifact.models[0].len() {
            assert!(load(&artifact.models[0][..end], &data).is_err(), "{end} bytes");
        }
        let longer = [&artifact.models[0][..], &[0]].concat();
        assert!(load(&longer, &data).is_err());
    }
}

/// Loads tampered bytes, and runs what loads if its plan is not too large to be tried.
fn try_tampered(model: &[u8], data: &Arc<Mapping>) {
    if let Ok(program) = load(model, data) {
        if program.routines().iter().all(|routine| routine.arena < 1 << 22) {
            let _ = run(&program);
        }
    }
}

#[test]
fn no_single_byte_makes_it_panic() {
    for artifact in artifacts() {
        let data = data_of(&artifact);
        for at in 0..artifact.models[0].len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = artifact.models[0].clone();
                bytes[at] ^= change;
                try_tampered(&bytes, &data);
            }
        }
    }
}

/// Whether there is time for all that can be tried.
fn is_long_campaign() -> bool {
    std::env::var("NNHAL_CAMPAIGN").is_ok_and(|campaign| campaign == "long")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_long_campaign() { 4000 } else { 400 }))]

    #[test]
    fn no_tampering_makes_it_panic(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let artifact = &artifacts()[which];
        let data = data_of(artifact);
        let mut bytes = artifact.models[0].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        try_tampered(&bytes, &data);
    }
}

#[test]
fn programs_for_other_machines_are_refused() {
    let artifact = compile(&float_model()).artifact(&NeverInterrupted).unwrap();
    let name = Isa::detect().name().as_bytes();
    let at = artifact.models[0].windows(name.len()).position(|window| window == name).unwrap();
    let mut bytes = artifact.models[0].clone();
    bytes[at] ^= 1;
    let why = load(&bytes, &data_of(&artifact)).err().unwrap();
    assert!(why.to_string().contains("it is for"), "{why}");
}

#[test]
fn a_loaded_model_tells_the_same_of_itself() {
    for model in models() {
        let compiled = compile(&model);
        let told = compiled.describe(&NeverInterrupted).unwrap();
        let artifact = compiled.artifact(&NeverInterrupted).unwrap();
        let loaded = load(&artifact.models[0], &data_of(&artifact)).unwrap();
        assert_eq!(told, loaded.describe(&NeverInterrupted).unwrap());
        let indices: Vec<_> =
            told.subgraphs[0].steps.iter().flat_map(|step| step.operations.clone()).collect();
        assert_eq!(indices, (0..model.main.operations.len()).collect::<Vec<_>>());
    }
}

#[test]
fn the_operations_of_a_subgraph_are_recorded_within_the_one_that_refers_to_it() {
    let model = branching_model();
    let recorder = Arc::new(Recorder::new(100));
    let control = Control { recorder: Some(recorder.clone()), ..Control::default() };
    run_under(&compile(&model), &control).unwrap();
    let Noted { spans, missed, .. } = recorder.take(100);
    let [inner, outer] = spans[..] else { panic!("{spans:?}") };
    // The condition is false: the second subgraph runs.
    assert_eq!(inner.activity, Activity::Operation(OperationId { subgraph: 2, index: 0 }));
    assert_eq!(outer.activity, Activity::Operation(OperationId { subgraph: 0, index: 0 }));
    assert!(outer.start <= inner.start && inner.end <= outer.end, "{spans:?}");
    assert_eq!(missed, 0);
}
