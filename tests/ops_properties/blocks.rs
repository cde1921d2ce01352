//! Operations that move blocks of pixels between space, batches and channels.

use crate::support::*;
use smallvec::smallvec;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property {
        name: "depth and space",
        operations: &[DEPTH_TO_SPACE, SPACE_TO_DEPTH],
        cases: 120,
        case: depth_and_space,
    },
    Property {
        name: "batch and space",
        operations: &[BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND],
        cases: 160,
        case: batch_and_space,
    },
    Property { name: "CHANNEL_SHUFFLE", operations: &[CHANNEL_SHUFFLE], cases: 60, case: channel_shuffle },
];

/// Calls `operation` on an NHWC `input` in some layout; gives the result in NHWC again, as a layout input or none said.
fn call_in_layout(operation: OperationType, input: &Value, steering: &[Value], random: &mut Random) -> Nd {
    let nchw = random.coin();
    let numbers = input.numbers().laid_out(nchw);
    let dims = numbers.dims.iter().map(|&d| d as u32).collect();
    let passed = Value::of_numbers(TensorInfo { dims, ..input.info.clone() }, &numbers.at);
    let layout = boolean(nchw);
    let said = nchw || random.coin();
    let inputs: Vec<&Value> = [&passed].into_iter().chain(steering).chain(said.then_some(&layout)).collect();
    let got = call(operation, &inputs, &[input.like()]).remove(0).numbers();
    if nchw {
        got.permuted(&[0, 2, 3, 1])
    } else {
        got
    }
}

fn same(got: Nd, want: Nd) {
    assert_eq!((got.dims, got.at), (want.dims, want.at));
}

fn depth_and_space(random: &mut Random) {
    let ty = random.pick(&COMMON);
    let (block, dims) = (random.size(1, 3), random.dims(4, 3));
    let [n, h, w, c] = [dims[0], dims[1], dims[2], dims[3]];
    let (small, large) = ([n, h, w, c * block * block], [n, h * block, w * block, c]);
    let steering = [int(block as i32)];
    if random.coin() {
        let input = random.tensor(ty, &small);
        let numbers = input.numbers();
        let want = Nd::from_fn(&large, |i| {
            let within = (i[1] % block) * block + i[2] % block;
            numbers.get(&[i[0], i[1] / block, i[2] / block, within * c + i[3]])
        });
        same(call_in_layout(DEPTH_TO_SPACE, &input, &steering, random), want);
    } else {
        let input = random.tensor(ty, &large);
        let numbers = input.numbers();
        let want = Nd::from_fn(&small, |i| {
            let within = i[3] / c;
            numbers.get(&[i[0], i[1] * block + within / block, i[2] * block + within % block, i[3] % c])
        });
        same(call_in_layout(SPACE_TO_DEPTH, &input, &steering, random), want);
    }
}

fn batch_and_space(random: &mut Random) {
    let ty = random.pick(&COMMON);
    let (bh, bw) = (random.size(1, 3), random.size(1, 3));
    let dims = random.dims(4, 3);
    let [n, h, w, c] = [dims[0], dims[1], dims[2], dims[3]];
    let blocks = ints(&[bh as i32, bw as i32]);
    if random.coin() {
        let input = random.tensor(ty, &[n * bh * bw, h, w, c]);
        let numbers = input.numbers();
        let want = Nd::from_fn(&[n, h * bh, w * bw, c], |i| {
            let within = (i[1] % bh) * bw + i[2] % bw;
            numbers.get(&[within * n + i[0], i[1] / bh, i[2] / bw, i[3]])
        });
        same(call_in_layout(BATCH_TO_SPACE_ND, &input, &[blocks], random), want);
        return;
    }
    // An image that paddings fill up to whole blocks.
    let mut padded = |blocks: usize, block: usize| {
        let full = blocks * block;
        let size = random.size(1, full);
        let head = random.size(0, full - size);
        (size, head, full - size - head)
    };
    let ((ih, top, bottom), (iw, left, right)) = (padded(h, bh), padded(w, bw));
    let input = random.tensor(ty, &[n, ih, iw, c]);
    let numbers = input.numbers();
    let want = Nd::from_fn(&[n * bh * bw, h, w, c], |i| {
        let within = i[0] / n;
        let (y, x) = (i[1] * bh + within / bw, i[2] * bw + within % bw);
        let at = [i[0] % n, y, x, i[3]].map(|i| i as i64);
        let at = [at[0], at[1] - top as i64, at[2] - left as i64, at[3]];
        numbers.inside(&at).unwrap_or(input.info.zero_point.into())
    });
    let mut paddings = ints(&[top, bottom, left, right].map(|p| p as i32));
    paddings.info.dims = smallvec![2, 2];
    same(call_in_layout(SPACE_TO_BATCH_ND, &input, &[blocks, paddings], random), want);
}

fn channel_shuffle(random: &mut Random) {
    let rank = random.size(1, 4);
    let (mut dims, axis) = (random.dims(rank, 3), random.below(rank));
    let (groups, each) = (random.size(1, 4), random.size(1, 4));
    dims[axis] = groups * each;
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, &dims);
    let inputs = [&input, &int(groups as i32), &int(random.signed_axis(axis, rank))];
    let got = call(CHANNEL_SHUFFLE, &inputs, &[input.like()]).remove(0);
    let numbers = input.numbers();
    let want = Nd::from_fn(&dims, |i| {
        let mut index = i.to_vec();
        index[axis] = i[axis] % groups * each + i[axis] / groups;
        numbers.get(&index)
    });
    expect_exactly(&got, &want);
}
