//! Elementwise kernels against the plain evaluation.

use super::super::twins::{compare, Noise, Within};
use crate::ops::testing::{float, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::tensor::{OperandType, OperandType::*, TensorInfo};
use half::f16;
use proptest::prelude::*;

const BINARY: &[OperationType] = &[
    ADD,
    SUB,
    MUL,
    DIV,
    MAXIMUM,
    MINIMUM,
    PRELU,
    POW,
    LOGICAL_AND,
    LOGICAL_OR,
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
];
const COMPARISONS: &[OperationType] = &[EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL];

/// The types that a binary operation takes.
fn types(ty: OperationType) -> &'static [OperandType] {
    match ty {
        LOGICAL_AND | LOGICAL_OR => &[TENSOR_BOOL8],
        POW => &[TENSOR_FLOAT32, TENSOR_FLOAT16],
        DIV => &[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32],
        PRELU => &[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED],
        ty if COMPARISONS.contains(&ty) => &[
            TENSOR_FLOAT32,
            TENSOR_FLOAT16,
            TENSOR_INT32,
            TENSOR_BOOL8,
            TENSOR_QUANT8_ASYMM,
            TENSOR_QUANT8_ASYMM_SIGNED,
        ],
        _ => &[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED],
    }
}

fn info(ty: OperandType, dims: &[u32], (scale, zero): (f32, u8)) -> TensorInfo {
    match ty {
        TENSOR_QUANT8_ASYMM => TensorInfo::quantised(ty, dims, scale, zero.into()),
        TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(ty, dims, scale, (zero as i8).into()),
        _ => TensorInfo::new(ty, dims),
    }
}

/// Calls `ty` on tensors of dimensions `a` and `b`; whether there was a kernel.
fn binary(
    ty: OperationType,
    element: OperandType,
    (a, b): (&[u32], &[u32]),
    units: [(f32, u8); 3],
    activation: i32,
    seed: u32,
) -> Result<bool, TestCaseError> {
    let mut noise = Noise(seed);
    let mut inputs = vec![noise.tensor(info(element, a, units[0])), noise.tensor(info(element, b, units[1]))];
    // Numbers that are no plain ones.
    for (i, x) in [f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY, 0.0].into_iter().enumerate() {
        let at = noise.next() as usize % inputs[i % 2].data.len();
        let data = &mut inputs[i % 2].data;
        match element {
            TENSOR_FLOAT32 => data[at / 4 * 4..][..4].copy_from_slice(&x.to_le_bytes()),
            TENSOR_FLOAT16 => data[at / 2 * 2..][..2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
            _ => {}
        }
    }
    if [ADD, SUB, MUL, DIV].contains(&ty) {
        inputs.push(int(if element == TENSOR_INT32 { 0 } else { activation }));
    }
    let truth = COMPARISONS.contains(&ty) || element == TENSOR_BOOL8;
    let out = if truth { TensorInfo::new(TENSOR_BOOL8, &[]) } else { info(element, &[], units[2]) };
    let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    compare(ty, &inputs, 2, &[out], Within::SameBytes)
}

/// Dimensions that broadcast to each other.
fn dims() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    let long = prop::sample::select(vec![1u32, 2, 3, 5, 17, 64, 130]);
    (prop::collection::vec((long, 0u32..4), 1..5), 0usize..3).prop_map(|(mut dims, missing)| {
        while dims.iter().map(|&(dim, _)| dim).product::<u32>() > 50_000 {
            dims.pop();
        }
        let a = dims.iter().map(|&(dim, which)| if which == 1 { 1 } else { dim }).collect();
        let b: Vec<u32> = dims.iter().map(|&(dim, which)| if which == 2 { 1 } else { dim }).collect();
        let missing = missing.min(b.len() - 1);
        (a, b[missing..].to_vec())
    })
}

fn units() -> impl Strategy<Value = [(f32, u8); 3]> {
    let one = || (prop::sample::select(vec![0.003f32, 0.0117, 0.25, 0.5, 1.7]), any::<u8>());
    [one(), one(), one()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn two_inputs_give_the_bytes_of_the_plain_evaluation(
        ty in prop::sample::select(BINARY), element in any::<prop::sample::Index>(), (a, b) in dims(), units in units(),
        activation in 0i32..4, seed in any::<u32>(),
    ) {
        let element = types(ty)[element.index(types(ty).len())];
        binary(ty, element, (&a, &b), units, activation, seed)?;
        binary(ty, element, (&b, &a), units, activation, seed)?;
    }
}

#[test]
fn all_pairs_of_bytes_and_long_rows_are_right() {
    let all = |element, unit| {
        let values: Vec<u8> = (0..=255).collect();
        [[256, 1], [1, 256]].map(|dims: [u32; 2]| Some(tensor(info(element, &dims, unit), &values)))
    };
    for element in [TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
        for (a, b, out) in [
            ((0.5, 100), (0.5, 3), (0.7, 9)),
            ((0.02, 128), (0.07, 0), (0.11, 120)),
            ((0.5, 0), (0.1, 255), (0.6, 7)),
        ] {
            let [first, _] = all(element, a);
            let [_, second] = all(element, b);
            for ty in [ADD, SUB, MUL] {
                let inputs = [first.clone(), second.clone(), Some(int(0))];
                assert!(
                    compare(ty, &inputs, 2, &[info(element, &[], out)], Within::SameBytes).unwrap(),
                    "{ty}"
                );
            }
            for ty in [MAXIMUM, MINIMUM, PRELU] {
                let inputs = [first.clone(), second.clone()];
                assert!(
                    compare(ty, &inputs, 2, &[info(element, &[], out)], Within::SameBytes).unwrap(),
                    "{ty}"
                );
            }
        }
        // More than one task for each thread.
        let units = [(0.5, 100), (0.25, 3), (0.7, 9)];
        assert!(binary(ADD, element, (&[3, 50_001], &[1, 50_001]), units, 0, 1).unwrap());
    }
    let units = [(1.0, 0); 3];
    assert!(binary(ADD, TENSOR_FLOAT32, (&[700, 333], &[700, 333]), units, 3, 1).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Sums and products of all pairs, whatever the scales: floats are sure of no byte that exact arithmetic has otherwise.
    #[test]
    fn quick_bytes_are_exact_ones(
        ty in prop::sample::select(&[ADD, SUB, MUL][..]),
        element in prop::sample::select(&[TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED][..]),
        scales in [-9.0f32..3.0, -9.0f32..3.0, -9.0f32..3.0], whole in any::<bool>(), zeros in any::<[u8; 3]>(),
        activation in 0i32..4,
    ) {
        let values: Vec<u8> = (0..=255).collect();
        let scale = |i: usize| if whole { scales[i].round().exp2() } else { scales[i].exp2() };
        let unit = |i: usize| (scale(i), zeros[i]);
        let inputs = [
            Some(tensor(info(element, &[256, 1], unit(0)), &values)),
            Some(tensor(info(element, &[1, 256], unit(1)), &values)),
            Some(int(activation)),
        ];
        prop_assert!(compare(ty, &inputs, 2, &[info(element, &[], unit(2))], Within::SameBytes)?);
        // The same of what lies one after the other.
        let [first, second]: [fn(usize) -> usize; 2] = [|i| i / 256, |i| i % 256];
        let inputs = [(0, first), (1, second)].map(|(i, value)| {
            let bytes: Vec<u8> = (0..256 * 256 + 7).map(|i| value(i) as u8).collect();
            Some(tensor(info(element, &[256 * 256 + 7], unit(i)), &bytes))
        });
        let [first, second] = inputs;
        let inputs = [first, second, Some(int(activation))];
        prop_assert!(compare(ty, &inputs, 2, &[info(element, &[], unit(2))], Within::SameBytes)?);
    }
}

#[test]
fn ratios_of_scales_that_no_float_holds_give_the_same_bytes() {
    // Of positive elements and of negative ones, of either, and of products.
    for (ty, [a, b, out]) in [
        (PRELU, [1e30, 1e-38, 1e-10]),
        (PRELU, [1e20, 1e20, 1e20]),
        (PRELU, [1e30, 1e30, 1e-10]),
        (MUL, [1e20, 1e20, 1e20]),
    ] {
        for element in [TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
            let units = [(a, 100), (b, 3), (out, 9)];
            assert!(binary(ty, element, (&[2, 40], &[2, 40]), units, 0, 7).unwrap(), "{ty} {element}");
        }
    }
}

#[test]
fn there_is_a_kernel_for_each_type() {
    for &ty in BINARY {
        for &element in types(ty) {
            let units = [(0.5, 100), (0.25, 3), (0.7, 9)];
            assert!(binary(ty, element, (&[2, 3, 4], &[3, 1]), units, 1, 7).unwrap(), "{ty} {element}");
        }
    }
}

fn unary(ty: OperationType, input: Tensor, out: TensorInfo, within: Within) -> Result<bool, TestCaseError> {
    let mut inputs = vec![Some(input)];
    if ty == ELU {
        let half = tensor(TensorInfo::new(FLOAT16, &[]), &[f16::from_f32(1.5)]);
        inputs.push(Some(if out.ty == TENSOR_FLOAT16 { half } else { float(1.5) }));
    }
    compare(ty, &inputs, 1, &[out], within)
}

#[test]
fn floats_of_one_input_are_near() {
    let functions =
        [ABS, NEG, FLOOR, SQRT, RSQRT, RELU, RELU1, RELU6, HARD_SWISH, LOG, SIN, ELU, EXP, LOGISTIC, TANH];
    for ty in functions {
        let within = match ty {
            ELU | EXP | LOGISTIC | TANH => Within::Relative(4e-7),
            _ => Within::SameBytes,
        };
        for element in [TENSOR_FLOAT32, TENSOR_FLOAT16] {
            for dims in [&[1u32][..], &[3, 5, 7], &[41, 1001]] {
                let mut input = Noise(5).tensor(TensorInfo::new(element, dims));
                if element == TENSOR_FLOAT32 {
                    let special = [f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
                    let n = input.data.len() / 4 - 1;
                    for (i, x) in special.into_iter().enumerate() {
                        input.data[(i % (n + 1)) * 4..][..4].copy_from_slice(&x.to_le_bytes());
                    }
                }
                let out = TensorInfo::new(element, &[]);
                assert!(unary(ty, input, out, within).unwrap(), "{ty} {element}");
            }
        }
    }
    for ty in [ABS, NEG] {
        let input = Noise(3).tensor(TensorInfo::new(TENSOR_INT32, &[7, 9]));
        assert!(unary(ty, input, TensorInfo::new(TENSOR_INT32, &[]), Within::SameBytes).unwrap());
    }
}

#[test]
fn bytes_of_one_input_are_looked_up() {
    let to = |ty, element, scale, zero| (ty, TensorInfo::quantised(element, &[], scale, zero));
    for element in [TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
        let signed = i32::from(element == TENSOR_QUANT8_ASYMM_SIGNED) * 128;
        let calls = [
            to(RELU, element, 0.05, 3),
            to(RELU1, element, 0.05, 3),
            to(RELU6, element, 0.05, 3),
            to(LOGISTIC, element, 1.0 / 256.0, -signed),
            to(TANH, element, 1.0 / 128.0, 128 - signed),
            to(HARD_SWISH, element, 0.03, 7),
            to(RSQRT, element, 0.03, 7),
            to(DEQUANTIZE, TENSOR_FLOAT32, 0.0, 0),
            to(DEQUANTIZE, TENSOR_FLOAT16, 0.0, 0),
        ];
        for (ty, out) in calls {
            for dims in [&[5u32][..], &[3, 17, 300]] {
                let input = Noise(9).tensor(TensorInfo::quantised(element, dims, 0.05, 3));
                assert!(unary(ty, input, out.clone(), Within::SameBytes).unwrap(), "{ty} {element}");
            }
        }
    }
    let truth = Noise(1).tensor(TensorInfo::new(TENSOR_BOOL8, &[77]));
    let out = TensorInfo::new(TENSOR_BOOL8, &[]);
    assert!(unary(LOGICAL_NOT, truth, out, Within::SameBytes).unwrap());
}

#[test]
fn quantize_and_cast_give_the_same_bytes() {
    let mut values: Vec<f32> = (-1200..1200).map(|i| i as f32 / 16.0).collect();
    values.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 2_147_483_600.0, 0.124_999_99]);
    let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
    let ints: Vec<i32> = values.iter().map(|&x| (x * 1000.0) as i32).collect();
    let bytes: Vec<u8> = (0..values.len()).map(|i| i as u8).collect();
    let dims = [values.len() as u32];
    let plain = |ty| TensorInfo::new(ty, &dims);
    let floats = [tensor(plain(TENSOR_FLOAT32), &values), tensor(plain(TENSOR_FLOAT16), &halves)];
    for input in &floats {
        for (scale, zero) in [(0.25, 7), (0.1, -100), (0.0, 0), (1e30, 5)] {
            for element in [TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
                let zero = if element == TENSOR_QUANT8_ASYMM { zero + 120 } else { zero };
                let out = TensorInfo::quantised(element, &[], scale, zero);
                assert!(unary(QUANTIZE, input.clone(), out, Within::SameBytes).unwrap(), "{scale}");
            }
        }
    }
    let [singles, halves] = floats;
    let castable =
        [singles, halves, tensor(plain(TENSOR_INT32), &ints), tensor(plain(TENSOR_QUANT8_ASYMM), &bytes)];
    for input in &castable {
        for to in &castable {
            let out = TensorInfo::new(to.info.ty, &[]);
            let found = unary(CAST, input.clone(), out, Within::SameBytes);
            assert!(found.unwrap(), "{} to {}", input.info.ty, to.info.ty);
        }
    }
}
