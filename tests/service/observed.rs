//! A watched backend: what its models tell of themselves, and what is recorded of their runs.

use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{
    Activity, Arguments, Backend, Binding, CompileOptions, Control, Executable, KernelName, Memory, Observed,
    Observer, ValuePlace,
};
use nnhal::memory::{ClientSlice, Mapping};
use nnhal::testing::{standard_samples, Sample};
use std::sync::Arc;

/// FULLY_CONNECTED, RELU, RESHAPE and ADD, each on the result of the one before.
fn chain() -> Sample {
    standard_samples().into_iter().find(|sample| sample.name == "CHAIN TENSOR_FLOAT32").expect("the chain")
}

fn watched(spans: usize) -> (Observed, Arc<Observer>) {
    let observer = Observer::new(spans);
    (Observed::new(Arc::new(CpuBackend::new(2).expect("threads")), observer.clone()), observer)
}

fn compile(backend: &dyn Backend, sample: &Sample) -> Arc<dyn Executable> {
    backend.compile(&sample.model, &CompileOptions::default(), &Control::default()).expect("compiled")
}

fn bind(executable: &Arc<dyn Executable>, sample: &Sample) -> Arc<dyn Binding> {
    let memory = |bytes: &Vec<u8>| {
        let mapping = Arc::new(Mapping::anonymous(bytes.len()).expect("memory"));
        ClientSlice::whole(mapping.clone()).write(bytes).expect("written");
        Memory::Mapped(mapping)
    };
    let main = &sample.model.main;
    let all = |values: &[Vec<u8>], operands: &[usize]| {
        let dims = operands.iter().map(|&v| main.operands[v].info.dims.clone());
        values.iter().map(memory).zip(dims).map(Some).collect::<Vec<_>>()
    };
    let (inputs, outputs) = (all(&sample.inputs, &main.inputs), all(&sample.outputs, &main.outputs));
    executable.clone().bind(Arguments::in_own_memories(inputs, outputs)).expect("bound")
}

#[test]
fn a_model_tells_what_runs_it_and_where_its_values_lie() {
    let (backend, observer) = watched(100);
    assert_eq!(observer.description(), None, "nothing was compiled");
    let sample = chain();
    let executable = compile(&backend, &sample);
    let told = observer.description().expect("a description");
    assert_eq!(Some(&told), executable.describe().as_ref());
    let [main] = &told.subgraphs[..] else { panic!("{told:?}") };
    let [layer, relu, reshape, add] = &main.steps[..] else { panic!("{main:?}") };
    for (i, step) in main.steps.iter().enumerate() {
        assert_eq!(step.operations, [i]);
    }
    let is_fast = |kernel: &KernelName, kind: &str| match kernel {
        KernelName::Fast(name) => name.starts_with(kind) && name.contains("float") == (kind == "gemm"),
        _ => false,
    };
    assert!(is_fast(&layer.kernel, "gemm"), "{layer:?}");
    assert!(is_fast(&relu.kernel, "elementwise") && is_fast(&add.kernel, "elementwise"), "{relu:?} {add:?}");
    assert_eq!((&reshape.kernel, reshape.bytes), (&KernelName::Nothing, Some(0)));
    assert_eq!((layer.multiply_adds, relu.multiply_adds), (Some(4 * 5 * 18), None));
    assert_eq!(relu.bytes, Some(2 * 20 * 4), "read and written once");

    let operations = &sample.model.main.operations;
    let place = |v: usize| &main.places[v];
    let (clamped, reshaped) = (operations[1].outputs[0], operations[2].outputs[0]);
    assert_eq!(place(clamped), place(reshaped), "the same bytes");
    let ValuePlace::Arena(part) = place(clamped) else { panic!("{:?}", place(clamped)) };
    assert!(part.end - part.start == 80 && part.end <= main.arena, "{part:?} of {}", main.arena);
    let ends = sample.model.main.inputs.iter().chain(&sample.model.main.outputs);
    assert!(ends.into_iter().all(|&v| matches!(place(v), ValuePlace::Client(_))), "{:?}", main.places);
    let weights = place(operations[0].inputs[1]);
    assert_eq!(weights, &ValuePlace::Constant(360), "small ones are kept as they are");

    drop(executable);
    assert_eq!(observer.description(), None, "it is gone");
}

#[test]
fn runs_are_recorded_while_somebody_asks() {
    let (backend, observer) = watched(100);
    let sample = chain();
    let binding = bind(&compile(&backend, &sample), &sample);
    let run = || binding.clone().run(&Control::default()).map(drop).expect("ran");
    run();
    assert_eq!(observer.take(), (vec![], 0), "nobody has asked");
    observer.record(true);
    run();
    let (spans, missed) = observer.take();
    assert_eq!(missed, 0);
    let whole = spans.iter().find(|span| span.activity == Activity::Run).expect("the run");
    let operations: Vec<_> = spans
        .iter()
        .filter_map(|span| match span.activity {
            Activity::Operation(id) => Some((id.subgraph, id.index)),
            _ => None,
        })
        .collect();
    assert_eq!(operations, [(0, 0), (0, 1), (0, 2), (0, 3)]);
    let inside = |activity: &Activity| !matches!(activity, Activity::Part(_));
    for pair in
        spans.iter().filter(|span| inside(&span.activity) && *span != whole).collect::<Vec<_>>().windows(2)
    {
        assert!(pair[0].end <= pair[1].start && pair[0].thread == whole.thread, "{spans:?}");
    }
    assert!(spans.iter().all(|span| whole.start <= span.start && span.start <= span.end), "{spans:?}");
    observer.record(false);
    run();
    assert_eq!(observer.take(), (vec![], 0));
}

#[test]
fn no_more_is_kept_than_was_said() {
    let (backend, observer) = watched(3);
    let sample = chain();
    let binding = bind(&compile(&backend, &sample), &sample);
    observer.record(true);
    for _ in 0..10 {
        binding.clone().run(&Control::default()).expect("ran");
    }
    let (spans, missed) = observer.take();
    assert_eq!(spans.len(), 3);
    assert!(missed >= 47, "{missed}");
}

#[test]
fn a_watched_backend_saves_and_loads_as_it_does() {
    let (backend, observer) = watched(100);
    let sample = chain();
    let compiled = compile(&backend, &sample);
    let told = observer.description();
    let mut artifact = compiled.artifact().expect("an artifact");
    drop(compiled);
    let parts = artifact.data.remove(0);
    let len = parts.last().map_or(0, |(start, part)| *start as usize + part.len());
    let data = Arc::new(Mapping::anonymous(len).expect("memory"));
    for (start, part) in parts {
        let slice = ClientSlice::new(data.clone(), start as usize, part.len()).expect("inside");
        slice.write(&part.to_private().expect("memory")).expect("written");
    }
    let saved = nnhal::backend::Saved { models: artifact.models, data: vec![data] };
    let loaded = backend.load(saved, &CompileOptions::default(), &Control::default()).expect("loaded");
    assert_eq!(observer.description(), told);
    let binding = bind(&loaded, &sample);
    observer.record(true);
    binding.run(&Control::default()).expect("ran");
    assert!(observer.take().0.len() >= 5);
}
