//! Bounding boxes: transformed, suppressed, proposed, detected.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property {
        name: "AXIS_ALIGNED_BBOX_TRANSFORM",
        operations: &[AXIS_ALIGNED_BBOX_TRANSFORM],
        cases: 80,
        case: bbox_transform,
    },
    Property { name: "BOX_WITH_NMS_LIMIT", operations: &[BOX_WITH_NMS_LIMIT], cases: 150, case: nms },
    Property { name: "GENERATE_PROPOSALS", operations: &[GENERATE_PROPOSALS], cases: 100, case: proposals },
    Property {
        name: "DETECTION_POSTPROCESSING",
        operations: &[DETECTION_POSTPROCESSING],
        cases: 120,
        case: detection,
    },
];

type Corners = [f64; 4];

fn eighths(ty: OperandType, exact: OperandType, dims: &[u32]) -> TensorInfo {
    match is_quantised(ty) {
        true => TensorInfo::quantised(exact, dims, 0.125, 0),
        false => TensorInfo::new(ty, dims),
    }
}

/// Numbers in eighths, in the type that goes with `ty`.
fn in_eighths(ty: OperandType, exact: OperandType, dims: &[usize], values: &[f64]) -> Value {
    let dims: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
    let scaled: Vec<f64> = values.iter().map(|x| x * if is_quantised(ty) { 8.0 } else { 1.0 }).collect();
    Value::of_numbers(eighths(ty, exact, &dims), &scaled)
}

fn random_corners(random: &mut Random) -> Corners {
    let (x, y) = (random.range(0, 160) as f64 / 8.0, random.range(0, 160) as f64 / 8.0);
    [x, y, x + random.range(8, 120) as f64 / 8.0, y + random.range(8, 120) as f64 / 8.0]
}

/// Small deltas, as real numbers and as an operand.
fn random_deltas(random: &mut Random, ty: OperandType, dims: &[usize]) -> Value {
    match is_quantised(ty) {
        true => random.fill(ty, dims, 0.01, if ty == TENSOR_QUANT8_ASYMM { 128 } else { 0 }),
        false => random.floats(ty, dims, -1.0, 1.0),
    }
}

/// A box moved by deltas in x, y, width and height, and cut at the edges of an image of `[height, width]`.
fn moved([x1, y1, x2, y2]: Corners, deltas: &[f64], image: &[f64]) -> Corners {
    let (w, h) = (x2 - x1, y2 - y1);
    let (x, y) = ((x1 + x2) / 2.0 + deltas[0] * w, (y1 + y2) / 2.0 + deltas[1] * h);
    let (w, h) = (w * deltas[2].exp(), h * deltas[3].exp());
    let cut = |v: f64, edge: f64| v.max(0.0).min(edge);
    [
        cut(x - w / 2.0, image[1]),
        cut(y - h / 2.0, image[0]),
        cut(x + w / 2.0, image[1]),
        cut(y + h / 2.0, image[0]),
    ]
}

/// Intersection over union.
fn overlap(a: &Corners, b: &Corners) -> f64 {
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let area = |c: &Corners| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}

fn bbox_transform(random: &mut Random) {
    let ty = random.pick(&COMMON);
    let [rows, classes, images] = [random.batch(4), random.size(1, 3), random.size(1, 3)];
    let corners: Vec<Corners> = (0..rows).map(|_| random_corners(random)).collect();
    let deltas = random_deltas(random, ty, &[rows, classes * 4]);
    let batches: Vec<i32> = (0..rows).map(|_| random.below(images) as i32).collect();
    let sizes: Vec<f64> = (0..images * 2).map(|_| random.range(20, 40) as f64).collect();
    let roi = in_eighths(ty, TENSOR_QUANT16_ASYMM, &[rows, 4], &corners.concat());
    let info = in_eighths(ty, TENSOR_QUANT16_ASYMM, &[images, 2], &sizes);
    let inputs = [&roi, &deltas, &ints(&batches), &info];
    let got = call(AXIS_ALIGNED_BBOX_TRANSFORM, &inputs, &[roi.like()]).remove(0);
    let moves = deltas.reals().at;
    let want: Vec<f64> = (0..rows * classes)
        .flat_map(|i| {
            let image = batches[i / classes] as usize;
            moved(corners[i / classes], &moves[4 * i..4 * i + 4], &sizes[2 * image..2 * image + 2])
        })
        .collect();
    expect_within(
        &got,
        &Nd { dims: vec![rows, classes * 4], at: want },
        if is_quantised(ty) { 0.51 } else { 4.0 },
    );
}

/// Scores that differ all, so that their order is certain.
fn distinct_scores(random: &mut Random, ty: OperandType, dims: &[usize]) -> Value {
    let count = dims.iter().product();
    let order = random.permutation(count);
    let dims: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
    let info = match is_quantised(ty) {
        true => TensorInfo::quantised(ty, &dims, 0.01, if ty == TENSOR_QUANT8_ASYMM { 0 } else { -128 }),
        false => TensorInfo::new(ty, &dims),
    };
    let zero = f64::from(info.zero_point);
    let numbers: Vec<f64> = order
        .iter()
        .map(|&i| if is_quantised(ty) { zero + i as f64 } else { (i + 1) as f64 / (count + 1) as f64 })
        .collect();
    Value::of_numbers(info, &numbers)
}

fn nms(random: &mut Random) {
    let ty = random.pick(&COMMON);
    let [rows, classes] = [random.batch(8), random.size(2, 4)];
    let scores = distinct_scores(random, ty, &[rows, classes]);
    let corners: Vec<Corners> = (0..rows * classes).map(|_| random_corners(random)).collect();
    let mut batch = 0;
    let batches: Vec<i32> = (0..rows)
        .map(|_| {
            batch += i32::from(random.one_in(4));
            batch
        })
        .collect();
    let limit = random.range(-1, 6) as i32;
    let kernel = random.range(0, 2) as i32;
    let [threshold, iou, sigma, least] =
        [random.real(0.0, 0.5), random.real(0.1, 0.7), random.real(0.2, 1.0), random.real(0.0, 0.3)]
            .map(|x| scalar(ty, x));
    let roi = in_eighths(ty, TENSOR_QUANT16_ASYMM, &[rows, classes * 4], &corners.concat());
    let inputs =
        [&scores, &roi, &ints(&batches), &threshold, &int(limit), &int(kernel), &iou, &sigma, &least];
    let outputs =
        [scores.like(), roi.like(), TensorInfo::new(TENSOR_INT32, &[]), TensorInfo::new(TENSOR_INT32, &[])];
    let got = call(BOX_WITH_NMS_LIMIT, &inputs, &outputs);
    let [threshold, iou, sigma, least] = [threshold, iou, sigma, least].map(|v| v.numbers().at[0]);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let reals = scores.reals();
    let decay = |overlap: f64| match kernel {
        0 => f64::from(u8::from(overlap < iou)),
        1 => {
            if overlap < iou {
                1.0
            } else {
                1.0 - overlap
            }
        }
        _ => (-overlap * overlap / sigma).exp(),
    };
    // Score, class and row of every box kept.
    let mut kept: Vec<(f64, usize, usize)> = Vec::new();
    for image in 0..=batch {
        let mut of_image = Vec::new();
        for class in 1..classes {
            let mut left: Vec<(f64, usize)> = (0..rows)
                .filter(|&row| batches[row] == image)
                .map(|row| (reals.get(&[row, class]), row))
                .filter(|&(score, _)| score > threshold)
                .collect();
            let mut of_class = 0;
            while !left.is_empty() && of_class < limit {
                left.sort_by(|a, b| b.0.total_cmp(&a.0));
                let (score, row) = left.remove(0);
                of_image.push((score, class, row));
                of_class += 1;
                let corner = |row: usize| &corners[row * classes + class];
                left.iter_mut().for_each(|(s, r)| *s *= decay(overlap(corner(*r), corner(row))));
                left.retain(|&(score, _)| score >= least);
            }
        }
        of_image.sort_by(|a, b| b.0.total_cmp(&a.0));
        of_image.truncate(limit);
        of_image.sort_by_key(|&(_, class, _)| class);
        kept.extend(of_image);
    }
    let n = kept.len();
    let column =
        |f: &dyn Fn(&(f64, usize, usize)) -> f64| Nd { dims: vec![n], at: kept.iter().map(f).collect() };
    expect_exactly(&got[2], &column(&|k| k.1 as f64));
    expect_exactly(&got[3], &column(&|k| batches[k.2].into()));
    let steps = if is_quantised(ty) { 0.51 } else { 1.0 };
    expect_within(&got[0], &column(&|k| k.0), steps);
    let at = kept.iter().flat_map(|k| corners[k.2 * classes + k.1]).collect();
    expect_within(&got[1], &Nd { dims: vec![n, 4], at }, steps);
}

/// Hard suppression: the best of `boxes` by `scores`, at most `limit`, none overlapping a better one.
fn suppressed(scores: &[f64], boxes: &[Corners], mut left: Vec<usize>, iou: f64, limit: usize) -> Vec<usize> {
    left.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut kept: Vec<usize> = Vec::new();
    for i in left {
        if kept.len() < limit && kept.iter().all(|&k| overlap(&boxes[i], &boxes[k]) < iou) {
            kept.push(i);
        }
    }
    kept
}

fn proposals(random: &mut Random) {
    let (ty, nchw) = (random.pick(&COMMON), random.coin());
    let [n, h, w, a] = [random.size(1, 2), random.size(1, 3), random.size(1, 3), random.size(1, 3)];
    let scores = distinct_scores(random, ty, &if nchw { [n, a, h, w] } else { [n, h, w, a] });
    let deltas = random_deltas(random, ty, &if nchw { [n, 4 * a, h, w] } else { [n, h, w, 4 * a] });
    let anchors: Vec<Corners> = (0..a).map(|_| random_corners(random).map(|x| x - 4.0)).collect();
    let sizes: Vec<f64> = (0..n * 2).map(|_| random.range(20, 40) as f64).collect();
    let strides = [random.pick(&[4.0, 8.5]), random.pick(&[4.0, 10.0])];
    let limits = [random.range(-1, 12) as i32, random.range(-1, 6) as i32];
    let (iou, min_size) = (scalar(ty, random.real(0.1, 0.7)), scalar(ty, random.real(0.0, 6.0)));
    let anchor_input = in_eighths(ty, TENSOR_QUANT16_SYMM, &[a, 4], &anchors.concat());
    let info = in_eighths(ty, TENSOR_QUANT16_ASYMM, &[n, 2], &sizes);
    let [h_stride, w_stride] = strides.map(|stride| scalar(ty, stride));
    let [pre, post] = limits.map(int);
    let inputs = [
        &scores,
        &deltas,
        &anchor_input,
        &info,
        &h_stride,
        &w_stride,
        &pre,
        &post,
        &iou,
        &min_size,
        &boolean(nchw),
    ];
    let outputs = [scores.like(), eighths(ty, TENSOR_QUANT16_ASYMM, &[]), TensorInfo::new(TENSOR_INT32, &[])];
    let got = call(GENERATE_PROPOSALS, &inputs, &outputs);
    let nhwc = |v: &Value| if nchw { v.reals().permuted(&[0, 2, 3, 1]) } else { v.reals() };
    let (scores, deltas) = (nhwc(&scores), nhwc(&deltas));
    let (iou, min_size) = (iou.numbers().at[0], min_size.numbers().at[0]);
    let limits = limits.map(|limit| if limit > 0 { limit as usize } else { usize::MAX });
    let (mut want_scores, mut want_boxes, mut want_batches) = (vec![], vec![], vec![]);
    for image in 0..n {
        let size = &sizes[2 * image..2 * image + 2];
        let (mut all, mut boxes) = (Vec::new(), Vec::new());
        Nd::from_fn(&[h, w, a], |i| {
            let (dy, dx) = (i[0] as f64 * strides[0], i[1] as f64 * strides[1]);
            let [x1, y1, x2, y2] = anchors[i[2]];
            let moves: Vec<f64> = (0..4).map(|d| deltas.get(&[image, i[0], i[1], 4 * i[2] + d])).collect();
            boxes.push(moved([x1 + dx, y1 + dy, x2 + dx, y2 + dy], &moves, size));
            all.push(scores.get(&[image, i[0], i[1], i[2]]));
            0.0
        });
        let mut left: Vec<usize> = (0..all.len()).collect();
        left.sort_by(|&a, &b| all[b].total_cmp(&all[a]));
        left.truncate(limits[0]);
        left.retain(|&i| {
            let [x1, y1, x2, y2] = boxes[i];
            let (w, h) = (x2 - x1, y2 - y1);
            w > min_size && h > min_size && x1 + w / 2.0 < size[1] && y1 + h / 2.0 < size[0]
        });
        for i in suppressed(&all, &boxes, left, iou, limits[1]) {
            want_scores.push(all[i]);
            want_boxes.extend(boxes[i]);
            want_batches.push(image as f64);
        }
    }
    let n = want_scores.len();
    expect_exactly(&got[2], &Nd { dims: vec![n], at: want_batches });
    let steps = if is_quantised(ty) { 0.51 } else { 4.0 };
    expect_within(&got[0], &Nd { dims: vec![n], at: want_scores }, steps);
    expect_within(&got[1], &Nd { dims: vec![n, 4], at: want_boxes }, steps);
}

fn detection(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let [n, a, c, length] = [random.size(1, 2), random.size(1, 6), random.size(2, 4), random.size(4, 6)];
    let scores = distinct_scores(random, ty, &[n, a, c]);
    let deltas = random.floats(ty, &[n, a, length], -1.0, 1.0);
    let anchors: Vec<f64> = (0..a * 4).map(|_| random.range(8, 120) as f64 / 8.0).collect();
    let anchor_input = Value::of_reals(TensorInfo::new(ty, &[a as u32, 4]), &anchors);
    let scales = [0; 4].map(|_| random.pick(&[1.0, 2.0, 10.0]));
    let (regular, background) = (random.coin(), random.coin());
    let [most, most_classes, most_of_class] = [random.size(1, 5), random.size(1, 4), random.size(1, 4)];
    let (threshold, iou) = (scalar(ty, random.real(0.0, 0.7)), scalar(ty, random.real(0.1, 0.7)));
    let mut inputs = vec![scores.clone(), deltas.clone(), anchor_input];
    inputs.extend(scales.map(|scale| scalar(ty, scale)));
    inputs.push(boolean(regular));
    inputs.extend([most, most_classes, most_of_class].map(|n| int(n as i32)));
    inputs.extend([threshold.clone(), iou.clone(), boolean(background)]);
    let outputs = [ty, ty, TENSOR_INT32, TENSOR_INT32].map(|ty| TensorInfo::new(ty, &[]));
    let got = call(DETECTION_POSTPROCESSING, &inputs.iter().collect::<Vec<_>>(), &outputs);
    let (scores, deltas) = (scores.reals(), deltas.reals());
    let (threshold, iou) = (threshold.numbers().at[0], iou.numbers().at[0]);
    let rows = most * if regular { 1 } else { most_classes };
    let label = |class: usize| (class - usize::from(!background)) as f64;
    let mut want = [vec![], vec![], vec![], vec![]];
    for image in 0..n {
        let boxes: Vec<Corners> = (0..a)
            .map(|i| {
                let anchor = &anchors[4 * i..4 * i + 4];
                let d = |k: usize| deltas.get(&[image, i, k]) / scales[k];
                let (y, x) = (anchor[0] + anchor[2] * d(0), anchor[1] + anchor[3] * d(1));
                let (h, w) = (anchor[2] * d(2).exp() / 2.0, anchor[3] * d(3).exp() / 2.0);
                [y - h, x - w, y + h, x + w]
            })
            .collect();
        let of = |class: usize| (0..a).map(|i| scores.get(&[image, i, class])).collect::<Vec<f64>>();
        let mut found: Vec<(f64, usize, usize)> = Vec::new();
        if regular {
            for class in 1..c {
                let scores = of(class);
                let left = (0..a).filter(|&i| scores[i] > threshold).collect();
                let kept = suppressed(&scores, &boxes, left, iou, most_of_class);
                found.extend(kept.into_iter().map(|i| (scores[i], i, class)));
            }
            found.sort_by(|a, b| b.0.total_cmp(&a.0));
            found.truncate(most);
        } else {
            let best: Vec<f64> =
                (0..a).map(|i| (1..c).map(|class| of(class)[i]).fold(0.0, f64::max)).collect();
            let left = (0..a).filter(|&i| best[i] > threshold).collect();
            for i in suppressed(&best, &boxes, left, iou, most) {
                let mut classes: Vec<(f64, usize, usize)> =
                    (1..c).map(|class| (of(class)[i], i, class)).collect();
                classes.sort_by(|a, b| b.0.total_cmp(&a.0));
                classes.truncate(most_classes);
                found.extend(classes);
            }
        }
        want[3].push(found.len() as f64);
        for row in 0..rows {
            let hit = found.get(row);
            want[0].push(hit.map_or(0.0, |f| f.0));
            want[1].extend(hit.map_or([0.0; 4], |f| boxes[f.1]));
            want[2].push(hit.map_or(0.0, |f| label(f.2)));
        }
    }
    let [scores, boxes, classes, counts] = want;
    expect_exactly(&got[3], &Nd { dims: vec![n], at: counts });
    expect_exactly(&got[2], &Nd { dims: vec![n, rows], at: classes });
    expect(&got[0], &Nd { dims: vec![n, rows], at: scores });
    expect_within(&got[1], &Nd { dims: vec![n, rows, 4], at: boxes }, 4.0);
}
