//! Against the plain evaluation, byte for byte, at the edges of what sums can be, and which convolutions go this way.

use super::super::isa::{Isa, Level};
use super::super::tests::{compare, Kind};
use super::bytes::is_taken;
use super::tests::{Call, CALL};
use crate::backend::cpu::kernels::select_for;
use crate::backend::cpu::kernels::Source;
use crate::memory::Slab;
use crate::ops::conv::ConvGeometry;
use crate::ops::testing::{InterruptedAfter, Tensor};
use crate::ops::{Interrupt, NeverInterrupted, OperationType};
use crate::tensor::TensorInfo;
use proptest::prelude::*;

const KINDS: [Kind; 3] = [Kind::Unsigned, Kind::Signed, Kind::PerChannel];
const BYTES: Call = Call { kind: Kind::PerChannel, ..CALL };

/// Where all convolutions that can go this way do, if the machine has it.
fn avx2() -> Option<Isa> {
    of_level(Level::Avx2)
}

fn of_level(level: Level) -> Option<Isa> {
    Isa::available().into_iter().find(|isa| isa.level() == level)
}

fn is_taken_on(isa: Isa, call: &Call) -> bool {
    call.with(&call.inputs(1).0, &NeverInterrupted, |args| {
        is_taken(isa, args, &ConvGeometry::from_args(args).unwrap())
    })
}

fn equals_the_plain_one(
    inputs: &[Tensor],
    output: TensorInfo,
    threads: usize,
) -> Result<bool, TestCaseError> {
    compare(OperationType::CONV_2D.operation().unwrap(), 1, inputs, output, threads)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_of_many_tiles_equal_the_plain_ones(
        kind in prop::sample::select(&KINDS[..]), image in (1u32..3, 8u32..24, 8u32..24), channels in (16u32..80, 16u32..72),
        padding in [0i32..3, 0i32..3, 0i32..3, 0i32..3], activation in 0i32..4, threads in 2usize..4, seed in any::<u32>(),
    ) {
        let (image, channels) = ([image.0, image.1, image.2], [channels.0, channels.1]);
        let call = Call { kind, image, channels, padding, activation, ..CALL };
        let [batches, height, width, _] = call.dims();
        let tiles = batches * height.div_ceil(4) * width.div_ceil(4);
        prop_assume!(tiles >= 9 && 3 * batches * height * width >= 32 * tiles);
        prop_assume!(72 * channels[0] as usize * channels[1] as usize <= tiles * (96 << 10));
        prop_assert!(avx2().is_none_or(|isa| is_taken_on(isa, &call)));
        let (inputs, output) = call.inputs(seed);
        prop_assert!(equals_the_plain_one(&inputs, output, threads)?);
    }
}

/// One of more tiles than a block has, of more panels than are summed up side by side, and of several parts of channels.
#[test]
fn large_calls_equal_the_plain_ones() {
    for (kind, image, channels) in [
        (Kind::Signed, [1, 45, 42], [70, 150]),
        (Kind::Unsigned, [2, 17, 16], [243, 33]),
        (Kind::PerChannel, [1, 16, 15], [451, 17]),
    ] {
        let call = Call { kind, image, channels, activation: 1, ..CALL };
        assert!(avx2().is_none_or(|isa| is_taken_on(isa, &call)), "{call:?}");
        let (inputs, output) = call.inputs(3);
        assert!(equals_the_plain_one(&inputs, output, 2).unwrap(), "{call:?}");
    }
}

/// Sums that are as large as inputs, weights and zero points can make them.
#[test]
fn the_largest_sums_are_exact() {
    for kind in KINDS {
        let call = Call { kind, image: [1, 10, 11], channels: [236, 32], ..CALL };
        assert!(avx2().is_none_or(|isa| is_taken_on(isa, &call)));
        // The zero points of input and weights, and the bytes of both.
        for (zeros, bytes) in
            [([0, 0], [255u8, 255]), ([255, 255], [0, 0]), ([0, 255], [255, 0]), ([255, 0], [0, 255])]
        {
            let (mut inputs, output) = call.inputs(5);
            let moved = if matches!(kind, Kind::Unsigned) { 0 } else { 128 };
            for i in 0..2 {
                if i == 0 || !matches!(kind, Kind::PerChannel) {
                    inputs[i].info.zero_point = zeros[i] - moved;
                }
                inputs[i].data.fill(bytes[i].wrapping_sub(moved as u8));
            }
            // A few outputs of other sums, so that not all are beyond what a byte can be.
            let (count, taps) = (inputs[1].data.len(), inputs[1].data.len() / 32);
            for (i, weight) in inputs[1].data.iter_mut().enumerate().skip(count / 2) {
                *weight = if i % taps < taps / 2 + i / taps { *weight } else { !*weight };
            }
            assert!(equals_the_plain_one(&inputs, output, 2).unwrap(), "{kind:?}, {zeros:?}, {bytes:?}");
        }
    }
}

#[test]
fn only_filters_of_three_by_three_whose_matrices_are_worth_it_go_this_way() {
    let Some(isa) = avx2() else { return };
    let others = [
        Call { side: 1, padding: [0; 4], ..BYTES },
        Call { side: 5, padding: [2; 4], ..BYTES },
        Call { image: [1, 24, 24], stride: 2, ..BYTES },
        Call { dilation: 2, padding: [2; 4], ..BYTES },
        Call { channels: [15, 16], ..BYTES },
        Call { channels: [16, 15], ..BYTES },
        Call { image: [2, 8, 8], ..BYTES },
        Call { image: [20, 5, 5], ..BYTES },
        Call { image: [1, 1, 200], ..BYTES },
        Call { image: [1, 14, 14], channels: [256, 256], ..BYTES },
        Call { kind: Kind::Float, ..BYTES },
    ];
    for kind in KINDS {
        assert!(is_taken_on(isa, &Call { kind, ..BYTES }));
    }
    assert!(is_taken_on(isa, &Call { image: [3, 8, 8], ..BYTES }), "tiles of all images count");
    for call in others {
        assert!(!is_taken_on(isa, &call), "{call:?}");
    }
}

#[test]
fn beside_products_of_bytes_only_many_channels_go_this_way() {
    let Some(isa) = of_level(Level::Vnni) else { return };
    for (channels, is_taken) in [([48, 32], true), ([47, 32], false), ([48, 31], false)] {
        assert_eq!(is_taken_on(isa, &Call { channels, ..BYTES }), is_taken, "{channels:?}");
    }
}

#[test]
fn packing_bytes_stops_when_it_is_told_to() {
    let Some(isa) = avx2() else { return };
    let call = Call { image: [1, 40, 40], channels: [256, 128], ..BYTES };
    let (inputs, _) = call.inputs(1);
    let pack = |interrupt: &dyn Interrupt| {
        call.with(&inputs, interrupt, |args| {
            let operation = OperationType::CONV_2D.operation().unwrap();
            select_for(isa, operation, args, &mut Source::pack(&Slab::default())).is_some()
        })
    };
    assert!(!pack(&InterruptedAfter::checks(3)), "it looks more often than that");
    assert!(pack(&NeverInterrupted));
}
