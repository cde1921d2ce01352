//! Steps whose outputs others go on with, against the same steps one by one.

use super::samples::{compile, floats, programs_of, run, step_by_step, Build};
use crate::model::Subgraph;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;

/// What makes an image that is gone on with.
#[derive(Clone, Copy, Debug)]
enum Maker {
    /// With a square filter of this side.
    Convolution(u32),
    Depthwise(u32),
    /// A sum of two images.
    Sum,
    /// A function of one.
    Logistic,
}

/// What goes on with it.
#[derive(Clone, Copy, Debug)]
enum Onward {
    Unary(OperationType),
    /// LOGISTIC, and a product with it.
    Swish,
    /// HARD_SWISH, a product with itself, and a sum with what was made.
    Merged,
    /// With what the model's input is made by a first convolution; whether that comes first.
    With(OperationType, bool),
    /// With a constant, which is repeated.
    Repeated(OperationType, Repeat),
    /// A sum, a product with a number for each channel, and HARD_SWISH.
    Several,
}

/// What is repeated.
#[derive(Clone, Copy, Debug)]
enum Repeat {
    /// A number for each channel.
    Channels,
    /// A row of the image.
    Rows,
}

/// A model: a first convolution, `maker`, `onward`, and one more operation.
#[derive(Clone, Debug)]
struct Sample {
    ty: OperandType,
    size: u32,
    channels: u32,
    maker: Maker,
    onward: Onward,
}

impl Sample {
    fn info(&self, dims: &[u32], scale: f32) -> TensorInfo {
        match self.ty {
            OperandType::TENSOR_FLOAT32 => TensorInfo::new(self.ty, dims),
            ty => TensorInfo::quantised(ty, dims, scale, 3),
        }
    }

    fn image(&self, scale: f32) -> TensorInfo {
        self.info(&[1, self.size, self.size, self.channels], scale)
    }

    fn filter(&self, b: &mut Build, dims: &[u32], scale: f32, seed: f32) -> [usize; 2] {
        let (values, biases) =
            (floats(dims.iter().product::<u32>() as usize, seed), floats(self.channels as usize, 5.0));
        if self.ty == OperandType::TENSOR_FLOAT32 {
            let filter = b.constant(self.info(dims, 0.0), &values);
            return [filter, b.constant(self.info(&[self.channels], 0.0), &biases)];
        }
        let bytes: Vec<i8> = values.iter().map(|x| (x * 100.0) as i8).collect();
        let sums: Vec<i32> = biases.iter().map(|x| (x * 500.0) as i32).collect();
        let filter = b.constant(self.info(dims, 0.01), &bytes);
        let bias = TensorInfo::quantised(OperandType::TENSOR_INT32, &[self.channels], scale * 0.01, 0);
        [filter, b.constant(bias, &sums)]
    }

    fn make(&self, b: &mut Build, maker: Maker, from: usize, seed: f32) -> usize {
        let channels = self.channels;
        // Nothing goes on with a pool, nor is it merged.
        let pool = |b: &mut Build| {
            let mut inputs = vec![from];
            inputs.extend(b.ints(&[1, 1, 1, 1, 1, 0]));
            b.call(OperationType::MAX_POOL_2D, 0, &inputs, b.info(from))
        };
        let (ty, dims, numbers) = match maker {
            Maker::Sum => {
                let pooled = pool(b);
                return self.binary(b, OperationType::ADD, [pooled, from]);
            }
            Maker::Logistic => {
                let pooled = pool(b);
                return self.unary(b, OperationType::LOGISTIC, pooled);
            }
            Maker::Convolution(side) => {
                (OperationType::CONV_2D, [channels, side, side, channels], &[1, 1, 1, 0][..])
            }
            Maker::Depthwise(side) => {
                (OperationType::DEPTHWISE_CONV_2D, [1, side, side, channels], &[1, 1, 1, 1, 0][..])
            }
        };
        let (mut inputs, scale) = (vec![from], b.info(from).scale);
        inputs.extend(self.filter(b, &dims, scale, seed));
        inputs.extend(b.ints(numbers));
        b.call(ty, 0, &inputs, self.image(0.05))
    }

    fn model(&self) -> Subgraph {
        let mut b = Build::new();
        let input = b.input(self.image(0.05));
        let first = self.make(&mut b, Maker::Convolution(1), input, 1.0);
        let made = self.make(&mut b, self.maker, first, 2.0);
        let last = self.go_on(&mut b, made, first);
        let out = self.make(&mut b, Maker::Depthwise(1), last, 3.0);
        b.finish(out)
    }

    fn go_on(&self, b: &mut Build, made: usize, other: usize) -> usize {
        match self.onward {
            Onward::Unary(ty) => self.unary(b, ty, made),
            Onward::Swish => {
                let sigmoid = self.unary(b, OperationType::LOGISTIC, made);
                self.binary(b, OperationType::MUL, [sigmoid, made])
            }
            Onward::Merged => {
                let activated = self.unary(b, OperationType::HARD_SWISH, made);
                let square = self.binary(b, OperationType::MUL, [activated; 2]);
                self.binary(b, OperationType::ADD, [made, square])
            }
            Onward::With(ty, true) => self.binary(b, ty, [other, made]),
            Onward::With(ty, false) => self.binary(b, ty, [made, other]),
            Onward::Repeated(ty, repeat) => self.repeated(b, ty, made, repeat),
            Onward::Several => {
                let sum = self.binary(b, OperationType::ADD, [other, made]);
                let product = self.repeated(b, OperationType::MUL, sum, Repeat::Channels);
                self.unary(b, OperationType::HARD_SWISH, product)
            }
        }
    }

    fn unary(&self, b: &mut Build, ty: OperationType, from: usize) -> usize {
        let mut out = self.image(0.05);
        if ty == OperationType::LOGISTIC && self.ty != OperandType::TENSOR_FLOAT32 {
            let zero_point = if self.ty == OperandType::TENSOR_QUANT8_ASYMM { 0 } else { -128 };
            out = TensorInfo { scale: 1.0 / 256.0, zero_point, ..out };
        }
        b.call(ty, 0, &[from], out)
    }

    fn repeated(&self, b: &mut Build, ty: OperationType, made: usize, repeat: Repeat) -> usize {
        let dims = match repeat {
            Repeat::Channels => vec![self.channels],
            Repeat::Rows => vec![self.size, self.channels],
        };
        let (info, count) = (self.info(&dims, 0.01), dims.iter().product::<u32>() as usize);
        let values = floats(count, 9.0);
        let constant = match self.ty {
            OperandType::TENSOR_FLOAT32 => b.constant(info, &values),
            _ => b.constant(info, &values.iter().map(|x| (x * 100.0) as i8).collect::<Vec<_>>()),
        };
        match ty {
            OperationType::PRELU => b.call(ty, 0, &[made, constant], self.image(0.05)),
            _ => self.binary(b, ty, [made, constant]),
        }
    }

    fn binary(&self, b: &mut Build, ty: OperationType, inputs: [usize; 2]) -> usize {
        let mut inputs = inputs.to_vec();
        inputs.extend(b.ints(&[0]));
        b.call(ty, 0, &inputs, self.image(0.05))
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    use OperationType::*;
    let ty = prop::sample::select(vec![
        OperandType::TENSOR_FLOAT32,
        OperandType::TENSOR_QUANT8_ASYMM,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
    ]);
    let side = || prop::sample::select(vec![1u32, 3]);
    let maker = prop_oneof![
        side().prop_map(Maker::Convolution),
        side().prop_map(Maker::Depthwise),
        Just(Maker::Sum),
        Just(Maker::Logistic),
    ];
    let onward = prop_oneof![
        prop::sample::select(vec![HARD_SWISH, LOGISTIC]).prop_map(Onward::Unary),
        Just(Onward::Swish),
        Just(Onward::Merged),
        (prop::sample::select(vec![ADD, SUB, MUL]), any::<bool>())
            .prop_map(|(ty, first)| Onward::With(ty, first)),
        (prop::sample::select(vec![PRELU, MUL]), prop::sample::select(vec![Repeat::Channels, Repeat::Rows]))
            .prop_map(|(ty, repeat)| Onward::Repeated(ty, repeat)),
        Just(Onward::Several),
    ];
    // A depthwise filter as large as the image has another kernel.
    let all = (ty, 2u32..20, 1u32..100, maker, onward);
    all.prop_map(|(ty, size, channels, maker, onward)| Sample { ty, size, channels, maker, onward })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_gone_on_with_becomes_the_same(sample in samples(), threads in 1usize..4) {
        for program in programs_of(&sample.model(), threads) {
            let routine = &program.routines()[0];
            // Functions of functions of one operand are merged, and of floats those with a constant for each channel.
            let is_merged = matches!(sample.maker, Maker::Logistic)
                && match sample.onward {
                    Onward::With(..) | Onward::Several | Onward::Repeated(_, Repeat::Rows) => false,
                    Onward::Repeated(..) => sample.ty == OperandType::TENSOR_FLOAT32,
                    _ => true,
                };
            // One number for all does not count as a row that repeats.
            let is_one = sample.channels == 1 && matches!(sample.onward, Onward::Repeated(_, Repeat::Channels));
            prop_assert!(is_one || routine.followed.is_empty() == is_merged, "{:?}", sample);
            prop_assert!(run(&program) == step_by_step(routine, true));
        }
    }
}

const SAMPLE: Sample = Sample {
    ty: OperandType::TENSOR_FLOAT32,
    size: 8,
    channels: 24,
    maker: Maker::Convolution(1),
    onward: Onward::Unary(OperationType::HARD_SWISH),
};

/// Which steps of a model go together.
fn followed(b: Build, output: usize) -> Vec<std::ops::Range<usize>> {
    let program = compile(&b.finish(output), 1, None);
    let routine = &program.routines()[0];
    assert!(run(&program) == step_by_step(routine, true));
    routine.followed.iter().map(|followed| followed.steps.clone()).collect()
}

#[test]
fn several_go_on_with_the_same_output_and_what_leaves_the_model_is_made_of_it() {
    for leaves in [false, true] {
        let mut b = Build::new();
        let input = b.input(SAMPLE.image(0.0));
        let made = SAMPLE.make(&mut b, Maker::Convolution(1), input, 1.0);
        let sum = SAMPLE.binary(&mut b, OperationType::ADD, [made, input]);
        let alpha = SAMPLE.repeated(&mut b, OperationType::PRELU, sum, Repeat::Channels);
        let last = SAMPLE.binary(&mut b, OperationType::MUL, [input, alpha]);
        let out = if leaves { last } else { SAMPLE.make(&mut b, Maker::Depthwise(1), last, 1.0) };
        let end = if leaves { 3 } else { 4 };
        assert!(followed(b, out).into_iter().eq(std::iter::once(0..end)), "{leaves}");
    }
}

#[test]
fn what_leaves_the_model_is_made_by_itself() {
    let mut b = Build::new();
    let input = b.input(SAMPLE.image(0.0));
    let made = SAMPLE.make(&mut b, Maker::Convolution(1), input, 1.0);
    let last = SAMPLE.go_on(&mut b, made, input);
    assert!(followed(b, last).is_empty());
}

#[test]
fn what_somebody_else_reads_is_made() {
    let mut b = Build::new();
    let input = b.input(SAMPLE.image(0.0));
    let made = SAMPLE.make(&mut b, Maker::Convolution(1), input, 1.0);
    let onward = SAMPLE.go_on(&mut b, made, input);
    // The sum reads it, too; it goes on with nothing, as another step lies between.
    let again = SAMPLE.make(&mut b, Maker::Depthwise(1), onward, 1.0);
    let sum = SAMPLE.binary(&mut b, OperationType::ADD, [again, made]);
    let out = SAMPLE.make(&mut b, Maker::Depthwise(1), sum, 1.0);
    assert!(followed(b, out).into_iter().eq(std::iter::once(2..4)));
}

#[test]
fn a_product_with_itself_is_made_by_itself() {
    let mut b = Build::new();
    let input = b.input(SAMPLE.image(0.0));
    let made = SAMPLE.make(&mut b, Maker::Convolution(1), input, 1.0);
    let square = SAMPLE.binary(&mut b, OperationType::MUL, [made; 2]);
    let out = SAMPLE.make(&mut b, Maker::Depthwise(1), square, 1.0);
    assert!(followed(b, out).is_empty());
}

/// What the second products of an attention are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    Constant,
    /// Made of the input behind the first products. There must be as many rows as columns.
    Made,
    /// Columns of matrices.
    Transposed,
    /// Matrices that are multiplied twice.
    Twice,
}

/// Products of pairs of matrices, of which a fraction's softmax is taken, times others.
fn attention(batches: u32, size: [u32; 3], of: Values) -> Build {
    masked_attention(batches, size, of, None)
}

/// The same, or with a mask of these dimensions added to the products and nothing else done.
fn masked_attention(
    batches: u32,
    [rows, depth, columns]: [u32; 3],
    of: Values,
    mask: Option<&[u32]>,
) -> Build {
    let (mut b, dims) = (Build::new(), [batches, rows, depth]);
    let input = b.input(SAMPLE.info(&dims, 0.0));
    let constant = |b: &mut Build, dims: &[u32], seed: f32| {
        let values = floats(dims.iter().product::<u32>() as usize, seed);
        b.constant(SAMPLE.info(dims, 0.0), &values)
    };
    let flags =
        |b: &mut Build| [0, 1].map(|flag| b.constant(TensorInfo::new(OperandType::BOOL, &[]), &[flag as u8]));
    let [no, yes] = flags(&mut b);
    let left = b.call(OperationType::ABS, 0, &[input], SAMPLE.info(&dims, 0.0));
    let keys = constant(&mut b, &[batches, columns, depth], 3.0);
    let scores = SAMPLE.info(&[batches, rows, columns], 0.0);
    let made = b.call(OperationType::BATCH_MATMUL, 0, &[left, keys, no, yes], scores.clone());
    let (scale, none) = (b.constant(SAMPLE.info(&[1], 0.0), &[0.25f32]), b.ints(&[0])[0]);
    let beta = b.constant(TensorInfo::new(OperandType::FLOAT32, &[]), &[1.5f32]);
    let shares = match mask {
        Some(dims) => {
            let mask = constant(&mut b, dims, 5.0);
            b.call(OperationType::ADD, 0, &[made, mask, none], scores)
        }
        None => {
            let scaled = b.call(OperationType::MUL, 0, &[made, scale, none], scores.clone());
            b.call(OperationType::SOFTMAX, 0, &[scaled, beta], scores)
        }
    };
    let (turned, height) = if of == Values::Transposed { (yes, columns) } else { (no, rows) };
    let values = match of {
        Values::Made => b.call(OperationType::ABS, 0, &[left], SAMPLE.info(&dims, 0.0)),
        Values::Transposed => constant(&mut b, &[batches, rows, depth], 7.0),
        _ => constant(&mut b, &[batches, columns, depth], 7.0),
    };
    let out = SAMPLE.info(&[batches, height, depth], 0.0);
    let product =
        |b: &mut Build| b.call(OperationType::BATCH_MATMUL, 0, &[shares, values, turned, no], out.clone());
    let first = product(&mut b);
    if of == Values::Twice {
        let again = product(&mut b);
        b.call(OperationType::ADD, 0, &[first, again, none], out.clone());
    }
    b
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_of_products_of_pairs_are_gone_on_with_and_multiplied(
        batches in 1u32..4, rows in 1u32..200, depth in 1u32..40, columns in 2u32..300, threads in 1usize..4,
    ) {
        let b = attention(batches, [rows, depth, columns], Values::Constant);
        let output = b.last();
        for program in programs_of(&b.finish(output), threads) {
            let routine = &program.routines()[0];
            prop_assert_eq!(routine.followed.iter().map(|followed| followed.steps.clone()).collect::<Vec<_>>(), vec![1..5]);
            prop_assert!(routine.followed[0].is_multiplied);
            prop_assert!(run(&program) == step_by_step(routine, true));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A mask has its element for each product, wherever the rows are that are gone on with.
    #[test]
    fn rows_of_products_of_pairs_are_masked_each_with_its_own(
        batches in 1u32..4, rows in 1u32..250, columns in 2u32..200, of_batch in any::<bool>(), of_row in any::<bool>(),
        threads in 1usize..4,
    ) {
        let mask = [if of_batch { batches } else { 1 }, if of_row { rows } else { 1 }, columns];
        let b = masked_attention(batches, [rows, 20, columns], Values::Constant, Some(&mask));
        let output = b.last();
        for program in programs_of(&b.finish(output), threads) {
            let routine = &program.routines()[0];
            prop_assert!(run(&program) == step_by_step(routine, true), "{:?}", mask);
        }
    }
}

/// That test is of rows that are gone on with.
#[test]
fn masks_are_added_between_the_products() {
    for mask in [[3, 230, 70], [1, 230, 70], [1, 1, 70]] {
        let b = masked_attention(3, [230, 20, 70], Values::Constant, Some(&mask));
        let output = b.last();
        assert!(followed(b, output).into_iter().eq(std::iter::once(1..4)), "{mask:?}");
    }
}

#[test]
fn matrices_that_are_made_between_the_products_come_before_both() {
    let b = attention(3, [70, 20, 70], Values::Made);
    let output = b.last();
    assert!(followed(b, output).into_iter().eq(std::iter::once(2..6)));
}

#[test]
fn what_is_multiplied_twice_or_by_columns_is_made() {
    for of in [Values::Twice, Values::Transposed] {
        let b = attention(2, [70, 20, 50], of);
        let output = b.last();
        assert!(followed(b, output).into_iter().eq(std::iter::once(1..4)), "{of:?}");
    }
}

#[test]
fn rows_of_a_matrix_too_large_to_be_packed_at_once_are_made() {
    let b = attention(1, [3, 150, 2000], Values::Constant);
    let output = b.last();
    assert!(followed(b, output).is_empty());
}
