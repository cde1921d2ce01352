//! Matrix products.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "FULLY_CONNECTED", operations: &[FULLY_CONNECTED], cases: 200, case: fully_connected },
    Property { name: "BATCH_MATMUL", operations: &[BATCH_MATMUL], cases: 150, case: batch_matmul },
];

fn fully_connected(random: &mut Random) {
    let rank = random.size(2, 4);
    let (mut dims, units) = (random.dims(rank, 4), random.size(1, 5));
    let size = random.size(1, 6);
    // The elements need not be a row of the input each, as long as they make whole rows.
    dims[rank - 1] = size * if rank > 2 { random.size(1, 2) } else { 1 };
    dims[0] = random.batch(dims[0]);
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let weights = random.tensor(ty, &[units, size]);
    let product = f64::from(input.info.scale * weights.info.scale);
    let mut output = input.like();
    let (bias, biases) = if is_quantised(ty) {
        let mut bias = random.fill(TENSOR_INT32, &[units], 0.0, 0);
        bias.info.scale = input.info.scale * weights.info.scale;
        let (_, zero_point) = quantisation(ty, random);
        let scale = bias.info.scale * random.pick(&[0.7, 40.0, 300.0]);
        output = TensorInfo::quantised(ty, &[], scale, zero_point);
        let reals = bias.numbers().map(|b| b * product);
        (bias, reals)
    } else {
        let bias = random.tensor(ty, &[units]);
        let reals = bias.reals();
        (bias, reals)
    };
    let code = random.below(4) as i32;
    let got = call(FULLY_CONNECTED, &[&input, &weights, &bias, &int(code)], &[output]).remove(0);
    let (x, w) = (input.reals().at, weights.reals());
    let want = Nd::from_fn(&[x.len() / size, units], |i| {
        let sum: f64 = (0..size).map(|k| x[i[0] * size + k] * w.get(&[i[1], k])).sum();
        activate(code, sum + biases.at[i[1]])
    });
    expect_within(&got, &want, 0.76);
}

fn batch_matmul(random: &mut Random) {
    let ty = random.pick(&[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32, TENSOR_QUANT8_ASYMM_SIGNED]);
    let rank = random.size(2, 4);
    let batch = random.dims(rank - 2, 3);
    let [m, k, n] = [random.size(1, 4), random.size(1, 5), random.size(1, 4)];
    let (adj_x, adj_y) = (random.coin(), random.coin());
    let matrix = |rows: usize, columns: usize, flipped: bool| {
        [&batch[..], &if flipped { [columns, rows] } else { [rows, columns] }].concat()
    };
    let x = random.tensor(ty, &matrix(m, k, adj_x));
    let y = random.tensor(ty, &matrix(k, n, adj_y));
    let mut output = x.like();
    if is_quantised(ty) {
        output.scale = x.info.scale * y.info.scale * random.pick(&[40.0, 300.0]);
        output.zero_point = quantisation(ty, random).1;
    }
    let inputs = [&x, &y, &boolean(adj_x), &boolean(adj_y)];
    let got = call(BATCH_MATMUL, &inputs, &[output]).remove(0);
    let (x, y) = (x.reals(), y.reals());
    let at = |of: &Nd, batch: &[usize], row: usize, column: usize, flipped: bool| {
        of.get(&[batch, &if flipped { [column, row] } else { [row, column] }].concat())
    };
    let want = Nd::from_fn(&[&batch[..], &[m, n]].concat(), |i| {
        let (batch, place) = i.split_at(rank - 2);
        (0..k).map(|k| at(&x, batch, place[0], k, adj_x) * at(&y, batch, k, place[1], adj_y)).sum()
    });
    expect_within(&got, &want, if is_quantised(ty) { 0.76 } else { 1.0 });
}
