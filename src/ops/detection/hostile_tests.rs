//! No detection operation panics, whatever its operands hold.

use super::*;
use crate::memory::AlignedBuf;
use crate::ops::hostile::{attack, Random};
use crate::ops::signature::{Row, Ty};
use crate::ops::testing::{boolean, call, f32s, float, i32s, int, tensor, Tensor};
use crate::ops::{NeverInterrupted, Operation, Out};
use crate::tensor::OperandType::{self, *};
use crate::tensor::TensorInfo;
use half::f16;
use smallvec::smallvec;

const MAX: u32 = i32::MAX as u32;

fn boxes(dims: &[u32]) -> Tensor {
    let corners: Vec<f32> =
        (0..dims.iter().product()).map(|i| [0.0, 1.0, 2.0, 3.0][i as usize % 4]).collect();
    f32s(dims, &corners)
}

fn reals(dims: &[u32]) -> Tensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i| (i * 7 % 8) as f32 / 8.0).collect();
    f32s(dims, &values)
}

/// A call that works, of each operation.
fn calls() -> Vec<(&'static Operation, Vec<Tensor>)> {
    let sizes = || f32s(&[2, 2], &[8.0; 4]);
    let batches = || i32s(&[3], &[0, 0, 1]);
    let regions =
        || vec![reals(&[2, 4, 4, 3]), boxes(&[3, 4]), batches(), int(2), int(3), float(1.0), float(0.75)];
    let nms = vec![float(0.1), int(2), int(1), float(0.4), float(0.5), float(0.1)];
    let scales = vec![float(10.0), float(10.0), float(5.0), float(5.0)];
    let limits =
        |regular| vec![boolean(regular), int(2), int(2), int(2), float(0.1), float(0.5), boolean(true)];
    let proposals = vec![float(1.0), float(2.0), int(9), int(4), float(0.5), float(0.5), boolean(false)];
    let decoded = || vec![reals(&[2, 3, 4]), reals(&[2, 3, 5]), boxes(&[3, 4])];
    vec![
        (&AXIS_ALIGNED_BBOX_TRANSFORM, vec![boxes(&[3, 4]), reals(&[3, 8]), batches(), sizes()]),
        (&BOX_WITH_NMS_LIMIT, [vec![reals(&[3, 3]), boxes(&[3, 12]), batches()], nms].concat()),
        (&DETECTION_POSTPROCESSING, [decoded(), scales.clone(), limits(false)].concat()),
        (&DETECTION_POSTPROCESSING, [decoded(), scales, limits(true)].concat()),
        (
            &GENERATE_PROPOSALS,
            [vec![reals(&[2, 2, 3, 2]), reals(&[2, 2, 3, 8]), boxes(&[2, 4]), sizes()], proposals].concat(),
        ),
        (&HEATMAP_MAX_KEYPOINT, vec![reals(&[2, 3, 3, 2]), boxes(&[2, 4]), boolean(false)]),
        (&ROI_ALIGN, [regions(), vec![int(2), int(0), boolean(false)]].concat()),
        (&ROI_POOLING, [regions(), vec![boolean(false)]].concat()),
    ]
}

fn info(ty: Ty, row: &Row, dims: &[u32]) -> TensorInfo {
    let ty = match ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => types[0],
    };
    let scale = if matches!(ty, TENSOR_QUANT16_ASYMM | TENSOR_QUANT16_SYMM) { 0.125 } else { 0.0625 };
    let quantised = ty.is_tensor() && ty.integer_range().is_some() && ty != OperandType::TENSOR_INT32;
    TensorInfo::quantised(ty, dims, if quantised { scale } else { 0.0 }, 0)
}

/// `operand` in the type that `info` says.
fn retyped(operand: &Tensor, info: TensorInfo) -> Tensor {
    if info.ty == operand.info.ty {
        return operand.clone();
    }
    let values: Vec<f32> = bytemuck::cast_slice(&operand.data).to_vec();
    if info.ty == FLOAT16 {
        return tensor(info, &[f16::from_f32(values[0])]);
    }
    let mut data = AlignedBuf::zeroed(info.byte_size().unwrap()).unwrap();
    Out { info: &info, data: &mut data }.store_reals(&NeverInterrupted, &values).unwrap();
    Tensor { info, data }
}

/// Makes `calls` calls that are `inputs` with up to two things made wrong; says how many succeeded.
fn corrupt(
    operation: &Operation,
    inputs: &[Tensor],
    outputs: &[TensorInfo],
    calls: usize,
    random: &mut Random,
) -> usize {
    let mut call = || {
        let mut inputs = inputs.to_vec();
        for _ in 0..random.below(3) {
            let at = random.below(inputs.len());
            spoil(&mut inputs[at], random);
        }
        attack(operation, &inputs.into_iter().map(Some).collect::<Vec<_>>(), outputs).is_ok()
    };
    (0..calls).filter(|_| call()).count()
}

/// Changes a dimension, or some of the values.
fn spoil(operand: &mut Tensor, random: &mut Random) {
    let mut info = operand.info.clone();
    if !info.dims.is_empty() && random.one_in(3) {
        let at = random.below(info.dims.len());
        info.dims[at] = random.pick(&[0, 1, 2, 3, 5, MAX]);
        if info.dims[at] == MAX {
            // There is no such tensor but one without elements.
            let zero = random.below(info.dims.len());
            info.dims[zero] = 0;
        }
        random.tame = true;
        // A dimension that another one of 0 made possible goes with no other.
        if let Some(spoiled) = random.filled(info) {
            *operand = spoiled;
        }
        return;
    }
    random.tame = false;
    let size = info.ty.element_size().unwrap();
    for _ in 0..=random.below(3) {
        let at = random.below(operand.data.len() / size);
        let one = random.filled(TensorInfo { dims: smallvec![1], ..info.clone() }).unwrap();
        if let Some(element) = operand.data.chunks_exact_mut(size).nth(at) {
            element.copy_from_slice(&one.data);
        }
    }
}

#[test]
fn survives_corrupted_calls_in_all_types() {
    let mut random = Random::new(1);
    for (operation, inputs) in calls() {
        let signature = &operation.signatures[0];
        for row in signature.rows {
            let slots = inputs.iter().zip(signature.inputs);
            let inputs: Vec<Tensor> =
                slots.map(|(t, slot)| retyped(t, info(slot.ty, row, &t.info.dims))).collect();
            let outputs: Vec<TensorInfo> =
                signature.outputs.iter().map(|slot| info(slot.ty, row, &[])).collect();
            let succeeded = corrupt(operation, &inputs, &outputs, 2000, &mut random);
            // About a third of the calls is left as it is.
            assert!(succeeded > 600, "{} of {row:?}: only {succeeded} calls succeeded", operation.ty);
        }
    }
}

/// Calls whose tensors agree and have no elements where it matters: the client may choose the other dimensions at will.
fn calls_of_nothing() -> Vec<(&'static Operation, Vec<Tensor>)> {
    let nothing = |dims: &[u32]| f32s(dims, &[]);
    let zeros = |dims: &[u32]| f32s(dims, &vec![0.0; dims.iter().product::<u32>() as usize]);
    let regions = |features: Tensor, count: u32, grid: i32| {
        let scalars = [int(grid), int(grid), float(1.0), float(1.0)];
        let batches = i32s(&[count], &vec![0; count as usize]);
        [&[features, zeros(&[count, 4]), batches][..], &scalars].concat()
    };
    let pooled = |features, count, nchw| [regions(features, count, i32::MAX), vec![boolean(nchw)]].concat();
    let nms = [float(0.1), int(2), int(1), float(0.4), float(0.5), float(0.1)];
    let detected = |scores: &[u32], regular| {
        let steer = [int(1), int(1), int(1), float(0.1), float(0.5), boolean(true)];
        let tensors = [nothing(scores), nothing(&[scores[0], 0, 4]), nothing(&[0, 4])];
        [&tensors[..], &[float(1.0), float(1.0), float(1.0), float(1.0), boolean(regular)], &steer].concat()
    };
    let proposed = |[batches, height, width, depth]: [u32; 4]| {
        let steer = [float(1.0), float(2.0), int(9), int(4), float(0.5), float(0.5), boolean(false)];
        let deltas = nothing(&[batches, height, width, 4 * depth]);
        let tensors =
            [nothing(&[batches, height, width, depth]), deltas, boxes(&[depth, 4]), zeros(&[batches, 2])];
        [&tensors[..], &steer].concat()
    };
    let heat = |dims: &[u32], nchw| vec![nothing(dims), zeros(&[dims[0], 4]), boolean(nchw)];
    let aligned = [regions(zeros(&[1, 1, 1, 1]), 0, i32::MAX), vec![int(2), int(0), boolean(false)]].concat();
    vec![
        (
            &AXIS_ALIGNED_BBOX_TRANSFORM,
            vec![boxes(&[0, 4]), nothing(&[0, 4 << 28]), i32s(&[0], &[]), zeros(&[1, 2])],
        ),
        (
            &BOX_WITH_NMS_LIMIT,
            [&[nothing(&[0, 1 << 29]), nothing(&[0, 1 << 31]), i32s(&[0], &[])][..], &nms].concat(),
        ),
        (&DETECTION_POSTPROCESSING, detected(&[1, 0, MAX], true)),
        (&DETECTION_POSTPROCESSING, detected(&[1 << 16, 0, MAX], false)),
        (&GENERATE_PROPOSALS, proposed([1, MAX, MAX, 0])),
        (&GENERATE_PROPOSALS, proposed([1 << 16, 0, MAX, 2])),
        (&HEATMAP_MAX_KEYPOINT, heat(&[6, MAX, MAX, 0], false)),
        (&HEATMAP_MAX_KEYPOINT, heat(&[6, 0, MAX, MAX], true)),
        (&HEATMAP_MAX_KEYPOINT, heat(&[0, MAX, MAX, MAX], false)),
        (&ROI_ALIGN, aligned),
        (&ROI_POOLING, pooled(nothing(&[1, 1, 1, 0]), 5, false)),
        (&ROI_POOLING, pooled(nothing(&[1, 0, MAX, MAX]), 5, true)),
        (&ROI_POOLING, pooled(nothing(&[MAX, MAX, MAX, 0]), 0, false)),
    ]
}

#[test]
fn nothing_is_soon_done_whatever_its_dimensions() {
    for (operation, inputs) in calls_of_nothing() {
        let signature = &operation.signatures[0];
        let outputs: Vec<TensorInfo> =
            signature.outputs.iter().map(|slot| info(slot.ty, &signature.rows[0], &[])).collect();
        let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let results =
            call(operation, &inputs, &outputs).unwrap_or_else(|why| panic!("{}: {why}", operation.ty));
        assert!(results.iter().all(|result| result.data.iter().all(|&byte| byte == 0)), "{}", operation.ty);
    }
}
