//! Operations that move whole elements: shapes, order, padding, joining.

use crate::support::*;
use smallvec::smallvec;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "CONCATENATION", operations: &[CONCATENATION], cases: 150, case: concatenation },
    Property { name: "PACK", operations: &[PACK], cases: 60, case: pack },
    Property { name: "shapes", operations: &[RESHAPE, SQUEEZE, EXPAND_DIMS], cases: 150, case: shapes },
    Property { name: "TRANSPOSE", operations: &[TRANSPOSE], cases: 80, case: transpose },
    Property { name: "TILE", operations: &[TILE], cases: 80, case: tile },
    Property { name: "paddings", operations: &[PAD, PAD_V2, MIRROR_PAD], cases: 240, case: pad },
    Property { name: "REVERSE", operations: &[REVERSE], cases: 60, case: reverse },
    Property { name: "FILL", operations: &[FILL], cases: 40, case: fill },
    Property { name: "RANK", operations: &[RANK], cases: 40, case: rank },
];

fn concatenation(random: &mut Random) {
    let rank = random.size(1, 4);
    let (dims, axis) = (random.dims(rank, 4), random.below(rank));
    let ty = random.pick(&COMMON);
    let parts: Vec<Value> = (0..random.size(1, 4))
        .map(|_| {
            let mut dims = dims.clone();
            dims[axis] = random.pick(&[0, 1, 1, 2, 2, 3, 4]);
            random.tensor(ty, &dims)
        })
        .collect();
    let (scale, zero_point) = quantisation(ty, random);
    let axis_input = int(axis as i32);
    let inputs: Vec<&Value> = parts.iter().chain([&axis_input]).collect();
    let got = call(CONCATENATION, &inputs, &[TensorInfo::quantised(ty, &[], scale, zero_point)]).remove(0);
    let reals: Vec<Nd> = parts.iter().map(Value::reals).collect();
    let mut out = dims;
    out[axis] = reals.iter().map(|part| part.dims[axis]).sum();
    let want = Nd::from_fn(&out, |i| {
        let mut index = i.to_vec();
        let part = reals.iter().find(|part| {
            let inside = index[axis] < part.dims[axis];
            index[axis] -= if inside { 0 } else { part.dims[axis] };
            inside
        });
        part.unwrap().get(&index)
    });
    expect_within(&got, &want, 0.501);
}

fn pack(random: &mut Random) {
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 3);
    let ty = random.pick(&COMMON_AND_INT);
    let first = random.tensor(ty, &dims);
    let mut parts = vec![first.clone()];
    (0..random.below(3)).for_each(|_| {
        parts.push(random.fill(ty, &dims, first.info.scale, first.info.zero_point));
    });
    let axis = random.below(rank + 1);
    let axis_input = int(axis as i32);
    let inputs: Vec<&Value> = [&axis_input].into_iter().chain(&parts).collect();
    let got = call(PACK, &inputs, &[first.like()]).remove(0);
    let numbers: Vec<Nd> = parts.iter().map(Value::numbers).collect();
    let out = [&dims[..axis], &[parts.len()], &dims[axis..]].concat();
    let want = Nd::from_fn(&out, |i| numbers[i[axis]].get(&[&i[..axis], &i[axis + 1..]].concat()));
    expect_exactly(&got, &want);
}

fn shapes(random: &mut Random) {
    let rank = random.size(1, 4);
    let mut dims = random.dims(rank, 3);
    match random.below(3) {
        0 => {
            let ty = random.pick(&COMMON_AND_INT);
            let input = random.tensor(ty, &dims);
            let mut out: Vec<usize> = dims.clone();
            if random.coin() {
                out = vec![1, dims.iter().product(), 1];
            }
            let mut shape: Vec<i32> = out.iter().map(|&d| d as i32).collect();
            if random.coin() {
                let inferred = random.below(shape.len());
                shape[inferred] = -1;
            }
            let got = call(RESHAPE, &[&input, &ints(&shape)], &[input.like()]).remove(0);
            expect_exactly(&got, &Nd { dims: out, at: input.numbers().at });
        }
        1 => {
            dims.iter_mut().for_each(|d| *d = if random.coin() { 1 } else { *d });
            let ty = random.pick(&COMMON);
            let input = random.tensor(ty, &dims);
            let ones: Vec<usize> = (0..rank).filter(|&a| dims[a] == 1).collect();
            let listed = random.coin();
            let removed: Vec<usize> = ones.iter().copied().filter(|_| !listed || random.coin()).collect();
            let axes: Vec<i32> = removed.iter().map(|&a| random.signed_axis(a, rank)).collect();
            let axes = ints(&axes);
            let inputs = [Some(&input), (listed && !removed.is_empty()).then_some(&axes)];
            let removed = if inputs[1].is_some() { removed } else { ones };
            let got = call_with(SQUEEZE, &inputs, &[input.like()]).remove(0);
            let mut out: Vec<usize> = (0..rank).filter(|a| !removed.contains(a)).map(|a| dims[a]).collect();
            if out.is_empty() {
                out = vec![1];
            }
            expect_exactly(&got, &Nd { dims: out, at: input.numbers().at });
        }
        _ => {
            let ty = random.pick(&COMMON_AND_INT);
            let input = random.tensor(ty, &dims);
            let axis = random.below(rank + 1);
            let axis_input = int(random.signed_axis(axis, rank + 1));
            let got = call(EXPAND_DIMS, &[&input, &axis_input], &[input.like()]).remove(0);
            dims.insert(axis, 1);
            expect_exactly(&got, &Nd { dims, at: input.numbers().at });
        }
    }
}

fn transpose(random: &mut Random) {
    let rank = random.size(1, 4);
    let mut dims = random.dims(rank, 4);
    dims[0] = random.batch(4);
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let given = random.coin();
    let order = if given { random.permutation(rank) } else { (0..rank).rev().collect() };
    let perm = ints(&order.iter().map(|&o| o as i32).collect::<Vec<_>>());
    let got = call_with(TRANSPOSE, &[Some(&input), given.then_some(&perm)], &[input.like()]).remove(0);
    expect_exactly(&got, &input.numbers().permuted(&order));
}

fn tile(random: &mut Random) {
    let rank = random.size(1, 5);
    let dims = random.dims(rank, 3);
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let multiples: Vec<usize> = dims.iter().map(|_| random.size(1, 3)).collect();
    let inputs = [&input, &ints(&multiples.iter().map(|&m| m as i32).collect::<Vec<_>>())];
    let got = call(TILE, &inputs, &[input.like()]).remove(0);
    let out: Vec<usize> = dims.iter().zip(&multiples).map(|(d, m)| d * m).collect();
    let numbers = input.numbers();
    let want =
        Nd::from_fn(&out, |i| numbers.get(&i.iter().zip(&dims).map(|(i, d)| i % d).collect::<Vec<_>>()));
    expect_exactly(&got, &want);
}

/// Paddings as the interface takes them, a row for each dimension.
fn padding_input(paddings: &[[usize; 2]]) -> Value {
    let mut value = ints(&paddings.iter().flatten().map(|&p| p as i32).collect::<Vec<_>>());
    value.info.dims = smallvec![paddings.len() as u32, 2];
    value
}

/// Where a mirrored dimension of `dim` gets the element `at` from.
fn mirrored(at: i64, dim: i64, symmetric: bool) -> usize {
    let edge = i64::from(symmetric);
    let folded = if at < 0 {
        -at - edge
    } else if at >= dim {
        2 * dim - 2 + edge - at
    } else {
        at
    };
    folded as usize
}

fn pad(random: &mut Random) {
    let operation = random.pick(&[PAD, PAD_V2, MIRROR_PAD]);
    let ty = random.pick(if operation == MIRROR_PAD { &COMMON_AND_INT[..] } else { &COMMON });
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 4);
    let symmetric = random.coin();
    let input = random.tensor(ty, &dims);
    let paddings: Vec<[usize; 2]> = dims
        .iter()
        .map(|&dim| match operation {
            MIRROR_PAD => [(); 2].map(|()| random.size(0, dim - usize::from(!symmetric))),
            _ => [random.below(4), random.below(4)],
        })
        .collect();
    let (last, fill) = match operation {
        PAD => (None, f64::from(input.info.zero_point)),
        MIRROR_PAD => (Some(int(symmetric.into())), 0.0),
        _ if is_quantised(ty) => {
            let value = random.range(if ty == TENSOR_QUANT8_ASYMM { 0 } else { -128 }, 127) as i32;
            (Some(int(value)), value.into())
        }
        _ => (Some(scalar(ty, -1.5)), -1.5),
    };
    let paddings_value = padding_input(&paddings);
    let inputs: Vec<&Value> = [&input, &paddings_value].into_iter().chain(&last).collect();
    let got = call(operation, &inputs, &[input.like()]).remove(0);
    let out: Vec<usize> = dims.iter().zip(&paddings).map(|(d, p)| d + p[0] + p[1]).collect();
    let numbers = input.numbers();
    let want = Nd::from_fn(&out, |i| {
        let at: Vec<i64> = i.iter().zip(&paddings).map(|(&i, p)| i as i64 - p[0] as i64).collect();
        if operation != MIRROR_PAD {
            return numbers.inside(&at).unwrap_or(fill);
        }
        let from: Vec<usize> =
            at.iter().zip(&dims).map(|(&at, &dim)| mirrored(at, dim as i64, symmetric)).collect();
        numbers.get(&from)
    });
    expect_exactly(&got, &want);
}

fn reverse(random: &mut Random) {
    let rank = random.size(1, 6);
    let (dims, axis) = (random.dims(rank, 3), random.below(rank));
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let got = call(REVERSE, &[&input, &ints(&[axis as i32])], &[input.like()]).remove(0);
    let numbers = input.numbers();
    let want = Nd::from_fn(&dims, |i| {
        let mut index = i.to_vec();
        index[axis] = dims[axis] - 1 - i[axis];
        numbers.get(&index)
    });
    expect_exactly(&got, &want);
}

fn fill(random: &mut Random) {
    let rank = random.size(1, 5);
    let dims = random.dims(rank, 4);
    let ty = random.pick(&[TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_INT32]);
    let value = if ty == TENSOR_INT32 { int(-7) } else { scalar(ty, -7.0) };
    let dims_input = ints(&dims.iter().map(|&d| d as i32).collect::<Vec<_>>());
    let got = call(FILL, &[&dims_input, &value], &[TensorInfo::new(ty, &[])]).remove(0);
    expect_exactly(&got, &Nd::from_fn(&dims, |_| -7.0));
}

fn rank(random: &mut Random) {
    let rank = random.size(1, 7);
    let dims = random.dims(rank, 2);
    let ty = random.pick(&OperandType::ALL);
    if ty.is_scalar() {
        return;
    }
    let mut input = random.tensor(ty, &dims);
    if ty == TENSOR_QUANT8_SYMM_PER_CHANNEL {
        input.info.channel_quant = Some(ChannelQuant { scales: vec![1.0; dims[0]].into(), dim: 0 });
    }
    let got = call(RANK, &[&input], &[TensorInfo::new(INT32, &[])]).remove(0);
    expect_exactly(&got, &Nd { dims: vec![], at: vec![rank as f64] });
}
