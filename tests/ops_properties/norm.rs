//! Normalisations along an axis, and over images.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "SOFTMAX", operations: &[SOFTMAX], cases: 200, case: softmax },
    Property { name: "LOG_SOFTMAX", operations: &[LOG_SOFTMAX], cases: 100, case: log_softmax },
    Property { name: "L2_NORMALIZATION", operations: &[L2_NORMALIZATION], cases: 200, case: l2 },
    Property {
        name: "LOCAL_RESPONSE_NORMALIZATION",
        operations: &[LOCAL_RESPONSE_NORMALIZATION],
        cases: 100,
        case: local_response,
    },
    Property {
        name: "INSTANCE_NORMALIZATION",
        operations: &[INSTANCE_NORMALIZATION],
        cases: 60,
        case: instance,
    },
];

/// Each element from its place and the lane along `axis` that it is in.
fn along(axis: usize, x: &Nd, f: impl Fn(usize, &[f64]) -> f64) -> Nd {
    Nd::from_fn(&x.dims, |i| {
        let lane: Vec<f64> = (0..x.dims[axis])
            .map(|k| {
                let mut index = i.to_vec();
                index[axis] = k;
                x.get(&index)
            })
            .collect();
        f(i[axis], &lane)
    })
}

/// An axis, and the input that says so; none where it is the last and so may be left off.
fn axis(random: &mut Random, rank: usize) -> (usize, Option<Value>) {
    let axis = random.below(rank);
    let left_off = axis == rank - 1 && random.coin();
    (axis, (!left_off).then(|| int(random.signed_axis(axis, rank))))
}

fn softmax(random: &mut Random) {
    let rank = random.size(1, 4);
    let mut dims = random.dims(rank, 5);
    dims[0] = random.batch(5);
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let beta = scalar(ty, random.pick(&[1.0, 0.5, 0.125, 2.0]));
    let (axis, axis_input) = axis(random, rank);
    let mut output = input.like();
    if is_quantised(ty) {
        output.scale = 1.0 / 256.0;
        output.zero_point = if ty == TENSOR_QUANT8_ASYMM { 0 } else { -128 };
    }
    let inputs: Vec<&Value> = [&input, &beta].into_iter().chain(&axis_input).collect();
    let got = call(SOFTMAX, &inputs, &[output]).remove(0);
    let beta = beta.numbers().at[0];
    let want = along(axis, &input.reals(), |k, lane| {
        let max = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = lane.iter().map(|x| ((x - max) * beta).exp()).sum();
        ((lane[k] - max) * beta).exp() / sum
    });
    expect(&got, &want);
}

fn log_softmax(random: &mut Random) {
    let rank = random.size(1, 5);
    let dims = random.dims(rank, 4);
    let ty = random.pick(&FLOATS);
    let input = random.tensor(ty, &dims);
    let beta = scalar(ty, random.pick(&[1.0, 0.5, 2.0]));
    let axis = random.below(rank);
    let axis_input = int(random.signed_axis(axis, rank));
    let got = call(LOG_SOFTMAX, &[&input, &beta, &axis_input], &[input.like()]).remove(0);
    let beta = beta.numbers().at[0];
    let want = along(axis, &input.reals(), |k, lane| {
        let max = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = lane.iter().map(|x| ((x - max) * beta).exp()).sum();
        (lane[k] - max) * beta - sum.ln()
    });
    expect(&got, &want);
}

fn l2(random: &mut Random) {
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 5);
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let (axis, axis_input) = axis(random, rank);
    let mut output = input.like();
    if is_quantised(ty) {
        output.scale = 1.0 / 128.0;
        output.zero_point = if ty == TENSOR_QUANT8_ASYMM { 128 } else { 0 };
    }
    let inputs: Vec<&Value> = [&input].into_iter().chain(&axis_input).collect();
    let got = call(L2_NORMALIZATION, &inputs, &[output]).remove(0);
    let want = along(axis, &input.reals(), |k, lane| {
        let norm = lane.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm == 0.0 {
            0.0
        } else {
            lane[k] / norm
        }
    });
    expect(&got, &want);
}

fn local_response(random: &mut Random) {
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 5);
    let ty = random.pick(&FLOATS);
    let input = random.tensor(ty, &dims);
    let radius = random.size(0, 3);
    let params = [random.pick(&[1.0, 9.0]), random.pick(&[0.5, 4.0]), random.pick(&[0.5, 0.75, 1.0])];
    let [bias, alpha, beta] = params.map(|x| scalar(ty, x));
    let (axis, axis_input) = axis(random, rank);
    let radius_input = int(radius as i32);
    let inputs: Vec<&Value> =
        [&input, &radius_input, &bias, &alpha, &beta].into_iter().chain(&axis_input).collect();
    let got = call(LOCAL_RESPONSE_NORMALIZATION, &inputs, &[input.like()]).remove(0);
    let [bias, alpha, beta] = params;
    let want = along(axis, &input.reals(), |k, lane| {
        let near = &lane[k.saturating_sub(radius)..(k + radius + 1).min(lane.len())];
        lane[k] / (bias + alpha * near.iter().map(|x| x * x).sum::<f64>()).powf(beta)
    });
    expect(&got, &want);
}

fn instance(random: &mut Random) {
    let dims = random.dims(4, 4);
    let ty = random.pick(&FLOATS);
    let nchw = random.coin();
    let input = random.tensor(ty, &dims);
    let params = [random.pick(&[1.0, -2.0]), random.pick(&[0.0, 3.0]), random.pick(&[0.5, 0.0625])];
    let [gamma, beta, epsilon] = params.map(|x| scalar(ty, x));
    let inputs = [&input, &gamma, &beta, &epsilon, &boolean(nchw)];
    let got = call(INSTANCE_NORMALIZATION, &inputs, &[input.like()]).remove(0);
    let [gamma, beta, epsilon] = params;
    let reals = if nchw { input.reals().permuted(&[0, 2, 3, 1]) } else { input.reals() };
    let want = Nd::from_fn(&reals.dims, |i| {
        let image = Nd::from_fn(&[reals.dims[1], reals.dims[2]], |j| reals.get(&[i[0], j[0], j[1], i[3]])).at;
        let count = image.len() as f64;
        let mean = image.iter().sum::<f64>() / count;
        let variance = image.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        (reals.get(i) - mean) * gamma / (variance + epsilon).sqrt() + beta
    });
    expect_within(&got, &want.laid_out(nchw), 4.0);
}
