//! What single calls take, plainly and by their kernels: recurrent cells, the largest elements, detection. It prints, and
//! decides nothing.
//!
//! ```sh
//! cargo test --release --lib measure_calls -- --ignored --nocapture
//! ```

use crate::backend::cpu::kernels::twins::{time, Noise};
use crate::ops::testing::{boolean, f32s, float, i32s, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::tensor::{OperandType::*, TensorInfo};
use smallvec::smallvec;

/// Its name, operation, inputs, how many of them are known only at a run, and outputs.
type Call = (&'static str, OperationType, Vec<Option<Tensor>>, usize, Vec<TensorInfo>);

#[test]
#[ignore = "a measurement"]
fn measure_calls() {
    let calls = recurrent().into_iter().chain(quantised()).chain(searches()).chain(boxes()).chain(regions());
    for (name, ty, inputs, variables, outputs) in calls {
        println!("{name}: {}", time(ty, &inputs, variables, &outputs));
    }
}

fn floats(dims: &[u32], by: f32) -> Option<Tensor> {
    let mut noise = Noise(dims.iter().sum());
    let count = dims.iter().product::<u32>();
    let values: Vec<f32> = (0..count).map(|_| noise.float().clamp(-2.0, 2.0) * by).collect();
    Some(f32s(dims, &values))
}

fn info() -> TensorInfo {
    TensorInfo::new(TENSOR_FLOAT32, &[])
}

fn recurrent() -> Vec<Call> {
    let rnn = |size, units| {
        [floats(&[units, size], 0.3), floats(&[units, units], 0.03), floats(&[units], 0.1)]
            .into_iter()
            .chain([floats(&[1, units], 0.5)])
    };
    let mut step: Vec<_> = [floats(&[1, 512], 0.5)].into_iter().chain(rnn(512, 1024)).collect();
    step.push(Some(int(4)));
    let sequence = || floats(&[100, 1, 128], 0.5);
    let mut one_way: Vec<_> = [sequence()].into_iter().chain(rnn(128, 256)).collect();
    one_way.extend([4, 1].map(|x| Some(int(x))));
    let mut both_ways: Vec<_> = [sequence()].into_iter().chain(rnn(128, 256)).chain(rnn(128, 256)).collect();
    both_ways.extend([None, None, None]);
    both_ways.extend([int(4), boolean(true), boolean(false)].map(Some));
    let mut lstm = vec![sequence()];
    for _ in 0..2 {
        lstm.extend((0..4).map(|_| floats(&[256, 128], 0.3)));
        lstm.extend((0..4).map(|_| floats(&[256, 256], 0.03)));
        lstm.extend([None, None, None]);
        lstm.extend((0..4).map(|_| floats(&[256], 0.3)));
        lstm.extend([None, None]);
    }
    lstm.extend((0..4).map(|_| floats(&[1, 256], 0.5)));
    lstm.extend(vec![None; 9]);
    lstm.extend([int(4), float(0.0), float(0.0), boolean(false), boolean(true)].map(Some));
    lstm.extend(vec![None; 8]);
    let svdf = vec![
        floats(&[1, 256], 0.5),
        floats(&[1024, 256], 0.3),
        floats(&[1024, 32], 0.3),
        floats(&[512], 0.3),
        floats(&[1, 1024 * 32], 0.3),
        Some(int(2)),
        Some(int(1)),
    ];
    vec![
        ("RNN, 512 to 1024", RNN, step, 1, vec![info(); 2]),
        (
            "UNIDIRECTIONAL_SEQUENCE_RNN, 100 of 128 to 256",
            UNIDIRECTIONAL_SEQUENCE_RNN,
            one_way,
            1,
            vec![info()],
        ),
        ("BIDIRECTIONAL_SEQUENCE_RNN, the same", BIDIRECTIONAL_SEQUENCE_RNN, both_ways, 1, vec![info(); 2]),
        ("BIDIRECTIONAL_SEQUENCE_LSTM, the same", BIDIRECTIONAL_SEQUENCE_LSTM, lstm, 1, vec![info(); 2]),
        ("SVDF, 256 to 1024 filters of 32", SVDF, svdf, 1, vec![info(); 2]),
    ]
}

fn quantised() -> Vec<Call> {
    let mut noise = Noise(7);
    let mut some =
        |ty, dims: &[u32], scale, zero| Some(noise.tensor(TensorInfo::quantised(ty, dims, scale, zero)));
    let (size, units) = (256, 1024);
    let mut signed = vec![some(TENSOR_QUANT8_ASYMM_SIGNED, &[1, size], 0.01, 3)];
    signed.extend((0..4).map(|_| some(TENSOR_QUANT8_SYMM, &[units, size], 0.002, 0)));
    signed.extend((0..4).map(|_| some(TENSOR_QUANT8_SYMM, &[units, units], 0.001, 0)));
    signed.extend([None, None, None]);
    signed.extend((0..4).map(|_| some(TENSOR_INT32, &[units], 1e-5, 0)));
    signed.extend([None, None]);
    let hidden = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, units], 0.008, 2);
    let cell = |dims: &[u32]| TensorInfo::quantised(TENSOR_QUANT16_SYMM, dims, 1.0 / 2048.0, 0);
    signed.push(some(hidden.ty, &hidden.dims, hidden.scale, hidden.zero_point));
    let state: Vec<i16> = (0..units).map(|i| (i * 37 % 9000) as i16 - 4500).collect();
    signed.push(Some(tensor(cell(&[1, units]), &state)));
    signed.extend([None, None, None, None]);
    signed.extend([0.0, 0.0, 0.001, 0.001, 0.001, 0.001].map(|x| Some(float(x))));
    signed.extend([Some(int(2)), Some(float(0.008))]);
    let of_hidden = TensorInfo { dims: smallvec![], ..hidden };
    let byte = |dims: &[u32]| (TENSOR_QUANT8_ASYMM, dims.to_vec());
    let mut joint = |(ty, dims): (_, Vec<u32>), scale| some(ty, &dims, scale, 128);
    let mut unsigned = vec![joint(byte(&[1, size]), 1.0 / 128.0)];
    unsigned.extend((0..4).map(|_| joint(byte(&[units, size]), 1.0 / 64.0)));
    unsigned.extend((0..4).map(|_| joint(byte(&[units, units]), 1.0 / 64.0)));
    unsigned.extend((0..4).map(|_| {
        let bias = TensorInfo::quantised(TENSOR_INT32, &[units], 1.0 / 64.0 / 128.0, 0);
        Some(tensor(bias, &vec![100i32; units as usize]))
    }));
    unsigned.push(Some(tensor(cell(&[1, units]), &state)));
    unsigned.push(joint(byte(&[1, units]), 1.0 / 128.0));
    let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0 / 128.0, 128);
    vec![
        (
            "QUANTIZED_LSTM, 256 to 1024",
            QUANTIZED_LSTM,
            signed,
            1,
            vec![of_hidden.clone(), cell(&[]), of_hidden],
        ),
        ("QUANTIZED_16BIT_LSTM, 256 to 1024", QUANTIZED_16BIT_LSTM, unsigned, 1, vec![cell(&[]), out]),
    ]
}

fn searches() -> Vec<Call> {
    let outputs = || vec![info(), TensorInfo::new(TENSOR_INT32, &[])];
    let top = |name, rows, row, k| -> Call {
        (name, TOPK_V2, vec![floats(&[rows, row], 1.0), Some(int(k))], 1, outputs())
    };
    vec![
        top("TOPK_V2, 100 of 10,000", 1, 10_000, 100),
        top("TOPK_V2, 100 of 1,000, 100 rows", 100, 1_000, 100),
        top("TOPK_V2, 6,000 of 200,000", 1, 200_000, 6_000),
        top("TOPK_V2, 1,000,000 of 4,000,000", 1, 4_000_000, 1_000_000),
    ]
}

/// Boxes of some size at random places, as corners.
fn corners(count: u32, size: f32, extent: f32) -> Vec<f32> {
    let mut noise = Noise(count);
    let mut unit = || noise.next() as f32 / (1 << 24) as f32;
    let corners = |_| {
        let (w, h) = (size * (0.5 + unit()), size * (0.5 + unit()));
        let (x, y) = (unit() * (extent - w), unit() * (extent - h));
        [x, y, x + w, y + h]
    };
    (0..count).flat_map(corners).collect()
}

/// Scores from 0 to 1, most of them small.
fn scores(dims: &[u32]) -> Option<Tensor> {
    let mut noise = Noise(3);
    let count = dims.iter().product::<u32>();
    let values: Vec<f32> = (0..count).map(|_| (noise.next() as f32 / (1 << 24) as f32).powi(4)).collect();
    Some(f32s(dims, &values))
}

fn boxes() -> Vec<Call> {
    let ints = TensorInfo::new(TENSOR_INT32, &[]);
    let detection = |regular| {
        let anchors: Vec<f32> =
            corners(1917, 0.2, 1.0).as_chunks::<4>().0.iter().flat_map(|b| [b[0], b[1], 0.2, 0.2]).collect();
        let mut inputs =
            vec![scores(&[1, 1917, 91]), floats(&[1, 1917, 4], 1.0), Some(f32s(&[1917, 4], &anchors))];
        inputs.extend([10.0, 10.0, 5.0, 5.0].map(|x| Some(float(x))));
        inputs.extend(
            [boolean(regular), int(100), int(1), int(100), float(0.1), float(0.5), boolean(true)].map(Some),
        );
        (DETECTION_POSTPROCESSING, inputs, 2, vec![info(), info(), ints.clone(), ints.clone()])
    };
    let limit = |kernel| {
        let roi = corners(1000 * 81, 100.0, 800.0);
        let mut inputs =
            vec![scores(&[1000, 81]), Some(f32s(&[1000, 324], &roi)), Some(i32s(&[1000], &[0; 1000]))];
        inputs.extend([float(0.05), int(100), int(kernel), float(0.5), float(0.5), float(0.05)].map(Some));
        (BOX_WITH_NMS_LIMIT, inputs, 3, vec![info(), info(), ints.clone(), ints.clone()])
    };
    let anchors: Vec<f32> = (1..16).flat_map(|i| [-8.0, -6.0, 8.0, 6.0].map(|x| x * i as f32)).collect();
    let proposals = vec![
        scores(&[1, 50, 50, 15]),
        floats(&[1, 50, 50, 60], 0.2),
        Some(f32s(&[15, 4], &anchors)),
        Some(f32s(&[1, 2], &[800.0, 800.0])),
        Some(float(16.0)),
        Some(float(16.0)),
        Some(int(6000)),
        Some(int(1000)),
        Some(float(0.7)),
        Some(float(1.0)),
        Some(boolean(false)),
    ];
    let heat = vec![
        floats(&[50, 56, 56, 17], 1.0),
        Some(f32s(&[50, 4], &corners(50, 100.0, 800.0))),
        Some(boolean(false)),
    ];
    let transforms = vec![
        Some(f32s(&[1000, 4], &corners(1000, 100.0, 800.0))),
        floats(&[1000, 324], 0.2),
        Some(i32s(&[1000], &[0; 1000])),
        Some(f32s(&[1, 2], &[800.0, 800.0])),
    ];
    let named = |name, (ty, inputs, variables, outputs): (_, _, _, _)| (name, ty, inputs, variables, outputs);
    vec![
        named("DETECTION_POSTPROCESSING, 1,917 boxes, 91 classes", detection(false)),
        named("the same by class", detection(true)),
        named("BOX_WITH_NMS_LIMIT, 1,000 boxes, 81 classes, hard", limit(0)),
        named("the same, linear", limit(1)),
        named("the same, gaussian", limit(2)),
        (
            "GENERATE_PROPOSALS, 37,500 boxes, 6,000, 1,000",
            GENERATE_PROPOSALS,
            proposals,
            2,
            vec![info(), info(), ints],
        ),
        ("HEATMAP_MAX_KEYPOINT, 50 of 56 x 56 x 17", HEATMAP_MAX_KEYPOINT, heat, 2, vec![info(); 2]),
        (
            "AXIS_ALIGNED_BBOX_TRANSFORM, 1,000 of 81 classes",
            AXIS_ALIGNED_BBOX_TRANSFORM,
            transforms,
            4,
            vec![info()],
        ),
    ]
}

fn regions() -> Vec<Call> {
    let call = |name, ty, features: Option<Tensor>, roi: Tensor, samples: &[i32], channels_first| -> Call {
        let output = TensorInfo { dims: smallvec![], ..features.as_ref().unwrap().info.clone() };
        let mut inputs = vec![features, Some(roi), Some(i32s(&[300], &[0; 300]))];
        inputs.extend([int(7), int(7), float(16.0), float(16.0)].map(Some));
        inputs.extend(samples.iter().map(|&n| Some(int(n))));
        inputs.push(Some(boolean(channels_first)));
        (name, ty, inputs, 3, vec![output])
    };
    let roi = || f32s(&[300, 4], &corners(300, 200.0, 790.0));
    let eighths = || {
        let values: Vec<u16> = corners(300, 200.0, 790.0).iter().map(|&x| (x * 8.0) as u16).collect();
        tensor(TensorInfo::quantised(TENSOR_QUANT16_ASYMM, &[300, 4], 0.125, 0), &values)
    };
    let map = || floats(&[1, 50, 50, 256], 1.0);
    let bytes =
        || Some(Noise(1).tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 50, 50, 256], 0.02, 128)));
    vec![
        call("ROI_ALIGN, 300 of 7 x 7 x 256", ROI_ALIGN, map(), roi(), &[2, 2], false),
        call("the same, channels first", ROI_ALIGN, floats(&[1, 256, 50, 50], 1.0), roi(), &[2, 2], true),
        call("the same of bytes", ROI_ALIGN, bytes(), eighths(), &[2, 2], false),
        call("ROI_POOLING, 300 of 7 x 7 x 256", ROI_POOLING, map(), roi(), &[], false),
        call("the same of bytes", ROI_POOLING, bytes(), eighths(), &[], false),
    ]
}
