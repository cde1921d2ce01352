//! Kernels of one input and few parameters against the plain evaluation.

use super::twins::{compare, plain_floats, Noise, Within};
use crate::ops::image::ordered;
use crate::ops::testing::{boolean, float, i32s, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::tensor::{OperandType, OperandType::*, TensorInfo};
use half::f16;
use proptest::prelude::*;

const FLOATS_AND_BYTES: [OperandType; 4] =
    [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED];

fn info(ty: OperandType, dims: &[u32]) -> TensorInfo {
    if ty.is_quant8_asymm() {
        TensorInfo::quantised(ty, dims, 0.5, 7)
    } else {
        TensorInfo::new(ty, dims)
    }
}

/// Calls `ty` on an input and parameters; the output is of the input's type.
fn call(
    ty: OperationType,
    (element, dims): (OperandType, &[u32]),
    parameters: &[Tensor],
    outputs: usize,
    within: Within,
    seed: u32,
) -> Result<bool, TestCaseError> {
    let mut inputs = vec![Some(Noise(seed).tensor(info(element, dims)))];
    inputs.extend(parameters.iter().cloned().map(Some));
    compare(ty, &inputs, 1, &vec![info(element, &[]); outputs], within)
}

fn element() -> impl Strategy<Value = OperandType> {
    prop::sample::select(FLOATS_AND_BYTES.to_vec())
}

fn size() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![1u32, 2, 3, 4, 7, 16, 33, 70])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pools_give_the_same_bytes(
        ty in prop::sample::select(vec![AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D]), element in element(),
        dims in [1u32..3, 1u32..12, 1u32..12, 1u32..80], kernel in [1i32..8, 1i32..8], stride in prop::sample::select(vec![1i32, 2, 3, i32::MAX]),
        scheme in 1i32..3, activation in 0i32..4, channels_first in any::<bool>(), seed in any::<u32>(),
    ) {
        let element = if ty == L2_POOL_2D && element.is_quant8_asymm() { TENSOR_FLOAT32 } else { element };
        let [width, height] = kernel;
        let mut parameters = [scheme, stride, stride, width, height, activation].map(int).to_vec();
        parameters.push(boolean(channels_first));
        let dims = ordered(dims, channels_first);
        call(ty, (element, &dims), &parameters, 1, Within::SameBytes, seed)?;
    }

    #[test]
    fn resizes_give_the_same_bytes(
        nearest in any::<bool>(), element in element(), dims in (1u32..3, 1u32..9, 1u32..9, size()).prop_map(|(n, h, w, c)| [n, h, w, c]),
        to in [1i32..20, 1i32..20], corners in any::<bool>(), centres in any::<bool>(),
        channels_first in any::<bool>(), seed in any::<u32>(),
    ) {
        let ty = if nearest { RESIZE_NEAREST_NEIGHBOR } else { RESIZE_BILINEAR };
        let parameters =
            [int(to[0]), int(to[1]), boolean(channels_first), boolean(corners), boolean(centres && !corners)];
        let dims = ordered(dims, channels_first);
        prop_assert!(call(ty, (element, &dims), &parameters, 1, Within::SameBytes, seed)?);
    }

    #[test]
    fn reductions_are_near(
        ty in prop::sample::select(vec![MEAN, REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ALL, REDUCE_ANY]),
        element in element(), dims in prop::collection::vec(size(), 1..5).prop_filter("large", |dims| dims.iter().product::<u32>() <= 50_000), first in 0usize..4, count in 0usize..4,
        keep in any::<bool>(), seed in any::<u32>(),
    ) {
        let element = match ty {
            REDUCE_ALL | REDUCE_ANY => TENSOR_BOOL8,
            REDUCE_SUM | REDUCE_PROD if element.is_quant8_asymm() => TENSOR_FLOAT32,
            _ => element,
        };
        let axes: Vec<i32> = (first..first + count).filter(|&axis| axis < dims.len()).map(|axis| axis as i32).collect();
        let axes = i32s(&[axes.len() as u32], &axes);
        let keep = if ty == MEAN { int(keep.into()) } else { boolean(keep) };
        let within = if element.is_float() { Within::Relative(1e-6) } else { Within::SameBytes };
        call(ty, (element, &dims), &[axes, keep], 1, within, seed)?;
    }

    #[test]
    fn searches_find_the_same(
        least in any::<bool>(), element in prop::sample::select(vec![TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED]),
        dims in prop::collection::vec(size(), 1..5).prop_filter("large", |dims| dims.iter().product::<u32>() <= 50_000), axis in 0usize..4, seed in any::<u32>(),
    ) {
        let ty = if least { ARGMIN } else { ARGMAX };
        let inputs = [Some(Noise(seed).tensor(info(element, &dims))), Some(int((axis % dims.len()) as i32))];
        let found = compare(ty, &inputs, 1, &[TensorInfo::new(TENSOR_INT32, &[])], Within::SameBytes)?;
        prop_assert!(found);
    }

    #[test]
    fn softmaxes_are_near(
        logarithm in any::<bool>(), element in element(), rows in 1u32..150, lane in prop::sample::select(vec![1u32, 2, 15, 16, 17, 21, 32, 33, 128, 300, 1001, 1024, 1025, 3000]),
        beta in prop::sample::select(vec![1.0f32, 0.3, 5.0, 1e-3]), seed in any::<u32>(),
    ) {
        let element = if logarithm && element.is_quant8_asymm() { TENSOR_FLOAT32 } else { element };
        let ty = if logarithm { LOG_SOFTMAX } else { SOFTMAX };
        let beta = match element {
            TENSOR_FLOAT16 => tensor(TensorInfo::new(FLOAT16, &[]), &[f16::from_f32(beta)]),
            _ => float(beta),
        };
        let zero = if element == TENSOR_QUANT8_ASYMM { 0 } else { -128 };
        let out = match element.is_quant8_asymm() {
            true => TensorInfo::quantised(element, &[], 1.0 / 256.0, zero),
            false => TensorInfo::new(element, &[]),
        };
        let input = TensorInfo { scale: info(element, &[]).scale / 8.0, ..info(element, &[rows, lane]) };
        let inputs = [Some(Noise(seed).tensor(input)), Some(beta), Some(int(1))];
        let within = if element.is_float() { Within::Relative(2e-6) } else { Within::SameBytes };
        prop_assert!(compare(ty, &inputs, 1, &[out], within)?);
    }

    #[test]
    fn lanes_along_any_axis_are_near(
        ty in prop::sample::select(vec![SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION]), element in element(),
        dims in prop::collection::vec(size(), 1..5).prop_filter("large", |dims| dims.iter().product::<u32>() <= 20_000), axis in 0usize..4,
        radius in prop::sample::select(vec![0i32, 1, 2, 5, 100, i32::MAX]), power in prop::sample::select(vec![0.5f32, 0.75, 1.0, 0.6]),
        seed in any::<u32>(),
    ) {
        let takes_bytes = [SOFTMAX, L2_NORMALIZATION].contains(&ty);
        let element = if element.is_quant8_asymm() && !takes_bytes { TENSOR_FLOAT32 } else { element };
        let number = |x: f32| match element {
            TENSOR_FLOAT16 => tensor(TensorInfo::new(FLOAT16, &[]), &[f16::from_f32(x)]),
            _ => float(x),
        };
        let mut inputs = vec![Noise(seed).tensor(info(element, &dims))];
        inputs.extend(match ty {
            L2_NORMALIZATION => vec![],
            LOCAL_RESPONSE_NORMALIZATION => vec![int(radius), number(1.0), number(0.25), number(power)],
            _ => vec![number(0.3)],
        });
        inputs.push(int((axis % dims.len()) as i32));
        let (scale, zero) = if ty == SOFTMAX { (1.0 / 256.0, 0) } else { (1.0 / 128.0, 128) };
        let out = match element {
            TENSOR_QUANT8_ASYMM => TensorInfo::quantised(element, &[], scale, zero),
            TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(element, &[], scale, zero - 128),
            _ => TensorInfo::new(element, &[]),
        };
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let within = if element.is_float() { Within::Relative(2e-6) } else { Within::SameBytes };
        prop_assert!(compare(ty, &inputs, 1, &[out], within)?);
    }

    #[test]
    fn instances_are_near(
        half in any::<bool>(), dims in (1u32..4, 1u32..20, 1u32..20, size()).prop_map(|(n, h, w, c)| [n, h, w, c]),
        channels_first in any::<bool>(), seed in any::<u32>(),
    ) {
        let element = if half { TENSOR_FLOAT16 } else { TENSOR_FLOAT32 };
        let number = |x: f32| if half { tensor(TensorInfo::new(FLOAT16, &[]), &[f16::from_f32(x)]) } else { float(x) };
        let parameters = [number(1.5), number(0.25), number(0.125), boolean(channels_first)];
        let dims = ordered(dims, channels_first);
        prop_assert!(call(INSTANCE_NORMALIZATION, (element, &dims), &parameters, 1, Within::Relative(2e-6), seed)?);
    }

    #[test]
    fn the_largest_are_the_same(
        element in prop::sample::select(vec![TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED]),
        rows in 1u32..9, row in prop::sample::select(vec![1u32, 2, 16, 63, 64, 65, 129, 1001]), k in prop_oneof![1i32..70, 1i32..1002], sorted in any::<bool>(), seed in any::<u32>(),
    ) {
        let mut input = Noise(seed).tensor(info(element, &[rows, row]));
        if sorted && element == TENSOR_INT32 {
            bytemuck::cast_slice_mut::<u8, i32>(&mut input.data).sort();
        }
        let outputs = [info(element, &[]), TensorInfo::new(TENSOR_INT32, &[])];
        let k = k.min(row as i32);
        let found = compare(TOPK_V2, &[Some(input), Some(int(k))], 1, &outputs, Within::SameBytes)?;
        prop_assert!(found);
    }

    #[test]
    fn movements_give_the_same_bytes(
        element in element(), dims in (1u32..4, 1u32..40, size(), size()).prop_map(|(n, h, w, c)| [n, h, w, c]), order in any::<prop::sample::Index>(),
        numbers in [0i32..4, 0i32..4, 0i32..4, 0i32..4], seed in any::<u32>(),
    ) {
        let same = |ty, parameters: &[Tensor], outputs| {
            call(ty, (element, &dims), parameters, outputs, Within::SameBytes, seed)
        };
        let mut orders = vec![];
        for a in 0..4 { for b in 0..4 { for c in 0..4 { for d in 0..4 {
            if a + b + c + d == 6 && a * a + b * b + c * c + d * d == 14 { orders.push([a, b, c, d]); }
        } } } }
        prop_assert!(same(TRANSPOSE, &[i32s(&[4], &orders[order.index(orders.len())])], 1)?);
        let pads: Vec<i32> = numbers.iter().flat_map(|&n| [n, (n * 7) % 3]).collect();
        prop_assert!(same(PAD, &[i32s(&[4, 2], &pads)], 1)?);
        prop_assert!(same(TILE, &[i32s(&[4], &numbers.map(|n| n % 2 + 1))], 1)?);
        prop_assert!(same(REVERSE, &[i32s(&[1], &numbers[..1])], 1)?);
        prop_assert!(same(RESHAPE, &[i32s(&[2], &[-1, dims[3] as i32])], 1)?);
        let begin: Vec<i32> = numbers.iter().zip(dims).map(|(&n, dim)| n.min(dim as i32 - 1)).collect();
        prop_assert!(same(SLICE, &[i32s(&[4], &begin), i32s(&[4], &[-1; 4])], 1)?);
        let strides: Vec<i32> = numbers.iter().map(|&n| if n % 2 == 0 { n / 2 + 1 } else { -n }).collect();
        let strided = [i32s(&[4], &begin), i32s(&[4], &[0; 4]), i32s(&[4], &strides), int(15), int(15), int(0)];
        prop_assert!(same(STRIDED_SLICE, &strided, 1)?);
        let indices: Vec<i32> = (0..5).map(|i| i % dims[2] as i32).collect();
        prop_assert!(same(GATHER, &[int(2), i32s(&[5], &indices)], 1)?);
        same(CHANNEL_SHUFFLE, &[int(numbers[0]), int(3)], 1)?;
        same(SPLIT, &[int(numbers[1]), int(2)], 2)?;
        same(SPACE_TO_DEPTH, &[int(numbers[2])], 1)?;
        same(DEPTH_TO_SPACE, &[int(numbers[2])], 1)?;
        same(BATCH_TO_SPACE_ND, &[i32s(&[2], &[numbers[0], 1])], 1)?;
        let pads = i32s(&[2, 2], &[numbers[2], numbers[3], 1, numbers[0]]);
        same(SPACE_TO_BATCH_ND, &[i32s(&[2], &[numbers[0], numbers[1]]), pads], 1)?;
    }

    #[test]
    fn joined_tensors_are_requantised(
        element in element(), dims in (1u32..4, size(), size()).prop_map(|(a, b, c)| [a, b, c]), axis in 0usize..3, seed in any::<u32>(),
    ) {
        let noise = &mut Noise(seed);
        let mut inputs = vec![];
        for i in 0..3 {
            let mut dims = dims;
            dims[axis] += i;
            let scale = if element.is_quant8_asymm() { 0.5 + i as f32 / 4.0 } else { 0.0 };
            inputs.push(Some(noise.tensor(TensorInfo { scale, ..info(element, &dims) })));
        }
        inputs.push(Some(int(axis as i32)));
        prop_assert!(compare(CONCATENATION, &inputs, 3, &[info(element, &[])], Within::SameBytes)?);
        let mut inputs = vec![Some(int(axis as i32))];
        inputs.extend((0..3).map(|_| Some(noise.tensor(info(element, &dims)))));
        // Which input is constant matters not to PACK.
        prop_assert!(compare(PACK, &inputs, 0, &[info(element, &[])], Within::SameBytes)?);
    }
}

/// Sizes at which work is shared out among threads.
#[test]
fn large_calls_have_kernels_and_give_the_same() {
    for element in FLOATS_AND_BYTES {
        let same = |ty, dims: &[u32], parameters: &[Tensor]| {
            let found = call(ty, (element, dims), parameters, 1, Within::SameBytes, 1).unwrap();
            assert!(found, "{ty} {element}");
        };
        let image = [1, 57, 61, 67];
        same(TRANSPOSE, &image, &[i32s(&[4], &[0, 3, 1, 2])]);
        same(TRANSPOSE, &image, &[i32s(&[4], &[0, 2, 1, 3])]);
        same(TRANSPOSE, &[3, 70_001, 2], &[i32s(&[3], &[2, 0, 1])]);
        same(RESHAPE, &image, &[i32s(&[1], &[-1])]);
        same(PAD, &image, &[i32s(&[4, 2], &[0, 0, 1, 2, 3, 0, 0, 0])]);
        same(SPACE_TO_BATCH_ND, &[1, 64, 60, 17], &[i32s(&[2], &[2, 3]), i32s(&[2, 2], &[1, 1, 2, 4])]);
        same(GATHER, &[1000, 300], &[int(0), i32s(&[4], &[999, 0, 5, 5])]);
        same(RESIZE_NEAREST_NEIGHBOR, &image, &[int(100), int(90), boolean(false)]);
        same(MAX_POOL_2D, &image, &[2, 2, 2, 3, 3, 0].map(int));
        same(AVERAGE_POOL_2D, &image, &[2, 1, 1, 61, 57, 0].map(int));
        same(RESIZE_BILINEAR, &image, &[int(100), int(90), boolean(false)]);
        same(RESIZE_BILINEAR, &[1, 67, 57, 61], &[int(100), int(90), boolean(true)]);
        same(MEAN, &image, &[i32s(&[2], &[1, 2]), int(1)]);
        // More short rows than go side by side, and more of them than are moved before the next ones are.
        let mut pieces: Vec<_> =
            (1..20).map(|n| Some(Noise(n).tensor(info(element, &[90, 70, n])))).collect();
        pieces.push(Some(int(2)));
        assert!(compare(CONCATENATION, &pieces, 19, &[info(element, &[])], Within::SameBytes).unwrap());
        let parameters = [int(2), int(19)];
        assert!(call(SPLIT, (element, &[90, 70, 19 * 3]), &parameters, 19, Within::SameBytes, 1).unwrap());
    }
    // A NaN wins over all that come before and after it.
    let mut cells: Vec<f32> = (0..7 * 7 * 70).map(|i| (i % 13) as f32).collect();
    (0..cells.len()).step_by(67).for_each(|i| cells[i] = f32::NAN);
    let mut pool = vec![Some(tensor(TensorInfo::new(TENSOR_FLOAT32, &[1, 7, 7, 70]), &cells))];
    pool.extend([1, 1, 1, 5, 3, 0].map(|n| Some(int(n))));
    assert!(compare(MAX_POOL_2D, &pool, 1, &[info(TENSOR_FLOAT32, &[])], Within::SameBytes).unwrap());
    // Numbers without an order, both zeros, and no number that is larger than another.
    let (nan, out) = (f32::NAN, TensorInfo::new(TENSOR_INT32, &[]));
    for row in [[0.0, -0.0, 0.0], [nan, 1.0, nan], [-nan, -1.0, -nan], [nan, f32::INFINITY, -nan]] {
        let row = tensor(TensorInfo::new(TENSOR_FLOAT32, &[3]), &row);
        let largest = [info(TENSOR_FLOAT32, &[]), out.clone()];
        let inputs = [Some(row.clone()), Some(int(2))];
        assert!(compare(TOPK_V2, &inputs, 1, &largest, Within::SameBytes).unwrap());
        for ty in [ARGMAX, ARGMIN] {
            let row = row.clone();
            let inputs = [Some(row), Some(int(0))];
            assert!(compare(ty, &inputs, 1, std::slice::from_ref(&out), Within::SameBytes).unwrap());
        }
    }
    for element in [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM] {
        // More than are sorted at once, and more elements than are kept in order.
        for (rows, row, k) in [(3, 30_000, 20_000), (1, 40_000, 40), (1, 40_000, 40_000)] {
            let inputs = [Some(Noise(1).tensor(info(element, &[rows, row]))), Some(int(k))];
            let largest = [info(element, &[]), out.clone()];
            assert!(compare(TOPK_V2, &inputs, 1, &largest, Within::SameBytes).unwrap());
        }
    }
    let wrong =
        [Some(Noise(1).tensor(info(TENSOR_FLOAT32, &[3, 2]))), Some(int(0)), Some(i32s(&[2], &[0, 1]))];
    assert!(compare(GATHER, &wrong, 1, &[info(TENSOR_FLOAT32, &[])], Within::SameBytes).unwrap());
}

#[test]
fn log_softmaxes_by_what_is_not_positive_are_left_to_the_plain_evaluation() {
    let out = [info(TENSOR_FLOAT32, &[])];
    for (beta, has_kernel) in [(0.5, true), (0.0, false), (-1.0, false), (f32::NAN, false)] {
        let inputs = [Some(Noise(1).tensor(info(TENSOR_FLOAT32, &[2, 40]))), Some(float(beta)), Some(int(1))];
        assert!(plain_floats(LOG_SOFTMAX, &inputs, &out).is_some(), "{beta}");
        let found = compare(LOG_SOFTMAX, &inputs, 1, &out, Within::Relative(2e-6)).unwrap();
        assert_eq!(found, has_kernel, "{beta}");
    }
}

#[test]
fn indices_out_of_range_are_an_error_whenever_they_come() {
    use super::{select, Source, Work};
    use crate::backend::cpu::pool::ThreadPool;
    use crate::memory::{Slab, Target, View};
    use crate::ops::{Arg, Args, NeverInterrupted};
    let (values, out) = (info(TENSOR_FLOAT32, &[3, 2]), info(TENSOR_FLOAT32, &[2, 2]));
    let (axis, indices) = (int(0), TensorInfo::new(TENSOR_INT32, &[2]));
    let inputs = [
        Some(Arg { info: &values, data: None }),
        Some(Arg { info: &axis.info, data: Some(&axis.data) }),
        Some(Arg { info: &indices, data: None }),
    ];
    let args = Args {
        signature_index: 0,
        inputs: &inputs,
        outputs: std::slice::from_ref(&out),
        interrupt: &NeverInterrupted,
    };
    let kernel = select(GATHER.operation().unwrap(), &args, &mut Source::pack(&Slab::default())).unwrap();
    let (from, pool) = ([0u8; 24], ThreadPool::new(1).unwrap());
    for (index, fits) in [(2i32, true), (3, false), (-1, false), (i32::MIN, false), (i32::MAX, false)] {
        let (chosen, mut to) = ([0i32, index], [0u8; 16]);
        let views = [Some(View::of(&from[..])), None, Some(View::of(bytemuck::cast_slice(&chosen)))];
        let work = Work::new(pool.team(1), &NeverInterrupted);
        assert_eq!(kernel.run(&views, &mut [Target::of(&mut to)], work).is_ok(), fits, "{index}");
    }
}
