//! How long kernels take beside plain evaluations, on one thread, at each instruction set that this machine has: makes the
//! table that the backend's capabilities are read from (`backend/cpu/measured.rs`).
//!
//! A measurement, no test: run it on an idle machine, optimised, as the table's head says. It times; what is fast is
//! decided elsewhere.

mod calls;
mod samples;

use super::isa::Isa;
use super::vector::{tests::FORCED, Level, Vectors};
use super::{select_for, Source, Work};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{AlignedBuf, Slab, Target, View};
use crate::ops::evaluate::{allocate, run, shapes, with_dims};
use crate::ops::signature::{find, Operand};
use crate::ops::{Arg, Args, NeverInterrupted, Operation, Out, Run};
use crate::tensor::{OperandType, TensorInfo};
use samples::{samples, Sample};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A sample is run so long, in turns with its twin.
const EACH: Duration = Duration::from_millis(60);
const ROUNDS: usize = 5;

const HEAD: &str = "\
//! What kernels take of the time of plain evaluations, by instruction set and by the type of an operation's first input.
//! A type's figure is the geometric mean over kinds of operations, of which \"others\" are those without a kernel.
//!
//! Made by a measurement, the shortest of many rounds each, on a Xeon (Sapphire Rapids); do not edit it by hand:
//!
//! ```sh
//! cargo test --release --lib measure_capabilities -- --ignored
//! ```

use crate::tensor::OperandType::{self, *};

/// Times relative to the plain evaluation, on one thread, by the name of an instruction set and sorted by type.
#[rustfmt::skip]
pub const MEASURED: &[(&str, &[(OperandType, f32)])] = &[
";

#[test]
#[ignore = "a measurement, which writes its table into the sources"]
fn measure_capabilities() {
    if cfg!(debug_assertions) {
        panic!("only optimised kernels are worth timing: --release");
    }
    assert_eq!(Isa::detect().name(), "amx", "the table would lose what this machine does not have");
    let mut table = String::from(HEAD);
    for isa in Isa::available() {
        writeln!(table, "    (\"{}\", &[", isa.name()).unwrap();
        for ty in OperandType::ALL.into_iter().filter(|&ty| ty != OperandType::SUBGRAPH) {
            let kinds = by_kind(isa, ty);
            let all = kinds.values().copied().chain([1.0]); // the others
            let mut told: Vec<_> = kinds.iter().map(|(kind, ratio)| format!("{kind} {ratio:.2}")).collect();
            told.push("others 1".into());
            for line in told.chunks(6) {
                writeln!(table, "        // {}", line.join(", ")).unwrap();
            }
            writeln!(table, "        ({}, {:.2}),", ty.name(), mean(all)).unwrap();
        }
        table.push_str("    ]),\n");
    }
    table.push_str("];\n");
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/cpu/measured.rs"), table).unwrap();
}

/// The geometric mean.
fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    (sum / count).exp()
}

/// By kind of operation that takes this type first: a kernel's time relative to the plain evaluation's.
fn by_kind(isa: Isa, ty: OperandType) -> BTreeMap<&'static str, f64> {
    let mut ratios: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for sample in samples(ty) {
        if let Some(ratio) = ratio(isa, &sample) {
            ratios.entry(sample.kind).or_default().push(ratio);
        }
    }
    ratios.into_iter().map(|(kind, ratios)| (kind, mean(ratios.into_iter()))).collect()
}

/// A sample's kernel relative to its plain evaluation, 1 where there is none; `None` if the operation does not accept it.
fn ratio(isa: Isa, sample: &Sample) -> Option<f64> {
    let operation = sample.ty.operation()?;
    let inputs: Vec<_> = sample.inputs.iter().map(|t| Operand::Present(&t.info)).collect();
    let found = find(operation.signatures, &inputs, &[Operand::Present(&sample.output)]).ok()?;
    let all: Vec<_> =
        sample.inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let declared = std::slice::from_ref(&sample.output);
    let signature_index = found.signature_index;
    let args = Args { signature_index, inputs: &all, outputs: declared, interrupt: &NeverInterrupted };
    (operation.check)(&args).ok()?;
    let outputs = [with_dims(&sample.output, &shapes(operation, &args).ok()?[0])];
    let args = Args { outputs: &outputs, ..args };
    let mut ahead = all.clone();
    ahead[..sample.variables].iter_mut().flatten().for_each(|arg| arg.data = None);
    let ahead = Args { inputs: &ahead, ..args };
    FORCED.set(Some(level(isa, sample)));
    let kernel = select_for(isa, operation, &ahead, &mut Source::pack(&Slab::default()));
    let ratio = kernel.map_or(1.0, |kernel| {
        let pool = ThreadPool::new(1).unwrap();
        let mut result = allocate(&outputs[0]).unwrap();
        let mut views: Vec<_> = sample.inputs.iter().map(|t| Some(View::of(&t.data[..]))).collect();
        kernel.packed_inputs().iter().for_each(|&i| views[i] = None);
        let mut fast = || {
            let work = Work::new(pool.team(1), &NeverInterrupted);
            kernel.run(&views, &mut [Target::of(&mut result[..])], work).unwrap();
        };
        let mut plain_result = allocate(&outputs[0]).unwrap();
        let mut plain = || plainly(operation, &args, &outputs[0], &mut plain_result);
        in_turns(&mut fast, &mut plain)
    });
    FORCED.set(None);
    Some(ratio)
}

/// The vectors that go with an instruction set.
#[cfg(target_arch = "x86_64")]
fn level(isa: Isa, sample: &Sample) -> Level {
    Level(match isa.name() {
        "base" => Vectors::Base,
        // Windows of bytes would find this machine's products of bytes, which that set lacks.
        "avx512" if sample.kind == "depthwise" => Vectors::Avx2,
        "avx2" | "avx-vnni" => Vectors::Avx2,
        _ => Vectors::Avx512,
    })
}

/// The vectors that go with an instruction set.
#[cfg(not(target_arch = "x86_64"))]
fn level(_: Isa, _: &Sample) -> Level {
    Level(Vectors::Base)
}

fn plainly(operation: &Operation, args: &Args, info: &TensorInfo, result: &mut AlignedBuf) {
    match operation.run {
        Run::Shaped { eval, .. } => eval(args, &mut [Out { info, data: &mut result[..] }]).unwrap(),
        _ => drop(run(operation, args).unwrap()),
    }
}

/// The shortest of many rounds of one, relative to the shortest of the other.
fn in_turns(one: &mut dyn FnMut(), other: &mut dyn FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        started.elapsed()
    };
    let (began, mut round) = (Instant::now(), 0);
    let mut shortest = [Duration::MAX; 2];
    while round < ROUNDS || began.elapsed() < EACH {
        // The shorter of the two runs more often, because both need quiet moments.
        for _ in 0..4 {
            shortest[0] = shortest[0].min(time(one));
        }
        shortest[1] = shortest[1].min(time(other));
        round += 1;
    }
    shortest[0].as_secs_f64() / shortest[1].as_secs_f64()
}
