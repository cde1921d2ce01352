//! Merged steps on rows against the same steps one by one.

use super::program::Program;
use super::routine::Place;
use super::samples::{compile, f32_info, floats, programs_of, run, step_by_step, Build};
use crate::model::Subgraph;
use crate::ops::signature::{self, Operand};
use crate::ops::OperationType;
use crate::ops::OperationType::*;
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;
use std::sync::Arc;

/// A call on what was made last of each kind: of all rows' elements, or of an element for each row.
#[derive(Clone, Debug)]
enum Next {
    Reduce(OperationType),
    Softmax,
    Row(OperationType),
    /// Of the input, and all elements.
    Input(OperationType),
    /// Of all elements, and one for each row.
    WithRow(OperationType, bool),
    /// Of all elements and a row of constants.
    WithConstants(OperationType, bool),
    /// All elements, of one for each row and a row of constants.
    Spread(OperationType),
}

struct Sample {
    build: Build,
    dims: Vec<u32>,
    input: usize,
    all: usize,
    row: Option<usize>,
}

impl Sample {
    fn new(dims: &[u32]) -> Self {
        let mut build = Build::new();
        let input = build.input(f32_info(dims));
        Sample { build, dims: dims.to_vec(), input, all: input, row: None }
    }

    fn of_rows(&self) -> Vec<u32> {
        let mut dims = self.dims.clone();
        *dims.last_mut().unwrap() = 1;
        dims
    }

    fn call(&mut self, ty: OperationType, inputs: &[usize], dims: &[u32]) -> usize {
        let mut inputs = inputs.to_vec();
        match ty {
            ADD | MUL | SUB => inputs.extend(self.build.ints(&[0])),
            MEAN => inputs.extend(self.build.ints(&[1])),
            REDUCE_MAX | REDUCE_SUM => {
                inputs.push(self.build.constant(TensorInfo::new(OperandType::BOOL, &[]), &[1u8]));
            }
            SOFTMAX => {
                inputs.push(self.build.constant(TensorInfo::new(OperandType::FLOAT32, &[]), &[1.5f32]))
            }
            _ => {}
        }
        let infos: Vec<_> = inputs.iter().map(|&v| self.build.info(v)).collect();
        let operands: Vec<_> = infos.iter().map(Operand::Present).collect();
        let out = f32_info(dims);
        let signatures = ty.operation().unwrap().signatures;
        let found = signature::find(signatures, &operands, &[Operand::Present(&out)]).unwrap();
        self.build.call(ty, found.signature_index, &inputs, out)
    }

    fn reduce(&mut self, ty: OperationType, of: usize, axes: &[i32]) -> usize {
        let axes =
            self.build.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[axes.len() as u32]), axes);
        let dims = self.of_rows();
        self.call(ty, &[of, axes], &dims)
    }

    fn constants(&mut self) -> usize {
        let len = *self.dims.last().unwrap();
        self.build.constant(f32_info(&[1, len]), &floats(len as usize, 4.0))
    }

    fn row(&mut self) -> usize {
        match self.row {
            Some(row) => row,
            None => self.reduce(MEAN, self.all, &[-1]),
        }
    }

    fn add(&mut self, next: &Next) {
        let (dims, rows) = (self.dims.clone(), self.of_rows());
        let ordered = |a, b, swapped| if swapped { [b, a] } else { [a, b] };
        match *next {
            Next::Reduce(ty) => self.row = Some(self.reduce(ty, self.all, &[-1])),
            Next::Softmax => self.all = self.call(SOFTMAX, &[self.all], &dims),
            Next::Row(ty) => {
                let row = self.row();
                self.row = Some(self.call(ty, &[row], &rows));
            }
            Next::Input(ty) => self.all = self.call(ty, &[self.input, self.all], &dims),
            Next::WithRow(ty, swapped) => {
                let row = self.row();
                self.all = self.call(ty, &ordered(self.all, row, swapped), &dims);
            }
            Next::WithConstants(ty, swapped) => {
                let constants = self.constants();
                self.all = self.call(ty, &ordered(self.all, constants, swapped), &dims);
            }
            Next::Spread(ty) => {
                let (row, constants) = (self.row(), self.constants());
                let spread = self.call(ty, &[row, constants], &dims);
                self.all = self.call(ADD, &[spread, self.all], &dims);
            }
        }
    }

    fn model(self) -> Subgraph {
        self.build.finish(self.all)
    }
}

fn next() -> impl Strategy<Value = Next> {
    let binary = || prop::sample::select(vec![ADD, MUL, SUB]);
    prop_oneof![
        prop::sample::select(vec![MEAN, REDUCE_MAX, REDUCE_SUM]).prop_map(Next::Reduce),
        Just(Next::Softmax),
        prop::sample::select(vec![NEG, LOGISTIC, ABS]).prop_map(Next::Row),
        binary().prop_map(Next::Input),
        (binary(), any::<bool>()).prop_map(|(ty, swapped)| Next::WithRow(ty, swapped)),
        (binary(), any::<bool>()).prop_map(|(ty, swapped)| Next::WithConstants(ty, swapped)),
        binary().prop_map(Next::Spread),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn merged_rows_are_those_of_the_kernels(
        calls in prop::collection::vec(next(), 1..12),
        batches in 1u32..3,
        rows in 1u32..60,
        len in prop_oneof![2u32..40, 250u32..260, 1020u32..1030, 4000u32..4200],
        threads in 1usize..3,
    ) {
        let mut sample = Sample::new(&[batches, rows, len]);
        calls.iter().for_each(|next| sample.add(next));
        sample.add(&Next::WithConstants(MUL, false));
        sample.add(&Next::Softmax);
        let program = compile(&sample.model(), threads, None);
        let routine = &program.routines()[0];
        prop_assert!(len > 4096 || !routine.merged.is_empty());
        prop_assert!(run(&program) == step_by_step(routine, true));
    }
}

/// A normalisation of rows as models have it.
fn normalisation() -> Sample {
    let mut sample = Sample::new(&[2, 30, 48]);
    let (dims, rows) = (sample.dims.clone(), sample.of_rows());
    let mean = sample.reduce(MEAN, sample.input, &[2]);
    let negative = sample.call(NEG, &[mean], &rows);
    let difference = sample.call(SUB, &[sample.input, mean], &dims);
    let square = sample.call(MUL, &[difference; 2], &dims);
    let variance = sample.reduce(MEAN, square, &[-1]);
    let little = sample.build.constant(f32_info(&[1]), &[0.001f32]);
    let variance = sample.call(ADD, &[variance, little], &rows);
    let scale = sample.call(RSQRT, &[variance], &rows);
    let constants = sample.constants();
    let scales = sample.call(MUL, &[scale, constants], &dims);
    let shifts = sample.call(MUL, &[negative, scales], &dims);
    let scaled = sample.call(MUL, &[sample.input, scales], &dims);
    sample.all = sample.call(ADD, &[scaled, shifts], &dims);
    sample
}

#[test]
fn a_normalisation_is_one_step() {
    for program in programs_of(&normalisation().model(), 2) {
        let routine = &program.routines()[0];
        let [merged] = &routine.merged[..] else { panic!("{} merged steps", routine.merged.len()) };
        assert_eq!(merged.steps, 0..routine.steps.len());
        assert!(run(&program) == step_by_step(routine, true));
    }
}

#[test]
fn what_goes_along_other_axes_is_not_merged() {
    // These keep their dimensions though they do not go by rows.
    let mut sample = Sample::new(&[5, 1, 48]);
    let mean = sample.reduce(MEAN, sample.input, &[1, 2]);
    sample.all = sample.call(SUB, &[sample.input, mean], &[5, 1, 48]);
    let program = compile(&sample.model(), 1, None);
    let routine = &program.routines()[0];
    assert!(run(&program) == step_by_step(routine, true));
}

#[test]
fn a_softmax_along_another_axis_is_not_merged() {
    let mut sample = Sample::new(&[5, 3, 48]);
    let input = sample.input;
    let doubled = sample.call(ADD, &[input, input], &[5, 3, 48]);
    let beta = sample.build.constant(TensorInfo::new(OperandType::FLOAT32, &[]), &[1.5f32]);
    let axis = sample.build.ints(&[0])[0];
    let infos = [doubled, beta, axis].map(|v| sample.build.info(v));
    let (operands, out) = (infos.each_ref().map(Operand::Present), f32_info(&[5, 3, 48]));
    let signatures = SOFTMAX.operation().unwrap().signatures;
    let found = signature::find(signatures, &operands, &[Operand::Present(&out)]).unwrap();
    sample.all = sample.build.call(SOFTMAX, found.signature_index, &[doubled, beta, axis], out);
    let program = compile(&sample.model(), 1, None);
    assert!(run(&program) == step_by_step(&program.routines()[0], true));
}

/// Along dimensions of one element, which are those along which a tile has its rows.
#[test]
fn folds_along_more_than_rows_are_the_same() {
    for (dims, axes) in [
        (&[1, 1, 1, 64][..], &[1, 2, 3][..]),
        (&[8, 1, 64], &[1, 2]),
        (&[8, 1, 64], &[2]),
        (&[1, 1, 2000], &[0, 1, -1]),
        (&[2, 8, 64], &[0]),
    ] {
        let mut sample = Sample::new(dims);
        let input = sample.input;
        let mut folded = dims.to_vec();
        axes.iter().for_each(|&axis: &i32| folded[axis.rem_euclid(dims.len() as i32) as usize] = 1);
        let list = TensorInfo::new(OperandType::TENSOR_INT32, &[axes.len() as u32]);
        let list = sample.build.constant(list, axes);
        let mean = sample.call(MEAN, &[input, list], &folded);
        let less = sample.call(SUB, &[input, mean], dims);
        sample.all = sample.call(MUL, &[less, less], dims);
        let program = compile(&sample.model(), 1, None);
        assert!(run(&program) == step_by_step(&program.routines()[0], true), "{dims:?} along {axes:?}");
    }
}

/// Constants of a client's that are more than what steers: what goes together goes by their bytes, here and when it is loaded.
#[test]
fn rows_of_a_clients_constants_are_merged_and_loaded_alike() {
    for depth in [192u32, 257, 768, 4096, 5000] {
        let dims = [2, 5, depth];
        let made = |b: &mut Build, is_clients: bool| {
            let input = b.input(f32_info(&dims));
            let row = |b: &mut Build, seed: f32| {
                let values = floats(depth as usize, seed);
                if is_clients {
                    b.clients(f32_info(&[depth]), &values)
                } else {
                    b.constant(f32_info(&[depth]), &values)
                }
            };
            let (scale, offset, none) = (row(b, 1.0), row(b, 5.0), b.ints(&[0])[0]);
            let scaled = b.call(MUL, 0, &[input, scale, none], f32_info(&dims));
            b.call(ADD, 0, &[scaled, offset, none], f32_info(&dims))
        };
        let [own, clients] = [false, true].map(|is_clients| {
            let mut b = Build::new();
            let out = made(&mut b, is_clients);
            b.finish(out)
        });
        let expected = run(&compile(&own, 1, None));
        let compiled = compile(&own, 1, None);
        let merged = compiled.routines()[0].merged.len();
        for program in programs_of(&clients, 2) {
            assert_eq!(program.routines()[0].merged.len(), merged, "{depth}");
            assert_eq!(run(&program), expected, "{depth}");
        }
    }
}

/// Nor are they copied: copies would be on nobody's account until all of them were there.
#[test]
fn merged_rows_are_those_of_the_routine() {
    const DEPTH: u32 = 768;
    let mut b = Build::new();
    let input = b.input(f32_info(&[5, DEPTH]));
    let row = b.clients(f32_info(&[DEPTH]), &floats(DEPTH as usize, 1.0));
    let none = b.ints(&[0])[0];
    let scaled = b.call(MUL, 0, &[input, row, none], f32_info(&[5, DEPTH]));
    let sum = b.call(ADD, 0, &[scaled, row, none], f32_info(&[5, DEPTH]));
    let model = b.finish(sum);
    for program in programs_of(&model, 2) {
        let routine = &program.routines()[0];
        assert_eq!(routine.merged.len(), 1);
        let Place::Constant(_, bytes) = &routine.values[row].place else { panic!("it is needed") };
        assert_eq!(Arc::strong_count(bytes), 3, "the routine's, and both calls'");
    }
}

/// The same of what a product is gone on with.
#[test]
fn products_are_gone_on_with_by_a_clients_constants_and_loaded_alike() {
    for depth in [64u32, 300, 768] {
        let mut b = Build::new();
        let input = b.input(f32_info(&[6, 32]));
        let weights = b.clients(f32_info(&[depth, 32]), &floats(32 * depth as usize, 1.0));
        let bias = b.clients(f32_info(&[depth]), &floats(depth as usize, 2.0));
        let scale = b.clients(f32_info(&[depth]), &floats(depth as usize, 3.0));
        let none = b.ints(&[0])[0];
        let product = b.call(FULLY_CONNECTED, 0, &[input, weights, bias, none], f32_info(&[6, depth]));
        let scaled = b.call(MUL, 0, &[product, scale, none], f32_info(&[6, depth]));
        let model = b.finish(scaled);
        let [compiled, loaded] = programs_of(&model, 2);
        let followed = |program: &Program| program.routines()[0].followed.len();
        assert_eq!(followed(&compiled), followed(&loaded), "{depth}");
        assert_eq!(run(&compiled), run(&loaded), "{depth}");
        assert_eq!(run(&compiled), step_by_step(&compiled.routines()[0], true), "{depth}");
    }
}
