//! No detection operation panics, whatever its operands hold.

use super::*;
use crate::memory::AlignedBuf;
use crate::ops::hostile::{attack, Random};
use crate::ops::signature::{Row, Ty};
use crate::ops::testing::{boolean, f32s, float, i32s, int, tensor, Tensor};
use crate::ops::{NeverInterrupted, Operation, Out};
use crate::tensor::OperandType::{self, *};
use crate::tensor::TensorInfo;
use half::f16;
use smallvec::smallvec;

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
        info.dims[at] = random.pick(&[0, 1, 2, 3, 5]);
        random.tame = true;
        *operand = random.filled(info).unwrap();
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
