//! Parts of tensors: slices, splits, gathering and look-ups.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "SLICE", operations: &[SLICE], cases: 100, case: slice },
    Property { name: "STRIDED_SLICE", operations: &[STRIDED_SLICE], cases: 400, case: strided_slice },
    Property { name: "SPLIT", operations: &[SPLIT], cases: 80, case: split },
    Property { name: "GATHER", operations: &[GATHER], cases: 100, case: gather },
    Property { name: "EMBEDDING_LOOKUP", operations: &[EMBEDDING_LOOKUP], cases: 40, case: embedding },
    Property { name: "HASHTABLE_LOOKUP", operations: &[HASHTABLE_LOOKUP], cases: 80, case: hashtable },
];

fn slice(random: &mut Random) {
    let rank = random.size(1, 5);
    let dims = random.dims(rank, 5);
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let begin: Vec<usize> = dims.iter().map(|&d| random.below(d)).collect();
    let sizes: Vec<usize> = dims.iter().zip(&begin).map(|(&d, &b)| random.batch(d - b)).collect();
    let to_end: Vec<bool> = dims.iter().map(|_| random.one_in(4)).collect();
    let sizes: Vec<usize> =
        (0..rank).map(|a| if to_end[a] { dims[a] - begin[a] } else { sizes[a] }).collect();
    let size_input: Vec<i32> = (0..rank).map(|a| if to_end[a] { -1 } else { sizes[a] as i32 }).collect();
    let begin_input: Vec<i32> = begin.iter().map(|&b| b as i32).collect();
    let got = call(SLICE, &[&input, &ints(&begin_input), &ints(&size_input)], &[input.like()]).remove(0);
    let numbers = input.numbers();
    let want =
        Nd::from_fn(&sizes, |i| numbers.get(&i.iter().zip(&begin).map(|(i, b)| i + b).collect::<Vec<_>>()));
    expect_exactly(&got, &want);
}

/// What Python's slice selects of a dimension of `dim`: the indices, in order.
fn selected(dim: i64, begin: Option<i64>, end: Option<i64>, stride: i64) -> Vec<usize> {
    let (low, high) = if stride > 0 { (0, dim) } else { (-1, dim - 1) };
    let clamped = |i: i64| (if i < 0 { i + dim } else { i }).clamp(low, high);
    let mut at = begin.map_or(if stride > 0 { 0 } else { dim - 1 }, clamped);
    let end = end.map_or(if stride > 0 { dim } else { -1 }, clamped);
    let mut indices = Vec::new();
    while (stride > 0 && at < end) || (stride < 0 && at > end) {
        indices.push(at as usize);
        at += stride;
    }
    indices
}

fn strided_slice(random: &mut Random) {
    let rank = random.size(1, 4);
    let dims = random.dims(rank, 6);
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let (mut begins, mut ends, mut strides) = (vec![], vec![], vec![]);
    let mut masks = [0i32; 3];
    let mut chosen = Vec::new();
    for (axis, &dim) in dims.iter().enumerate() {
        let dim = dim as i64;
        loop {
            let (begin, end) = (random.range(-dim - 2, dim + 2), random.range(-dim - 2, dim + 2));
            let stride = random.pick(&[1, 1, 2, 3, -1, -2, 7, -7]);
            let bits = [random.one_in(4), random.one_in(4), random.one_in(5)];
            let indices = selected(dim, (!bits[0]).then_some(begin), (!bits[1]).then_some(end), stride);
            // Only one element may be left of a dimension that is removed, and only forwards.
            if indices.is_empty() || (bits[2] && (stride < 0 || indices.len() != 1)) {
                continue;
            }
            for (mask, bit) in masks.iter_mut().zip(bits) {
                *mask |= i32::from(bit) << axis;
            }
            begins.push(begin as i32);
            ends.push(end as i32);
            strides.push(stride as i32);
            chosen.push(indices);
            break;
        }
    }
    let inputs = [ints(&begins), ints(&ends), ints(&strides), int(masks[0]), int(masks[1]), int(masks[2])];
    let inputs: Vec<&Value> = [&input].into_iter().chain(&inputs).collect();
    let got = call(STRIDED_SLICE, &inputs, &[input.like()]).remove(0);
    let numbers = input.numbers();
    let full: Vec<usize> = chosen.iter().map(Vec::len).collect();
    let mut want =
        Nd::from_fn(&full, |i| numbers.get(&i.iter().zip(&chosen).map(|(&i, c)| c[i]).collect::<Vec<_>>()));
    want.dims = (0..rank).filter(|axis| masks[2] >> axis & 1 == 0).map(|axis| full[axis]).collect();
    if want.dims.is_empty() {
        want.dims = vec![1];
    }
    expect_exactly(&got, &want);
}

fn split(random: &mut Random) {
    let rank = random.size(1, 5);
    let mut dims = random.dims(rank, 3);
    let (axis, parts) = (random.below(rank), random.size(1, 4));
    let part = dims[axis];
    dims[axis] *= parts;
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let inputs = [&input, &int(random.signed_axis(axis, rank)), &int(parts as i32)];
    let got = call(SPLIT, &inputs, &vec![input.like(); parts]);
    let numbers = input.numbers();
    dims[axis] = part;
    for (p, got) in got.iter().enumerate() {
        let want = Nd::from_fn(&dims, |i| {
            let mut index = i.to_vec();
            index[axis] += p * part;
            numbers.get(&index)
        });
        expect_exactly(got, &want);
    }
}

fn gather(random: &mut Random) {
    let rank = random.size(1, 4);
    let (dims, axis) = (random.dims(rank, 4), random.below(rank));
    let ty = random.pick(&COMMON_AND_INT);
    let input = random.tensor(ty, &dims);
    let index_rank = random.size(1, 3);
    let index_dims = random.dims(index_rank, 3);
    let indices: Vec<i32> =
        (0..index_dims.iter().product()).map(|_| random.below(dims[axis]) as i32).collect();
    let mut indices = ints(&indices);
    indices.info.dims = index_dims.iter().map(|&d| d as u32).collect();
    let inputs = [&input, &int(random.signed_axis(axis, rank)), &indices];
    let got = call(GATHER, &inputs, &[input.like()]).remove(0);
    let (numbers, chosen) = (input.numbers(), indices.numbers());
    let out = [&dims[..axis], &index_dims, &dims[axis + 1..]].concat();
    let want = Nd::from_fn(&out, |i| {
        let at = chosen.get(&i[axis..axis + index_rank]) as usize;
        numbers.get(&[&i[..axis], &[at], &i[axis + index_rank..]].concat())
    });
    expect_exactly(&got, &want);
}

fn embedding(random: &mut Random) {
    let rank = random.size(2, 4);
    let dims = random.dims(rank, 4);
    let ty = random.pick(&COMMON_AND_INT);
    let values = random.tensor(ty, &dims);
    let lookups: Vec<i32> = (0..random.size(1, 5)).map(|_| random.below(dims[0]) as i32).collect();
    let got = call(EMBEDDING_LOOKUP, &[&ints(&lookups), &values], &[values.like()]).remove(0);
    let numbers = values.numbers();
    let out = [&[lookups.len()], &dims[1..]].concat();
    let want = Nd::from_fn(&out, |i| numbers.get(&[&[lookups[i[0]] as usize], &i[1..]].concat()));
    expect_exactly(&got, &want);
}

fn hashtable(random: &mut Random) {
    let rank = random.size(1, 3);
    let dims = random.dims(rank, 5);
    let ty = random.pick(&[TENSOR_FLOAT32, TENSOR_INT32, TENSOR_QUANT8_ASYMM]);
    let values = random.tensor(ty, &dims);
    let mut next = random.range(-20, 0) as i32;
    let keys: Vec<i32> = (0..dims[0])
        .map(|_| {
            next += random.range(1, 5) as i32;
            next
        })
        .collect();
    let lookups: Vec<i32> = (0..random.size(1, 6))
        .map(|_| if random.coin() { random.pick(&keys) } else { random.range(-25, 30) as i32 })
        .collect();
    let outputs = [values.like(), TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0, 0)];
    let got = call(HASHTABLE_LOOKUP, &[&ints(&lookups), &ints(&keys), &values], &outputs);
    let numbers = values.numbers();
    let row = |i: usize| keys.iter().position(|&key| key == lookups[i]);
    let out = [&[lookups.len()], &dims[1..]].concat();
    let want = Nd::from_fn(&out, |i| row(i[0]).map_or(0.0, |row| numbers.get(&[&[row], &i[1..]].concat())));
    expect_exactly(&got[0], &want);
    let hits = Nd::from_fn(&[lookups.len()], |i| f64::from(u8::from(row(i[0]).is_some())));
    expect_exactly(&got[1], &hits);
}
