//! Merged steps against the same steps one by one.

use super::program::Program;
use super::samples::{compile, f32_info, floats, programs_of, run, step_by_step, Build};
use crate::model::Subgraph;
use crate::ops::signature::{self, Operand};
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;

/// A call on what the one before made.
#[derive(Clone, Debug)]
enum Next {
    Unary(OperationType),
    /// With a constant of one element, which is the first input or the second.
    Constant(OperationType, u8, bool),
    /// With the model's input.
    Input(OperationType),
    /// With itself.
    Twice(OperationType),
}

struct Sample {
    build: Build,
    input: usize,
    last: usize,
    ty: OperandType,
}

impl Sample {
    fn new(ty: OperandType, dims: &[u32]) -> Self {
        let mut build = Build::new();
        let input = build.input(info(ty, dims, 0.05));
        Sample { build, input, last: input, ty }
    }

    fn dims(&self) -> Vec<u32> {
        self.build.info(self.input).dims.to_vec()
    }

    fn call(&mut self, ty: OperationType, inputs: &[usize]) {
        let scale = match ty {
            OperationType::LOGISTIC => 1.0 / 256.0,
            OperationType::TANH => 1.0 / 128.0,
            _ => 0.04,
        };
        let mut out = info(self.ty, &self.dims(), scale);
        let signed = self.ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        match ty {
            OperationType::LOGISTIC => out.zero_point = if signed { -128 } else { 0 },
            OperationType::TANH => out.zero_point = if signed { 0 } else { 128 },
            _ => {}
        }
        // These keep scale and zero point.
        if [OperationType::RELU6, OperationType::RELU1, OperationType::MAXIMUM].contains(&ty) {
            let from = self.build.info(inputs[0]);
            (out.scale, out.zero_point) = (from.scale, from.zero_point);
        }
        let mut inputs = inputs.to_vec();
        if [OperationType::ADD, OperationType::MUL, OperationType::SUB].contains(&ty) {
            inputs.extend(self.build.ints(&[0]));
        }
        let infos: Vec<_> = inputs.iter().map(|&v| self.build.info(v)).collect();
        let operands: Vec<_> = infos.iter().map(Operand::Present).collect();
        let signatures = ty.operation().unwrap().signatures;
        let found = signature::find(signatures, &operands, &[Operand::Present(&out)]).unwrap();
        self.last = self.build.call(ty, found.signature_index, &inputs, out);
    }

    fn add(&mut self, next: &Next) {
        match *next {
            Next::Unary(ty) => self.call(ty, &[self.last]),
            Next::Twice(ty) => self.call(ty, &[self.last; 2]),
            Next::Input(ty) => self.call(ty, &[self.input, self.last]),
            Next::Constant(ty, byte, first) => {
                let info = info(self.ty, &[1], 0.03);
                let value = match self.ty {
                    OperandType::TENSOR_FLOAT32 => self.build.constant(info, &[f32::from(byte) / 64.0 - 2.0]),
                    _ => self.build.constant(info, &[byte]),
                };
                let inputs = if first { [value, self.last] } else { [self.last, value] };
                self.call(ty, &inputs);
            }
        }
    }

    fn model(self) -> Subgraph {
        self.build.finish(self.last)
    }
}

fn info(ty: OperandType, dims: &[u32], scale: f32) -> TensorInfo {
    match ty {
        OperandType::TENSOR_FLOAT32 => TensorInfo::new(ty, dims),
        _ => TensorInfo::quantised(ty, dims, scale, 3),
    }
}

fn next() -> impl Strategy<Value = Next> {
    use OperationType::*;
    let unary = prop::sample::select(vec![LOGISTIC, TANH, HARD_SWISH, RELU6, RELU1]);
    let binary = || prop::sample::select(vec![ADD, MUL, SUB, MAXIMUM]);
    prop_oneof![
        unary.prop_map(Next::Unary),
        (prop::sample::select(vec![ADD, MUL, SUB]), any::<u8>(), any::<bool>())
            .prop_map(|(ty, byte, first)| Next::Constant(ty, byte, first)),
        prop::sample::select(vec![ADD, MUL, SUB]).prop_map(Next::Input),
        binary().prop_map(Next::Twice),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn merged_steps_make_the_same_bytes(
        calls in prop::collection::vec(next(), 2..20),
        signed in any::<bool>(),
        between in prop::option::of(0usize..2),
        count in 1u32..700,
        threads in 1usize..3,
    ) {
        let types = [OperandType::TENSOR_QUANT8_ASYMM, OperandType::TENSOR_QUANT8_ASYMM_SIGNED];
        let ty = types[usize::from(signed)];
        let mut sample = Sample::new(ty, &[1, count, 2]);
        calls.iter().for_each(|next| sample.add(next));
        let program = compile(&sample.model(), threads, between.map(|i| types[i]));
        let routine = &program.routines()[0];
        prop_assert!(!routine.merged.is_empty());
        let made = run(&program);
        prop_assert!(made == step_by_step(routine, true));
        prop_assert!(made == step_by_step(routine, false), "plainly");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merged_floats_are_those_of_the_kernels(
        calls in prop::collection::vec(next(), 2..40),
        count in 1u32..3000,
        threads in 1usize..3,
    ) {
        let mut sample = Sample::new(OperandType::TENSOR_FLOAT32, &[1, count, 2]);
        calls.iter().for_each(|next| sample.add(next));
        let program = compile(&sample.model(), threads, None);
        let routine = &program.routines()[0];
        prop_assert!(!routine.merged.is_empty());
        prop_assert!(run(&program) == step_by_step(routine, true));
    }

    #[test]
    fn bytes_become_bytes_by_floats_in_one_step(
        calls in prop::collection::vec(next(), 1..20),
        signed in any::<bool>(),
        count in 1u32..700,
    ) {
        let types = [OperandType::TENSOR_QUANT8_ASYMM, OperandType::TENSOR_QUANT8_ASYMM_SIGNED];
        let bytes = types[usize::from(signed)];
        let mut sample = Sample::new(bytes, &[1, count, 2]);
        sample.ty = OperandType::TENSOR_FLOAT32;
        sample.call(OperationType::DEQUANTIZE, &[sample.last]);
        (sample.input, sample.last) = (sample.last, sample.last);
        calls.iter().for_each(|next| sample.add(next));
        sample.ty = bytes;
        sample.call(OperationType::QUANTIZE, &[sample.last]);
        let program = compile(&sample.model(), 1, None);
        let routine = &program.routines()[0];
        let [merged] = &routine.merged[..] else { panic!("{} merged steps", routine.merged.len()) };
        prop_assert_eq!(merged.steps.clone(), 0..routine.steps.len());
        prop_assert!(run(&program) == step_by_step(routine, false));
    }
}

/// Programs of `calls`, compiled, and loaded from what is saved of it.
fn programs(ty: OperandType, calls: &[Next]) -> [Program; 2] {
    let mut sample = Sample::new(ty, &[1, 300, 2]);
    calls.iter().for_each(|next| sample.add(next));
    programs_of(&sample.model(), 1)
}

#[test]
fn a_swish_of_two_operations_is_one_step() {
    use OperandType::*;
    let swish = [Next::Unary(OperationType::LOGISTIC), Next::Input(OperationType::MUL)];
    for ty in [TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
        for program in programs(ty, &swish) {
            let routine = &program.routines()[0];
            let [merged] = &routine.merged[..] else { panic!("{} merged steps", routine.merged.len()) };
            assert_eq!(merged.steps, 0..2);
            assert!(run(&program) == step_by_step(routine, true), "{ty}");
        }
    }
}

#[test]
fn a_product_with_a_logistic_function_of_a_polynomial_is_one_loop_where_gelu_has_one() {
    use OperationType::{ADD, LOGISTIC, MUL};
    for factors in 1..9 {
        let mut sample = Sample::new(OperandType::TENSOR_FLOAT32, &[1, 300, 7]);
        let x = sample.input;
        let number = |sample: &mut Sample, i: usize| {
            sample.build.constant(f32_info(&[1]), &[[0.6f32, 0.3, -0.02, 0.001][i % 4]])
        };
        sample.call(MUL, &[x, x]);
        let (square, mut f) = (sample.last, number(&mut sample, 0));
        for i in 1..factors {
            sample.call(MUL, &[square, f]);
            let next = number(&mut sample, i);
            sample.call(ADD, &[sample.last, next]);
            f = sample.last;
        }
        sample.call(MUL, &[x, f]);
        sample.call(LOGISTIC, &[sample.last]);
        sample.call(MUL, &[x, sample.last]);
        for program in programs_of(&sample.model(), 1) {
            let routine = &program.routines()[0];
            assert!(run(&program) == step_by_step(routine, true), "{factors} factors");
            let kernels: Vec<_> = routine.merged.iter().map(|merged| merged.kernel.name()).collect();
            assert_eq!(
                kernels.iter().all(|name| !name.contains("tiles")),
                [2, 7].contains(&factors),
                "{kernels:?}"
            );
        }
    }
}

#[test]
fn what_somebody_else_reads_is_made() {
    // The logistic is read once more behind a sum with what goes back to something else.
    let mut sample = Sample::new(OperandType::TENSOR_FLOAT32, &[1, 300, 2]);
    let other = sample.build.constant(f32_info(&[1, 300, 2]), &floats(600, 1.0));
    sample.add(&Next::Unary(OperationType::LOGISTIC));
    let logistic = sample.last;
    sample.add(&Next::Input(OperationType::MUL));
    sample.call(OperationType::ADD, &[sample.last, other]);
    sample.call(OperationType::ADD, &[sample.last, logistic]);
    let program = compile(&sample.model(), 1, None);
    let routine = &program.routines()[0];
    assert!(routine.merged.is_empty());
    assert!(run(&program) == step_by_step(routine, true));
}

#[test]
fn what_needs_memory_for_many_values_at_once_is_not_one_step() {
    let mut sample = Sample::new(OperandType::TENSOR_FLOAT32, &[1, 300, 2]);
    let made: Vec<usize> = (0..12)
        .map(|_| {
            sample.call(OperationType::TANH, &[sample.input]);
            sample.last
        })
        .collect();
    // All of them are there until the last is made.
    for v in made.into_iter().rev() {
        sample.call(OperationType::ADD, &[sample.last, v]);
    }
    let program = compile(&sample.model(), 1, None);
    let routine = &program.routines()[0];
    assert!(routine.merged.iter().all(|merged| merged.steps.len() < routine.steps.len()));
    assert!(run(&program) == step_by_step(routine, true));
}
