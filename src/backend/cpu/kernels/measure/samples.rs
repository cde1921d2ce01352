//! The calls that are timed: by operand type, a few of each kind of operation that takes it first.
//!
//! Sizes are those of the middle of a vision model: data stay in the caches, and handing out work costs little beside it.

use crate::ops::testing::{boolean, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::tensor::OperandType::{self, *};
use crate::tensor::{ChannelQuant, TensorInfo};
use half::f16;

/// A call to be timed. The first `variables` inputs are known only at a run.
pub struct Sample {
    pub kind: &'static str,
    pub ty: OperationType,
    pub inputs: Vec<Tensor>,
    pub variables: usize,
    /// Its output, but for the dimensions.
    pub output: TensorInfo,
}

const IMAGE: [u32; 4] = [1, 28, 28, 64];

/// All samples whose first input is of this type. Not every call is one that the operation accepts.
pub fn samples(ty: OperandType) -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(products(ty));
    all.extend(elementwise(ty));
    all.extend(windows(ty));
    all.extend(lanes(ty));
    all.extend(movement(ty));
    all.extend(conversions(ty));
    all
}

fn sample(kind: &'static str, ty: OperationType, inputs: Vec<Tensor>, output: TensorInfo) -> Sample {
    Sample { kind, ty, inputs, variables: 1, output }
}

/// What tensors of a type are like here: each of one scale and zero point.
fn info(ty: OperandType, dims: &[u32]) -> TensorInfo {
    match ty {
        TENSOR_QUANT8_ASYMM => TensorInfo::quantised(ty, dims, 0.02, 120),
        TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(ty, dims, 0.02, -8),
        TENSOR_QUANT8_SYMM | TENSOR_QUANT16_SYMM => TensorInfo::quantised(ty, dims, 0.02, 0),
        _ => TensorInfo::new(ty, dims),
    }
}

/// A tensor of small numbers of both signs; whole ones where the type has no others.
fn noise(info: TensorInfo) -> Tensor {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let count = info.dims.iter().product::<u32>();
    match info.ty {
        TENSOR_FLOAT32 => {
            let values: Vec<f32> = (0..count).map(|_| next() as f32 / (1 << 22) as f32 - 2.0).collect();
            tensor(info, &values)
        }
        TENSOR_FLOAT16 => {
            let value = |x: u32| f16::from_f32(x as f32 / (1 << 22) as f32 - 2.0);
            let values: Vec<f16> = (0..count).map(|_| value(next())).collect();
            tensor(info, &values)
        }
        TENSOR_INT32 => {
            let values: Vec<i32> = (0..count).map(|_| next() as i32 % 4000 - 2000).collect();
            tensor(info, &values)
        }
        TENSOR_QUANT16_SYMM => {
            let values: Vec<i16> = (0..count).map(|_| next() as i16).collect();
            tensor(info, &values)
        }
        TENSOR_BOOL8 => {
            let values: Vec<u8> = (0..count).map(|_| (next() % 2) as u8).collect();
            tensor(info, &values)
        }
        _ => {
            let values: Vec<u8> = (0..count).map(|_| next() as u8).collect();
            tensor(info, &values)
        }
    }
}

/// A value for whoever looks up: whole numbers below `limit`.
fn indices(count: u32, limit: u32) -> Tensor {
    let values: Vec<i32> = (0..count).map(|i| (i * 37 % limit) as i32).collect();
    tensor(TensorInfo::new(TENSOR_INT32, &[count]), &values)
}

fn ints(dims: &[u32], values: &[i32]) -> Tensor {
    tensor(TensorInfo::new(TENSOR_INT32, dims), values)
}

/// A bias for products of a type with itself.
fn bias(ty: OperandType, count: u32) -> Tensor {
    match ty.is_quant8_asymm() {
        true => noise(TensorInfo::quantised(TENSOR_INT32, &[count], 0.02 * 0.02, 0)),
        false => noise(info(ty, &[count])),
    }
}

fn products(ty: OperandType) -> Vec<Sample> {
    let result = match ty.is_quant8_asymm() {
        true => TensorInfo { scale: 0.5, ..info(ty, &[]) },
        false => info(ty, &[]),
    };
    let given = |dims: &[u32]| noise(info(ty, dims));
    let call = |kind, ty, inputs| sample(kind, ty, inputs, result.clone());
    let small = [1, 14, 14, 32];
    vec![
        call(
            "convolution",
            CONV_2D,
            vec![given(&small), given(&[32, 3, 3, 32]), bias(ty, 32), int(1), int(1), int(1), int(1)],
        ),
        call(
            "convolution",
            CONV_2D,
            vec![given(&small), given(&[64, 1, 1, 32]), bias(ty, 64), int(1), int(1), int(1), int(1)],
        ),
        call(
            "depthwise",
            DEPTHWISE_CONV_2D,
            vec![given(&IMAGE), given(&[1, 3, 3, 64]), bias(ty, 64), int(1), int(1), int(1), int(1), int(0)],
        ),
        call(
            "fully connected",
            FULLY_CONNECTED,
            vec![given(&[1, 512]), given(&[512, 512]), bias(ty, 512), int(0)],
        ),
        Sample {
            variables: 2,
            ..call(
                "matrices",
                BATCH_MATMUL,
                vec![given(&[2, 64, 64]), given(&[2, 64, 64]), boolean(false), boolean(false)],
            )
        },
    ]
}

fn elementwise(ty: OperandType) -> Vec<Sample> {
    let given = || noise(info(ty, &IMAGE));
    let binary = |operation, output, activation: Option<i32>| Sample {
        variables: 2,
        ..sample(
            "arithmetic",
            operation,
            [given(), given()].into_iter().chain(activation.map(int)).collect(),
            output,
        )
    };
    let truth = TensorInfo::new(TENSOR_BOOL8, &[]);
    let mut all = vec![
        binary(ADD, info(ty, &[]), Some(0)),
        binary(MUL, info(ty, &[]), Some(0)),
        binary(MAXIMUM, info(ty, &[]), None),
        binary(LESS, truth.clone(), None),
        binary(LOGICAL_AND, truth.clone(), None),
        sample("arithmetic", LOGICAL_NOT, vec![given()], truth),
        sample("arithmetic", ABS, vec![given()], info(ty, &[])),
    ];
    // The interface says what scale and zero point these give.
    let (low, high) = match ty {
        TENSOR_QUANT8_ASYMM => (0, 128),
        TENSOR_QUANT8_ASYMM_SIGNED => (-128, 0),
        _ => (0, 0),
    };
    let quantised = |scale, zero| match ty.is_quant8_asymm() {
        true => TensorInfo::quantised(ty, &[], scale, zero),
        false => info(ty, &[]),
    };
    for (operation, output) in [
        (RELU, info(ty, &[])),
        (LOGISTIC, quantised(1.0 / 256.0, low)),
        (TANH, quantised(1.0 / 128.0, high)),
        (HARD_SWISH, info(ty, &[])),
    ] {
        all.push(sample("functions", operation, vec![given()], output));
    }
    all
}

fn windows(ty: OperandType) -> Vec<Sample> {
    let given = || noise(info(ty, &IMAGE));
    let pool = |operation| {
        let inputs = vec![given(), int(2), int(2), int(2), int(2), int(2), int(0)];
        sample("pooling", operation, inputs, info(ty, &[]))
    };
    let resize = |operation| sample("resizing", operation, vec![given(), int(41), int(41)], info(ty, &[]));
    vec![pool(AVERAGE_POOL_2D), pool(MAX_POOL_2D), resize(RESIZE_BILINEAR)]
}

fn lanes(ty: OperandType) -> Vec<Sample> {
    let given = || noise(info(ty, &IMAGE));
    let beta = match ty {
        TENSOR_FLOAT16 => tensor(TensorInfo::new(FLOAT16, &[]), &[f16::ONE]),
        _ => tensor(TensorInfo::new(FLOAT32, &[]), &[1.0f32]),
    };
    let shares = match ty {
        TENSOR_QUANT8_ASYMM => TensorInfo::quantised(ty, &[], 1.0 / 256.0, 0),
        TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(ty, &[], 1.0 / 256.0, -128),
        _ => info(ty, &[]),
    };
    let axes = || ints(&[2], &[1, 2]);
    vec![
        sample("softmax", SOFTMAX, vec![noise(info(ty, &[32, 1000])), beta], shares),
        sample("reduction", MEAN, vec![given(), axes(), int(1)], info(ty, &[])),
        sample("reduction", REDUCE_MAX, vec![given(), axes(), boolean(true)], info(ty, &[])),
        sample("reduction", REDUCE_ANY, vec![given(), axes(), boolean(true)], info(ty, &[])),
    ]
}

fn movement(ty: OperandType) -> Vec<Sample> {
    let given = || noise(info(ty, &IMAGE));
    let call = |operation, inputs| sample("movement", operation, inputs, info(ty, &[]));
    vec![
        Sample { variables: 2, ..call(CONCATENATION, vec![given(), given(), int(3)]) },
        call(TRANSPOSE, vec![given(), ints(&[4], &[0, 3, 1, 2])]),
        call(PAD, vec![given(), ints(&[4, 2], &[0, 0, 1, 1, 1, 1, 0, 0])]),
        call(SLICE, vec![given(), ints(&[4], &[0, 2, 2, 0]), ints(&[4], &[1, 20, 20, 64])]),
        call(GATHER, vec![given(), int(1), indices(28, 28)]),
        call(RESHAPE, vec![given(), ints(&[2], &[28 * 28, 64])]),
    ]
}

/// Conversions, and what has its values elsewhere than first.
fn conversions(ty: OperandType) -> Vec<Sample> {
    let given = || match ty {
        TENSOR_QUANT8_SYMM_PER_CHANNEL => {
            let scales = ChannelQuant { scales: [0.02; 64].into(), dim: 3 };
            noise(TensorInfo { channel_quant: Some(scales), ..info(ty, &IMAGE) })
        }
        _ => noise(info(ty, &IMAGE)),
    };
    let call = |operation, to| sample("conversion", operation, vec![given()], to);
    let mut all = vec![
        call(CAST, TensorInfo::new(if ty == TENSOR_FLOAT32 { TENSOR_INT32 } else { TENSOR_FLOAT32 }, &[])),
        call(DEQUANTIZE, TensorInfo::new(TENSOR_FLOAT32, &[])),
        call(QUANTIZE, info(TENSOR_QUANT8_ASYMM, &[])),
    ];
    if ty == TENSOR_INT32 {
        let (rows, table) = (indices(256, 512), noise(info(TENSOR_FLOAT32, &[512, 64])));
        all.push(sample("movement", EMBEDDING_LOOKUP, vec![rows, table], info(TENSOR_FLOAT32, &[])));
    }
    if ty == TENSOR_BOOL8 {
        let value = || noise(info(TENSOR_FLOAT32, &IMAGE));
        let select = sample("select", SELECT, vec![given(), value(), value()], info(TENSOR_FLOAT32, &[]));
        all.push(Sample { variables: 3, ..select });
    }
    all
}
