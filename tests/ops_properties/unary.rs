//! Operations on each element by itself, and conversions between types.

use crate::support::*;
use OperandType::*;
use OperationType::*;

/// Float functions, which [`function`] has.
const FLOAT_FUNCTIONS: &[OperationType] =
    &[ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT, LOGISTIC, TANH, RELU, RELU1, RELU6, HARD_SWISH];
/// Those of them that no activation bounds.
const UNBOUNDED: &[OperationType] = &[ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT, LOGISTIC, TANH];

pub const PROPERTIES: &[Property] = &[
    Property { name: "float functions", operations: FLOAT_FUNCTIONS, cases: 300, case: float_functions },
    Property { name: "extreme floats", operations: UNBOUNDED, cases: 80, case: extreme_floats },
    Property { name: "int functions", operations: &[ABS, NEG], cases: 40, case: int_functions },
    Property {
        name: "quantised functions",
        operations: &[LOGISTIC, TANH, RELU, RELU1, RELU6],
        cases: 200,
        case: quantised_functions,
    },
    Property { name: "quantised RSQRT", operations: &[RSQRT], cases: 60, case: quantised_rsqrt },
    Property {
        name: "quantised HARD_SWISH",
        operations: &[HARD_SWISH],
        cases: 150,
        case: quantised_hard_swish,
    },
    Property { name: "ELU", operations: &[ELU], cases: 40, case: elu },
    Property { name: "LOGICAL_NOT", operations: &[LOGICAL_NOT], cases: 20, case: logical_not },
    Property { name: "QUANTIZE", operations: &[QUANTIZE], cases: 80, case: quantize },
    Property { name: "DEQUANTIZE", operations: &[DEQUANTIZE], cases: 80, case: dequantize },
    Property { name: "CAST", operations: &[CAST], cases: 150, case: cast },
];

fn function(operation: OperationType, x: f64) -> f64 {
    match operation {
        ABS => x.abs(),
        EXP => x.exp(),
        FLOOR => x.floor(),
        LOG => x.ln(),
        NEG => -x,
        RSQRT => 1.0 / x.sqrt(),
        SIN => x.sin(),
        SQRT => x.sqrt(),
        LOGISTIC => 1.0 / (1.0 + (-x).exp()),
        TANH => x.tanh(),
        RELU => activate(1, x),
        RELU1 => activate(2, x),
        RELU6 => activate(3, x),
        HARD_SWISH => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        _ => unreachable!("{operation:?}"),
    }
}

fn dims(random: &mut Random, largest_rank: usize) -> Vec<usize> {
    let rank = random.size(1, largest_rank);
    let mut dims = random.dims(rank, 4);
    if random.one_in(20) {
        dims[0] = 0;
    }
    dims
}

fn float_functions(random: &mut Random) {
    let operation = random.pick(FLOAT_FUNCTIONS);
    let positive = matches!(operation, LOG | RSQRT | SQRT);
    let limited = matches!(operation, FLOOR | LOGISTIC | TANH | RELU | RELU1 | RELU6);
    let dims = dims(random, if limited { 4 } else { 6 });
    let ty = random_float(random);
    let x = random.floats(ty, &dims, if positive { 0.1 } else { -8.0 }, 8.0);
    let got = call(operation, &[&x], &[x.like()]).remove(0);
    expect(&got, &x.reals().map(|x| function(operation, x)));
}

/// Infinities, numbers that are none, and the ends of the range.
fn extreme_floats(random: &mut Random) {
    let operation = random.pick(UNBOUNDED);
    let wild =
        [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, 3e38, -3e38, 1e-30, 200.0, -200.0, 6e4, -6e4];
    let values: Vec<f64> = (0..8).map(|_| random.pick(&wild)).collect();
    let ty = random_float(random);
    let x = Value::of_reals(TensorInfo::new(ty, &[8]), &values);
    let got = call(operation, &[&x], &[x.like()]).remove(0);
    let want: Vec<f64> = x.reals().at.iter().map(|&x| function(operation, x)).collect();
    // As the type has them: what is too large for it is infinite.
    expect(&got, &Value::of_reals(x.info.clone(), &want).reals());
}

fn random_float(random: &mut Random) -> OperandType {
    FLOATS[random.below(2)]
}

fn int_functions(random: &mut Random) {
    let operation = random.pick(&[ABS, NEG]);
    let dims = dims(random, 6);
    let x = random.tensor(TENSOR_INT32, &dims);
    let got = call(operation, &[&x], &[x.like()]).remove(0);
    expect(&got, &x.reals().map(|x| function(operation, x)));
}

fn quantised_functions(random: &mut Random) {
    let operation = random.pick(&[LOGISTIC, TANH, RELU, RELU1, RELU6]);
    let (ty, dims) = (random.pick(&QUANTISED), dims(random, 4));
    let x = random.tensor(ty, &dims);
    let signed = ty == TENSOR_QUANT8_ASYMM_SIGNED;
    let (scale, zero_point) = match operation {
        LOGISTIC => (1.0 / 256.0, if signed { -128 } else { 0 }),
        TANH => (1.0 / 128.0, if signed { 0 } else { 128 }),
        _ => (x.info.scale, x.info.zero_point),
    };
    let got = call(operation, &[&x], &[TensorInfo { scale, zero_point, ..x.like() }]).remove(0);
    // Activations clamp at rounded bounds, half a step off at most.
    expect(&got, &x.reals().map(|x| function(operation, x)));
}

fn quantised_rsqrt(random: &mut Random) {
    let (ty, dims) = (random.pick(&QUANTISED), dims(random, 6));
    let low = if ty == TENSOR_QUANT8_ASYMM { 0 } else { -128 };
    let mut x = {
        let scale = random.pick(&[0.5, 0.02, 1.0]);
        random.fill(ty, &dims, scale, low)
    };
    // Zero has no reciprocal.
    x.data.iter_mut().for_each(|byte| *byte = if *byte as i32 == low & 255 { 77 } else { *byte });
    let (scale, zero_point) = quantisation(ty, random);
    let got = call(RSQRT, &[&x], &[TensorInfo { scale, zero_point, ..x.like() }]).remove(0);
    expect_within(&got, &x.reals().map(|x| function(RSQRT, x)), 0.51);
}

fn quantised_hard_swish(random: &mut Random) {
    let (ty, dims) = (random.pick(&QUANTISED), dims(random, 6));
    let x = random.tensor(ty, &dims);
    // The reference refuses outputs of a far finer scale than the input's.
    let (scale, zero_point) = loop {
        let (scale, zero_point) = quantisation(ty, random);
        if x.info.scale / 128.0 / scale < 1.0 {
            break (scale, zero_point);
        }
    };
    let got = call(HARD_SWISH, &[&x], &[TensorInfo { scale, zero_point, ..x.like() }]).remove(0);
    expect_within(&got, &x.reals().map(|x| function(HARD_SWISH, x)), 1.5);
}

fn elu(random: &mut Random) {
    let (ty, dims) = (random_float(random), dims(random, 6));
    let (x, alpha) = (random.floats(ty, &dims, -4.0, 4.0), random.range(-8, 8) as f64 / 4.0);
    let got = call(ELU, &[&x, &scalar(ty, alpha)], &[x.like()]).remove(0);
    expect(&got, &x.reals().map(|x| x.max(0.0) + (alpha * (x.exp() - 1.0)).min(0.0)));
}

fn logical_not(random: &mut Random) {
    let dims = dims(random, 6);
    let mut x = random.tensor(TENSOR_BOOL8, &dims);
    x.data.iter_mut().for_each(|byte| *byte *= 5);
    let got = call(LOGICAL_NOT, &[&x], &[x.like()]).remove(0);
    expect_exactly(&got, &x.numbers().map(|x| f64::from(u8::from(x == 0.0))));
}

fn quantize(random: &mut Random) {
    let dims = dims(random, 6);
    let from = random_float(random);
    let x = random.floats(from, &dims, -40.0, 40.0);
    let ty = random.pick(&QUANTISED);
    let (scale, zero_point) = quantisation(ty, random);
    let got = call(QUANTIZE, &[&x], &[TensorInfo::quantised(ty, &[], scale, zero_point)]).remove(0);
    expect_within(&got, &x.reals(), 0.501);
}

fn dequantize(random: &mut Random) {
    let dims = dims(random, 4);
    let ty = random.pick(&[
        TENSOR_QUANT8_ASYMM,
        TENSOR_QUANT8_ASYMM_SIGNED,
        TENSOR_QUANT8_SYMM,
        TENSOR_QUANT8_SYMM_PER_CHANNEL,
    ]);
    let mut x = random.tensor(ty, &dims);
    if ty == TENSOR_QUANT8_SYMM_PER_CHANNEL {
        let dim = random.below(dims.len());
        let scales = (0..dims[dim]).map(|_| random.real(0.01, 1.0) as f32).collect();
        x.info.channel_quant = Some(ChannelQuant { scales, dim: dim as u32 });
    }
    let got = call(DEQUANTIZE, &[&x], &[TensorInfo::new(random_float(random), &[])]).remove(0);
    expect(&got, &x.reals());
}

fn cast(random: &mut Random) {
    let dims = dims(random, 6);
    let types = [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM];
    let alone = [
        TENSOR_BOOL8,
        TENSOR_QUANT16_ASYMM,
        TENSOR_QUANT16_SYMM,
        TENSOR_QUANT8_ASYMM_SIGNED,
        TENSOR_QUANT8_SYMM,
    ];
    let (from, to) = match random.one_in(4) {
        true => {
            let ty = random.pick(&alone);
            (ty, ty)
        }
        false => (random.pick(&types), random.pick(&types)),
    };
    let mut x = random.tensor(from, &dims);
    if from.is_float() {
        x = random.floats(from, &dims, -400.0, 400.0);
    }
    let (scale, zero_point) = quantisation(to, random);
    let got = call(CAST, &[&x], &[TensorInfo::quantised(to, &[], scale, zero_point)]).remove(0);
    let want = x.numbers().map(|x| match to {
        TENSOR_FLOAT16 => half::f16::from_f64(x).into(),
        TENSOR_QUANT8_ASYMM => x.trunc().clamp(0.0, 255.0),
        TENSOR_INT32 => x.trunc(),
        _ => x,
    });
    assert_eq!(got.numbers().at, want.at, "from {from} to {to}: {:?}", x.numbers().at);
}
