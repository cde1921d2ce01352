//! Calls that have nothing to do, against the same calls done one by one.

use super::program::Program;
use super::samples::{compile, f32_info, programs_of, run, step_by_step, Build};
use crate::model::Subgraph;
use crate::ops::OperationType::*;
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;

/// A row of so many elements is what all values are.
const WIDTH: u32 = 24;

/// A call on values that are there already, counted from the last.
#[derive(Clone, Debug)]
enum Next {
    Abs(usize),
    Add(usize, usize),
    Flatten(usize),
    Halves(usize),
    Slice(usize, u32, u32),
    Together(Vec<usize>),
}

struct Sample {
    build: Build,
    /// Values with their rows.
    values: Vec<(usize, u32)>,
}

impl Sample {
    fn new(rows: u32) -> Self {
        let mut build = Build::new();
        let input = build.input(f32_info(&[rows, WIDTH]));
        // What is an input stays where it is.
        let first = build.call(ABS, 0, &[input], f32_info(&[rows, WIDTH]));
        Sample { build, values: vec![(first, rows)] }
    }

    fn value(&self, from_last: usize) -> (usize, u32) {
        self.values[self.values.len() - 1 - from_last % self.values.len()]
    }

    fn shape(&mut self, dims: &[u32]) -> usize {
        let dims: Vec<i32> = dims.iter().map(|&d| d as i32).collect();
        self.build.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[dims.len() as u32]), &dims)
    }

    fn call(&mut self, ty: crate::ops::OperationType, inputs: &[usize], rows: u32) {
        let made = self.build.call(ty, 0, inputs, f32_info(&[rows, WIDTH]));
        self.values.push((made, rows));
    }

    fn add(&mut self, next: &Next) {
        match next {
            Next::Abs(i) => {
                let (v, rows) = self.value(*i);
                self.call(ABS, &[v], rows);
            }
            Next::Add(i, j) => {
                let ((a, rows), (b, others)) = (self.value(*i), self.value(*j));
                if rows == others {
                    let none = self.build.ints(&[0])[0];
                    self.call(ADD, &[a, b, none], rows);
                }
            }
            Next::Flatten(i) => {
                let (v, rows) = self.value(*i);
                let shape = self.shape(&[rows * WIDTH]);
                let flat = self.build.call(RESHAPE, 0, &[v, shape], f32_info(&[rows * WIDTH]));
                let shape = self.shape(&[rows, WIDTH]);
                self.call(RESHAPE, &[flat, shape], rows);
            }
            Next::Halves(i) => {
                let (v, rows) = self.value(*i);
                if rows % 2 == 0 {
                    let how = self.build.ints(&[0, 2]);
                    let infos = vec![f32_info(&[rows / 2, WIDTH]); 2];
                    let halves = self.build.call_of_many(SPLIT, 0, &[v, how[0], how[1]], &infos);
                    self.values.extend(halves.into_iter().map(|half| (half, rows / 2)));
                }
            }
            Next::Slice(i, first, count) => {
                let (v, rows) = self.value(*i);
                let first = first % rows;
                let count = 1 + count % (rows - first);
                let (from, size) = (self.shape(&[first, 0]), self.shape(&[count, WIDTH]));
                self.call(SLICE, &[v, from, size], count);
            }
            Next::Together(list) => {
                let list: Vec<_> = list.iter().map(|&i| self.value(i)).collect();
                let rows: u32 = list.iter().map(|(_, rows)| rows).sum();
                if rows <= 64 {
                    let mut inputs: Vec<_> = list.into_iter().map(|(v, _)| v).collect();
                    inputs.extend(self.build.ints(&[0]));
                    self.call(CONCATENATION, &inputs, rows);
                }
            }
        }
    }

    /// A model that makes all values that were not read yet, and more, into its output.
    fn finish(mut self) -> Subgraph {
        let all: Vec<usize> = (0..self.values.len().min(12)).collect();
        let list: Vec<_> = all.into_iter().map(|i| self.value(i)).collect();
        let mut inputs: Vec<_> = list.iter().map(|(v, _)| *v).collect();
        let rows = list.iter().map(|(_, rows)| rows).sum();
        inputs.extend(self.build.ints(&[0]));
        let out = self.build.call(CONCATENATION, 0, &inputs, f32_info(&[rows, WIDTH]));
        self.build.finish(out)
    }
}

fn model(rows: u32, calls: &[Next]) -> Subgraph {
    let mut sample = Sample::new(rows);
    calls.iter().for_each(|next| sample.add(next));
    sample.finish()
}

/// How many calls of a program have nothing to do.
fn in_place(program: &Program) -> usize {
    program.routines()[0].steps.iter().filter(|step| step.in_place).count()
}

fn next() -> impl Strategy<Value = Next> {
    let i = || 0usize..6;
    prop_oneof![
        i().prop_map(Next::Abs),
        (i(), i()).prop_map(|(i, j)| Next::Add(i, j)),
        i().prop_map(Next::Flatten),
        i().prop_map(Next::Halves),
        (i(), 0u32..8, 0u32..8).prop_map(|(i, first, count)| Next::Slice(i, first, count)),
        proptest::collection::vec(i(), 1..4).prop_map(Next::Together),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

    #[test]
    fn what_is_not_done_gives_what_doing_it_gives(
        rows in 1u32..9, calls in proptest::collection::vec(next(), 1..16)
    ) {
        let model = model(rows, &calls);
        for program in programs_of(&model, 1) {
            prop_assert_eq!(run(&program), step_by_step(&program.routines()[0], false));
        }
    }
}

#[test]
fn pieces_and_what_is_put_together_are_not_copied() {
    // The last call of each model makes its output.
    let cases: [(&str, &[Next], usize); 8] = [
        ("reshaped", &[Next::Flatten(0)], 2),
        ("split", &[Next::Halves(0)], 1),
        ("sliced", &[Next::Slice(0, 1, 2)], 1),
        ("put together", &[Next::Abs(0), Next::Together(vec![0, 1]), Next::Abs(0)], 1),
        ("pieces of pieces", &[Next::Halves(0), Next::Halves(0), Next::Slice(0, 0, 0)], 3),
        (
            "put together from what was",
            &[Next::Abs(0), Next::Together(vec![0, 1]), Next::Abs(1), Next::Together(vec![0, 1])],
            2,
        ),
        ("a piece has its place already", &[Next::Halves(0), Next::Together(vec![0, 1]), Next::Abs(0)], 1),
        ("nothing has two places", &[Next::Abs(0), Next::Together(vec![0, 0]), Next::Abs(0)], 0),
    ];
    for (what, calls, expected) in cases {
        for program in programs_of(&model(4, calls), 1) {
            assert_eq!(in_place(&program), expected, "{what}");
        }
    }
}

#[test]
fn columns_and_pieces_of_much_are_copied() {
    let mut b = Build::new();
    let input = b.input(f32_info(&[4, 8]));
    let made = b.call(ABS, 0, &[input], f32_info(&[4, 8]));
    let how = b.ints(&[1, 2]);
    let halves = b.call_of_many(SPLIT, 0, &[made, how[0], how[1]], &vec![f32_info(&[4, 4]); 2]);
    let none = b.ints(&[0])[0];
    let sum = b.call(ADD, 0, &[halves[0], halves[1], none], f32_info(&[4, 4]));
    assert_eq!(in_place(&compile(&b.finish(sum), 1, None)), 0);

    // All of it would stay for a row of it.
    let mut sample = Sample::new(1 << 10);
    sample.add(&Next::Slice(0, 1, 0));
    let (v, _) = sample.value(0);
    let out = sample.build.call(ABS, 0, &[v], f32_info(&[1, WIDTH]));
    assert_eq!(in_place(&compile(&sample.build.finish(out), 1, None)), 0);
}

#[test]
fn what_only_a_run_knows_has_no_place() {
    let mut b = Build::new();
    let unknown = f32_info(&[0, WIDTH]);
    let input = b.input(unknown.clone());
    let made = b.call(ABS, 0, &[input], f32_info(&[]));
    let axis = b.ints(&[0])[0];
    let both = b.call(CONCATENATION, 0, &[made, made, axis], f32_info(&[]));
    let how = b.ints(&[0, 2]);
    let halves = b.call_of_many(SPLIT, 0, &[both, how[0], how[1]], &vec![f32_info(&[]); 2]);
    let none = b.ints(&[0])[0];
    let sum = b.call(ADD, 0, &[halves[0], halves[1], none], unknown);
    assert_eq!(in_place(&compile(&b.finish(sum), 1, None)), 0);
}
