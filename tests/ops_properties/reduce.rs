//! Reductions over axes, and searches along one.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property {
        name: "reductions",
        operations: &[MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM],
        cases: 400,
        case: reduce,
    },
    Property { name: "arg", operations: &[ARGMAX, ARGMIN], cases: 150, case: arg },
    Property { name: "TOPK_V2", operations: &[TOPK_V2], cases: 100, case: topk },
];

fn reduce(random: &mut Random) {
    let operation =
        random.pick(&[MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM]);
    let ty = match operation {
        REDUCE_ALL | REDUCE_ANY => TENSOR_BOOL8,
        REDUCE_PROD | REDUCE_SUM => random.pick(&FLOATS),
        _ => random.pick(&COMMON),
    };
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 4);
    let mut input = random.tensor(ty, &dims);
    if operation == REDUCE_PROD {
        input = random.floats(ty, &dims, -1.5, 1.5);
    }
    // Axes in any order, some twice, some counted from the end.
    let axes: Vec<usize> = (0..random.size(1, rank + 1)).map(|_| random.below(rank)).collect();
    let axes_input: Vec<i32> = axes.iter().map(|&axis| random.signed_axis(axis, rank)).collect();
    let keep = random.coin();
    let reals = input.reals();
    let kept: Vec<usize> = (0..rank).map(|a| if axes.contains(&a) { 1 } else { dims[a] }).collect();
    let mut want = Nd::from_fn(&kept, |i| {
        let mut values = Vec::new();
        Nd::from_fn(&dims, |j| {
            if (0..rank).all(|a| axes.contains(&a) || i[a] == j[a]) {
                values.push(reals.get(j));
            }
            0.0
        });
        let sum: f64 = values.iter().sum();
        match operation {
            MEAN => sum / values.len() as f64,
            REDUCE_ALL => f64::from(u8::from(values.iter().all(|&x| x != 0.0))),
            REDUCE_ANY => f64::from(u8::from(values.iter().any(|&x| x != 0.0))),
            REDUCE_MAX => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            REDUCE_MIN => values.iter().copied().fold(f64::INFINITY, f64::min),
            REDUCE_PROD => values.iter().product(),
            _ => sum,
        }
    });
    if !keep {
        want.dims = (0..rank).filter(|a| !axes.contains(a)).map(|a| dims[a]).collect();
        if want.dims.is_empty() {
            want.dims = vec![1];
        }
    }
    let keep = if operation == MEAN { int(keep.into()) } else { boolean(keep) };
    let got = call(operation, &[&input, &ints(&axes_input), &keep], &[input.like()]).remove(0);
    expect(&got, &want);
}

fn arg(random: &mut Random) {
    let operation = random.pick(&[ARGMAX, ARGMIN]);
    let rank = random.size(1, 5);
    let dims = random.dims(rank, 4);
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let axis = random.below(rank);
    let numbers = input.numbers();
    let mut out = dims.clone();
    out.remove(axis);
    let mut want = Nd::from_fn(&out, |i| {
        let at = |k: usize| {
            let mut index = i.to_vec();
            index.insert(axis, k);
            numbers.get(&index)
        };
        let better = |a: f64, b: f64| if operation == ARGMAX { a > b } else { a < b };
        (1..dims[axis]).fold(0, |best, k| if better(at(k), at(best)) { k } else { best }) as f64
    });
    if want.dims.is_empty() {
        want.dims = vec![1];
    }
    let axis = int(random.signed_axis(axis, rank));
    let got = call(operation, &[&input, &axis], &[TensorInfo::new(TENSOR_INT32, &[])]).remove(0);
    expect_exactly(&got, &want);
}

fn topk(random: &mut Random) {
    let rank = random.size(1, 4);
    let mut dims = random.dims(rank, 3);
    let n = random.size(1, 8);
    dims[rank - 1] = n;
    let ty = random.pick(&COMMON_AND_INT);
    let mut input = random.tensor(ty, &dims);
    // Of equal elements the one with the larger index comes first.
    let rows = dims[..rank - 1].iter().product();
    let numbers: Vec<f64> = (0..rows)
        .flat_map(|_| random.permutation(n))
        .map(|x| (x / 2) as f64 * 3.0 - if ty == TENSOR_QUANT8_ASYMM { 0.0 } else { 8.0 })
        .collect();
    input = Value::of_numbers(input.info.clone(), &numbers);
    let k = random.size(1, n);
    let outputs = [input.like(), TensorInfo::new(TENSOR_INT32, &[])];
    let got = call(TOPK_V2, &[&input, &int(k as i32)], &outputs);
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in numbers.chunks(n) {
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(b.cmp(&a)));
        values.extend(order[..k].iter().map(|&i| row[i]));
        indices.extend(order[..k].iter().map(|&i| i as f64));
    }
    dims[rank - 1] = k;
    expect_exactly(&got[0], &Nd { dims: dims.clone(), at: values });
    expect_exactly(&got[1], &Nd { dims, at: indices });
}
