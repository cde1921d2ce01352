//! Convolutions in parts against the plain evaluation.

use crate::backend::cpu::kernels::forms::tests::CASES;
use crate::backend::cpu::kernels::tests::{compare, kind, operands, Kind, Noise};
use crate::ops::testing::{boolean, i32s, int};
use crate::ops::OperationType;
use proptest::prelude::*;

fn run_grouped(
    kind: Kind,
    (batches, height, width): (u32, u32, u32),
    (groups, from, to): (u32, u32, u32),
    (kernel, stride, scheme): (u32, i32, i32),
    activation: i32,
    seed: u32,
) -> Result<bool, TestCaseError> {
    let (input, filter) = ([batches, height, width, groups * from], [groups * to, kernel, kernel, from]);
    let (mut inputs, output) = operands(&mut Noise(seed), kind, &input, &filter, 0);
    inputs.extend([scheme, stride, stride, groups as i32, activation].map(int));
    inputs.push(boolean(false));
    compare(OperationType::GROUPED_CONV_2D.operation().unwrap(), 0, &inputs, output, 3)
}

/// How the output's size is told.
#[derive(Clone, Copy, Debug)]
enum Size {
    /// So much more than the inputs cover, or less, along both dimensions.
    Same(i32),
    /// Paddings: left, right, top, bottom.
    Explicit([i32; 4]),
}

fn run_transposed(
    kind: Kind,
    (batches, height, width): (u32, u32, u32),
    (from, to): (u32, u32),
    (kernel, stride): ([u32; 2], [i32; 2]),
    size: Size,
    activation: i32,
    seed: u32,
) -> Result<bool, TestCaseError> {
    let (input, filter) = ([batches, height, width, from], [to, kernel[0], kernel[1], from]);
    let (mut inputs, output) = operands(&mut Noise(seed), kind, &input, &filter, 0);
    let signature_index = match size {
        Size::Same(more) => {
            let cells = |input: u32, stride: i32| (input as i32 * stride + more).max(1);
            let shape = [batches as i32, cells(height, stride[0]), cells(width, stride[1]), to as i32];
            inputs.extend([i32s(&[4], &shape), int(1)]);
            0
        }
        Size::Explicit(paddings) => {
            inputs.extend(paddings.map(int));
            1
        }
    };
    inputs.extend([stride[1], stride[0], activation].map(int));
    inputs.push(boolean(false));
    compare(OperationType::TRANSPOSE_CONV_2D.operation().unwrap(), signature_index, &inputs, output, 3)
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        (-2i32..3).prop_map(Size::Same),
        [0i32..4, 0i32..4, 0i32..4, 0i32..4].prop_map(Size::Explicit),
        [0i32..7, -2i32..7, 0i32..7, -2i32..7].prop_map(Size::Explicit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn grouped_convolutions_equal_the_plain_one(
        kind in kind(), dims in (0u32..3, 1u32..9, 1u32..9), channels in (1u32..5, 1u32..20, 1u32..40),
        window in (1u32..4, 1i32..3, 1i32..3), activation in 0i32..4, seed in any::<u32>(),
    ) {
        run_grouped(kind, dims, channels, window, activation, seed)?;
        // Images of one pixel are the rows of a fully connected layer, whose sums are rounded once.
        run_grouped(kind, (dims.0, 1, 1), channels, window, activation, seed)?;
    }

    #[test]
    fn transposed_convolutions_equal_the_plain_one(
        kind in kind(), dims in (0u32..3, 1u32..7, 1u32..7), channels in (1u32..20, 1u32..40),
        window in ([1u32..6, 1u32..6], [1i32..4, 1i32..4]), size in size(), activation in 0i32..4, seed in any::<u32>(),
    ) {
        run_transposed(kind, dims, channels, window, size, activation, seed)?;
    }
}

/// Sizes at which rows are made in bands, and that models have.
#[test]
fn there_are_kernels_for_the_common_calls() {
    for kind in [Kind::Float, Kind::Unsigned, Kind::Signed, Kind::PerChannel] {
        let grouped = |groups, each| run_grouped(kind, (1, 19, 17), (groups, each, each), (3, 1, 1), 1, 1);
        assert!(grouped(32, 4).unwrap() && grouped(2, 35).unwrap(), "{kind:?}");
        for (kernel, stride) in [(2, 2), (3, 2), (4, 2), (5, 2), (3, 1), (16, 8), (3, 3)] {
            let window = ([kernel; 2], [stride; 2]);
            let found = run_transposed(kind, (1, 7, 9), (5, 3), window, Size::Same(0), 0, 1).unwrap();
            assert!(found, "{kind:?}: {kernel} over {stride}");
        }
        let wide = ([4, 4], [2, 2]);
        assert!(run_transposed(kind, (1, 50, 51), (3, 20), wide, Size::Explicit([1; 4]), 0, 1).unwrap());
    }
}
