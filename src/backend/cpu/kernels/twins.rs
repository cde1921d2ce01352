//! Calls both ways: by the plain evaluation and by the kernel, at each level of vectors and on several threads.

use super::vector::tests::at_each_level;
use super::{select, Source, Work};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{AlignedBuf, Slab, Target, View};
use crate::ops::signature::{find, Operand};
use crate::ops::testing::{tensor, Tensor};
use crate::ops::{evaluate, Arg, Args, Computed, NeverInterrupted, Operation, OperationType};
use crate::tensor::{element_count, OperandType, TensorInfo};
use half::f16;
use proptest::prelude::*;
use std::time::{Duration, Instant};
use OperandType::*;

/// A small deterministic generator.
pub struct Noise(pub u32);

impl Noise {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Mostly small numbers of both signs, some of them whole.
    pub fn float(&mut self) -> f32 {
        let x = self.next() as f32 / (1 << 22) as f32 - 2.0;
        match self.next() % 8 {
            0 => (x * 4.0).round(),
            1 => x * 20.0,
            _ => x,
        }
    }

    pub fn tensor(&mut self, info: TensorInfo) -> Tensor {
        let count = element_count(&info.dims).unwrap();
        match info.ty {
            TENSOR_FLOAT32 => {
                let values: Vec<f32> = (0..count).map(|_| self.float()).collect();
                tensor(info, &values)
            }
            TENSOR_FLOAT16 => {
                let values: Vec<f16> = (0..count).map(|_| f16::from_f32(self.float())).collect();
                tensor(info, &values)
            }
            TENSOR_INT32 => {
                let values: Vec<i32> = (0..count).map(|_| self.next() as i32 % 4000 - 2000).collect();
                tensor(info, &values)
            }
            TENSOR_BOOL8 => {
                let values: Vec<u8> = (0..count).map(|_| (self.next() % 3) as u8).collect();
                tensor(info, &values)
            }
            _ => {
                let values: Vec<u8> = (0..count).map(|_| self.next() as u8).collect();
                tensor(info, &values)
            }
        }
    }
}

/// How near a kernel must come to the plain evaluation.
#[derive(Clone, Copy, Debug)]
pub enum Within<'a> {
    SameBytes,
    /// So much of the number, or of 1 if that is less.
    Relative(f32),
    /// What another order of addition may make of sums whose terms have these magnitudes in all, one an element.
    OfTerms(f32, &'a [f32]),
}

/// Bytes before an argument, and after it: more than any vector has, and nothing is aligned.
const BEFORE: usize = 67;
const AFTER: usize = 133;

/// Runs a call both ways and compares; whether there was a kernel for it. Inputs from `constants` on are constant.
pub fn compare(
    ty: OperationType,
    inputs: &[Option<Tensor>],
    constants: usize,
    outputs: &[TensorInfo],
    within: Within,
) -> Result<bool, TestCaseError> {
    with_call(ty, inputs, outputs, |operation, call| compare_call(operation, call, inputs, constants, within))
}

/// The first output of a call of floats, by the plain evaluation.
pub fn plain_floats(
    ty: OperationType,
    inputs: &[Option<Tensor>],
    outputs: &[TensorInfo],
) -> Option<Vec<f32>> {
    with_call(ty, inputs, outputs, |operation, call| {
        let plain = evaluate::run(operation, call).ok()?;
        Some(bytemuck::cast_slice(&plain.first()?.data).to_vec())
    })
}

/// What a call takes: the least of several plain evaluations, and of several runs of its kernel on one thread and on two.
pub fn time(
    ty: OperationType,
    inputs: &[Option<Tensor>],
    variables: usize,
    outputs: &[TensorInfo],
) -> String {
    let least = |work: &mut dyn FnMut()| {
        let (began, mut least, mut rounds) = (Instant::now(), Duration::MAX, 0);
        while rounds < 5 || (rounds < 200 && began.elapsed() < Duration::from_millis(400)) {
            let started = Instant::now();
            work();
            least = least.min(started.elapsed());
            rounds += 1;
        }
        least.as_secs_f64() * 1e3
    };
    with_call(ty, inputs, outputs, |operation, call| {
        let results = evaluate::run(operation, call).unwrap();
        let plain = least(&mut || drop(evaluate::run(operation, call).unwrap()));
        let with_dims = |(info, result): (_, &Computed)| evaluate::with_dims(info, &result.dims);
        let resolved: Vec<_> = outputs.iter().zip(&results).map(with_dims).collect();
        let ahead = known_ahead(call, variables);
        let ahead = Args { inputs: &ahead, outputs: &resolved, ..*call };
        let Some(kernel) = select(operation, &ahead, &mut Source::pack(&Slab::default())) else {
            return format!("{plain:.3} ms plainly");
        };
        let views: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|t| View::of(&t.data[..]))).collect();
        let mut made: Vec<_> = results.iter().map(|result| result.data.clone()).collect();
        let by_threads = [1, 2].map(|threads| {
            let pool = ThreadPool::new(threads).unwrap();
            least(&mut || {
                let work = Work::new(pool.team(threads), &NeverInterrupted);
                let mut targets: Vec<_> = made.iter_mut().map(|made| Target::of(&mut made[..])).collect();
                kernel.run(&views, &mut targets, work).unwrap();
            })
        });
        format!(
            "{plain:.3} ms plainly, {:.3} by {}, {:.3} on two threads",
            by_threads[0],
            kernel.name(),
            by_threads[1]
        )
    })
}

/// The inputs as they are known before a run: the first `variables` are not.
fn known_ahead<'a>(call: &Args<'a>, variables: usize) -> Vec<Option<Arg<'a>>> {
    let known = |(i, arg): (usize, &Option<Arg<'a>>)| {
        arg.map(|arg| Arg { data: arg.data.filter(|_| i >= variables), ..arg })
    };
    call.inputs.iter().enumerate().map(known).collect()
}

/// Calls `run` with this call of an operation, all of whose inputs are known.
fn with_call<R>(
    ty: OperationType,
    inputs: &[Option<Tensor>],
    outputs: &[TensorInfo],
    run: impl FnOnce(&'static Operation, &Args) -> R,
) -> R {
    let operation = ty.operation().unwrap();
    let operand = |t: &Option<Tensor>| t.as_ref().map(|t| t.info.clone());
    let infos: Vec<_> = inputs.iter().map(operand).collect();
    let given: Vec<_> =
        infos.iter().map(|info| info.as_ref().map_or(Operand::Omitted(None), Operand::Present)).collect();
    let out_operands: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let signature_index =
        find(operation.signatures, &given, &out_operands).expect("a call that matches").signature_index;
    let arg = |t: &'_ Option<Tensor>| -> Option<(TensorInfo, AlignedBuf)> {
        t.as_ref().map(|t| (t.info.clone(), t.data.clone()))
    };
    let held: Vec<_> = inputs.iter().map(arg).collect();
    let args: Vec<_> =
        held.iter().map(|t| t.as_ref().map(|(info, data)| Arg { info, data: Some(&data[..]) })).collect();
    run(operation, &Args { signature_index, inputs: &args, outputs, interrupt: &NeverInterrupted })
}

fn compare_call(
    operation: &'static Operation,
    call: &Args,
    inputs: &[Option<Tensor>],
    constants: usize,
    within: Within,
) -> Result<bool, TestCaseError> {
    let (ty, outputs) = (operation.ty, call.outputs);
    let Ok(plain) = evaluate::run(operation, call) else { return Ok(false) };
    let resolved: Vec<_> =
        outputs.iter().zip(&plain).map(|(info, result)| evaluate::with_dims(info, &result.dims)).collect();
    // A kernel is made before the values of variables are known.
    let ahead = known_ahead(call, constants);
    let ahead = Args { inputs: &ahead, outputs: &resolved, ..*call };
    let shifted: Vec<Option<Vec<u8>>> = inputs
        .iter()
        .map(|t| t.as_ref().map(|t| [&[0; BEFORE][..], &t.data[..], &[0; AFTER][..]].concat()))
        .collect();
    let views: Vec<_> = shifted
        .iter()
        .map(|bytes| bytes.as_ref().map(|bytes| View::of(&bytes[BEFORE..bytes.len() - AFTER])))
        .collect();
    // Those that fuse give the same bytes, and so do the others.
    let (mut found, mut firsts): (bool, [Option<Vec<Vec<u8>>>; 2]) = (true, [None, None]);
    at_each_level(|level| {
        let Some(kernel) = select(operation, &ahead, &mut Source::pack(&Slab::default())) else {
            found = false;
            return Ok(());
        };
        let mut later = Source::later();
        let chosen = select(operation, &ahead, &mut later).expect("the same kernel without its weights");
        let kernel = if later.is_enough_for(&*chosen) { chosen } else { kernel };
        for threads in [1, 3] {
            let pool = ThreadPool::new(threads).unwrap();
            let work = Work::new(pool.team(threads), &NeverInterrupted);
            let mut results: Vec<Vec<u8>> =
                plain.iter().map(|plain| vec![0xa5; BEFORE + plain.data.len() + AFTER]).collect();
            let mut targets: Vec<_> = results
                .iter_mut()
                .zip(&plain)
                .map(|(bytes, plain)| Target::of(&mut bytes[BEFORE..BEFORE + plain.data.len()]))
                .collect();
            let mut views = views.clone();
            kernel.packed_inputs().iter().for_each(|&i| views[i] = None);
            kernel.run(&views, &mut targets, work).unwrap();
            for ((result, plain), info) in results.iter().zip(&plain).zip(&resolved) {
                let end = BEFORE + plain.data.len();
                prop_assert!(result[..BEFORE].iter().chain(&result[end..]).all(|&byte| byte == 0xa5));
                near(info.ty, &result[BEFORE..end], &plain.data, within, &format!("{ty} {level:?}"))?;
            }
            let first = firsts[usize::from(level.fuses())].get_or_insert_with(|| results.clone());
            prop_assert!(first == &results, "{} {:?}", threads, level);
            let Some(elementwise) = kernel.elementwise() else { continue };
            let result = &results[0][BEFORE..BEFORE + plain[0].data.len()];
            for (own, input) in inputs.iter().enumerate().filter(|&(own, _)| elementwise.goes_on_with(own)) {
                let mut made = input.as_ref().unwrap().data.to_vec();
                let other = (0..elementwise.inputs()).find(|&i| i != own).and_then(|i| views[i]);
                // In two parts, which rows of either need not end, where they need not be together.
                let (size, together) = (resolved[0].ty.element_size().unwrap(), elementwise.together());
                let cut = made.len() / size / 3 / together * together;
                let (head, tail) = made.split_at_mut(cut * size);
                elementwise.go_on(head, 0, own, other).unwrap();
                elementwise.go_on(tail, cut, own, other).unwrap();
                prop_assert!(made == result, "{} {:?}: input {} in place", ty, level, own);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn near(
    ty: OperandType,
    actual: &[u8],
    expected: &[u8],
    within: Within,
    what: &str,
) -> Result<(), TestCaseError> {
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        let bytes = AlignedBuf::copy_of(bytes).unwrap();
        match ty {
            TENSOR_FLOAT32 => bytemuck::cast_slice::<u8, f32>(&bytes).iter().map(|&x| x.into()).collect(),
            TENSOR_FLOAT16 => bytemuck::cast_slice::<u8, f16>(&bytes).iter().map(|&x| x.into()).collect(),
            TENSOR_QUANT8_ASYMM_SIGNED => bytes.iter().map(|&q| f64::from(q as i8)).collect(),
            _ => bytes.iter().map(|&q| f64::from(q)).collect(),
        }
    };
    let is_float = ty.is_float();
    for (i, (a, b)) in numbers(actual).into_iter().zip(numbers(expected)).enumerate() {
        let near = match within {
            Within::SameBytes => a.to_bits() == b.to_bits() || (is_float && a.is_nan() && b.is_nan()),
            Within::Relative(by) => {
                // Half floats have 11 bits.
                let by = if ty == TENSOR_FLOAT16 { 1e-3 } else { f64::from(by) };
                a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= by * b.abs().max(1.0)
            }
            Within::OfTerms(by, terms) => (a - b).abs() <= f64::from(by) * f64::from(terms[i]),
        };
        prop_assert!(near, "{}, element {}: {}, plainly {}", what, i, a, b);
    }
    Ok(())
}
