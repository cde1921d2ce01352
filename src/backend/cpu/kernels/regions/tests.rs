//! Regions against the plain evaluation, and what a client may make of them.

use crate::backend::cpu::kernels::twins::{compare, Noise, Within};
use crate::backend::cpu::kernels::{select, Source, Work};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{Slab, Target, View};
use crate::ops::testing::{boolean, f32s, float, i32s, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::ops::{Arg, Args, NeverInterrupted};
use crate::tensor::OperandType::{self, *};
use crate::tensor::TensorInfo;
use half::f16;
use proptest::prelude::*;

const STRIDES: [f32; 2] = [4.0, 2.0];

/// Regions in a map of this height and width: some are a point, some all of it.
fn corners(noise: &mut Noise, count: u32, [height, width]: [u32; 2]) -> Vec<f32> {
    let mut between = |size: u32, stride: f32| {
        let most = size as f32 * stride;
        let [a, b] = [0; 2].map(|_| {
            // In eighths, as bytes have it, and no more than a half float holds.
            ((noise.next() % 9) as f32 / 8.0 * most * 8.0).floor() / 8.0
        });
        [a.min(b), a.max(b)]
    };
    let region = |_| {
        let ([top, bottom], [left, right]) = (between(height, STRIDES[0]), between(width, STRIDES[1]));
        [left, top, right, bottom]
    };
    (0..count).flat_map(region).collect()
}

fn regions(element: OperandType, corners: &[f32]) -> Tensor {
    let dims = [corners.len() as u32 / 4, 4];
    match element {
        TENSOR_FLOAT32 => f32s(&dims, corners),
        TENSOR_FLOAT16 => {
            let halves: Vec<f16> = corners.iter().map(|&x| f16::from_f32(x)).collect();
            tensor(TensorInfo::new(TENSOR_FLOAT16, &dims), &halves)
        }
        _ => {
            let eighths: Vec<u16> = corners.iter().map(|x| (x * 8.0) as u16).collect();
            tensor(TensorInfo::quantised(TENSOR_QUANT16_ASYMM, &dims, 0.125, 0), &eighths)
        }
    }
}

fn info(element: OperandType, dims: &[u32]) -> TensorInfo {
    match element {
        TENSOR_QUANT8_ASYMM => TensorInfo::quantised(element, dims, 0.5, 130),
        TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(element, dims, 0.5, -3),
        _ => TensorInfo::new(element, dims),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn regions_give_the_same_bytes(
        element in prop::sample::select(vec![TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED]),
        [height, width] in [1u32..12, 1u32..12], depth in prop::sample::select(vec![1u32, 3, 16, 31, 130, 300]), batches in 1u32..3,
        count in 0u32..7, grid in [1i32..5, 1i32..5], samples in prop::option::of([0i32..4, 0i32..4]), scale in 0.2f32..2.0,
        channels_first in any::<bool>(), seed in any::<u32>(),
    ) {
        let noise = &mut Noise(seed);
        let dims = if channels_first { [batches, depth, height, width] } else { [batches, height, width, depth] };
        let roi = regions(element, &corners(noise, count, [height, width]));
        let of: Vec<i32> = (0..count).map(|_| (noise.next() % batches) as i32).collect();
        let mut inputs = vec![noise.tensor(info(element, &dims)), roi, i32s(&[count], &of)];
        inputs.extend(grid.map(int));
        inputs.extend(STRIDES.map(|x| match element {
            TENSOR_FLOAT16 => tensor(TensorInfo::new(FLOAT16, &[]), &[f16::from_f32(x)]),
            _ => float(x),
        }));
        inputs.extend(samples.into_iter().flatten().map(int));
        inputs.push(boolean(channels_first));
        let mut out = info(element, &[]);
        let ty = if samples.is_some() { ROI_ALIGN } else { ROI_POOLING };
        if samples.is_some() && element.is_quant8_asymm() {
            out.scale = scale;
        }
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let has_kernel = compare(ty, &inputs, 3, &[out], Within::SameBytes)?;
        prop_assert!(has_kernel || count == 0);
    }
}

/// Runs a kernel for two regions of a small map with other regions and batches than it was made for.
fn run(ty: OperationType, corners: [f32; 8], batches: [i32; 2]) -> bool {
    let (map, roi) =
        (TensorInfo::new(TENSOR_FLOAT32, &[1, 3, 3, 2]), TensorInfo::new(TENSOR_FLOAT32, &[2, 4]));
    let (of, out) = (TensorInfo::new(TENSOR_INT32, &[2]), TensorInfo::new(TENSOR_FLOAT32, &[2, 2, 2, 2]));
    let scalars: Vec<Tensor> = [int(2), int(2), float(1.0), float(1.0)]
        .into_iter()
        .chain((0..2).filter(|_| ty == ROI_ALIGN).map(|_| int(2)))
        .chain([boolean(false)])
        .collect();
    let variable = |info| Some(Arg { info, data: None });
    let mut inputs = vec![variable(&map), variable(&roi), variable(&of)];
    inputs.extend(scalars.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data[..]) })));
    let outputs = std::slice::from_ref(&out);
    let args = Args { signature_index: 0, inputs: &inputs, outputs, interrupt: &NeverInterrupted };
    let nothing_to_pack = Slab::default();
    let kernel = select(ty.operation().unwrap(), &args, &mut Source::pack(&nothing_to_pack)).unwrap();
    let (features, pool) = ([1f32; 18], ThreadPool::new(1).unwrap());
    let mut views = vec![None; inputs.len()];
    views[0] = Some(View::of(bytemuck::cast_slice(&features)));
    views[1] = Some(View::of(bytemuck::cast_slice(&corners)));
    views[2] = Some(View::of(bytemuck::cast_slice(&batches)));
    let mut result = [0u8; 64];
    let work = Work::new(pool.team(1), &NeverInterrupted);
    kernel.run(&views, &mut [Target::of(&mut result)], work).is_ok()
}

#[test]
fn regions_outside_are_an_error_whenever_they_come() {
    for ty in [ROI_ALIGN, ROI_POOLING] {
        let inside = [0.0, 0.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0];
        assert!(run(ty, inside, [0, 0]), "{ty}");
        for batch in [1, -1, i32::MIN, i32::MAX] {
            assert!(!run(ty, inside, [0, batch]), "{ty}: batch {batch}");
        }
        for at in 0..8 {
            for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.5, 3.5, 1e30] {
                let mut corners = inside;
                corners[at] = x;
                assert!(!run(ty, corners, [0, 0]), "{ty}: {corners:?}");
            }
        }
    }
}
