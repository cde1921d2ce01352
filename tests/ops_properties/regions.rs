//! Regions of interest: pooled, aligned, and the keypoints of heat maps.

use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "ROI_ALIGN", operations: &[ROI_ALIGN], cases: 150, case: align },
    Property { name: "ROI_POOLING", operations: &[ROI_POOLING], cases: 150, case: pooling },
    Property {
        name: "HEATMAP_MAX_KEYPOINT",
        operations: &[HEATMAP_MAX_KEYPOINT],
        cases: 120,
        case: keypoints,
    },
];

/// Boxes for images of `ty`: in its type, or in eighths of a pixel if it is quantised.
fn boxes(ty: OperandType, corners: &[[f64; 4]]) -> Value {
    let dims = [corners.len() as u32, 4];
    match is_quantised(ty) {
        true => {
            let info = TensorInfo::quantised(TENSOR_QUANT16_ASYMM, &dims, 0.125, 0);
            Value::of_numbers(info, &corners.concat().iter().map(|x| x * 8.0).collect::<Vec<_>>())
        }
        false => Value::of_reals(TensorInfo::new(ty, &dims), &corners.concat()),
    }
}

/// Feature maps, boxes within them and what both operations take of them.
struct Regions {
    ty: OperandType,
    nchw: bool,
    features: Value,
    /// In NHWC.
    reals: Nd,
    corners: Vec<[f64; 4]>,
    batches: Vec<i32>,
    /// Height and width of the outputs.
    out: [usize; 2],
    /// Pixels of the image to a pixel of the features, in height and width.
    strides: [f64; 2],
}

impl Regions {
    fn random(random: &mut Random) -> Regions {
        let (ty, nchw) = (random.pick(&COMMON), random.coin());
        let [n, h, w, c] = [random.size(1, 3), random.size(1, 6), random.size(1, 6), random.size(1, 3)];
        let features = random.tensor(ty, &if nchw { [n, c, h, w] } else { [n, h, w, c] });
        let numbers = features.reals();
        let strides = [random.pick(&[1.0, 2.0, 4.0]), random.pick(&[1.0, 2.0, 8.0])];
        let count = random.batch(4);
        // Corners in eighths are exact in every type.
        let mut span = |size: usize, stride: f64| {
            let whole = (size as f64 * stride * 8.0) as i64;
            let (a, b) = (random.range(0, whole), random.range(0, whole));
            (a.min(b) as f64 / 8.0, a.max(b) as f64 / 8.0)
        };
        let corners = (0..count)
            .map(|_| {
                let ((x1, x2), (y1, y2)) = (span(w, strides[1]), span(h, strides[0]));
                [x1, y1, x2, y2]
            })
            .collect();
        Regions {
            ty,
            nchw,
            reals: if nchw { numbers.permuted(&[0, 2, 3, 1]) } else { numbers },
            features,
            corners,
            batches: (0..count).map(|_| random.below(n) as i32).collect(),
            out: [random.size(1, 4), random.size(1, 4)],
            strides,
        }
    }

    fn call(&self, operation: OperationType, samples: Option<[i32; 2]>, output: TensorInfo) -> Value {
        let mut inputs = vec![self.features.clone(), boxes(self.ty, &self.corners), ints(&self.batches)];
        inputs.extend(self.out.map(|size| int(size as i32)));
        inputs.extend(self.strides.map(|stride| scalar(self.ty, stride)));
        inputs.extend(samples.into_iter().flatten().map(int));
        inputs.push(boolean(self.nchw));
        call(operation, &inputs.iter().collect::<Vec<_>>(), &[output]).remove(0)
    }

    fn out_dims(&self) -> [usize; 4] {
        [self.corners.len(), self.out[0], self.out[1], self.reals.dims[3]]
    }

    /// First and last coordinate of a box in the features: rows for axis 0, columns for axis 1.
    fn span(&self, region: usize, axis: usize) -> (f64, f64) {
        let [x1, y1, x2, y2] = self.corners[region];
        let (a, b) = if axis == 0 { (y1, y2) } else { (x1, x2) };
        (a / self.strides[axis], b / self.strides[axis])
    }
}

fn align(random: &mut Random) {
    let regions = Regions::random(random);
    let samples = [random.range(0, 3) as i32, random.range(0, 3) as i32];
    let mut output = regions.features.like();
    if is_quantised(regions.ty) {
        (output.scale, output.zero_point) = quantisation(regions.ty, random);
        output.scale = output.scale.max(regions.features.info.scale);
    }
    let got = regions.call(ROI_ALIGN, Some(samples), output.clone());
    let [height, width] = [regions.reals.dims[1], regions.reals.dims[2]];
    // Where along an axis bin `o` takes its samples.
    let places = |region: usize, axis: usize, o: usize| {
        let (start, end) = regions.span(region, axis);
        let bin = (end - start).max(1.0) / regions.out[axis] as f64;
        let count = if samples[axis] > 0 { samples[axis] as usize } else { (bin as f32).ceil() as usize };
        (0..count).map(move |s| start + bin * o as f64 + bin * (s as f64 + 0.5) / count as f64)
    };
    let want = Nd::from_fn(&regions.out_dims(), |i| {
        let at = |y: usize, x: usize| regions.reals.get(&[regions.batches[i[0]] as usize, y, x, i[3]]);
        let (mut sum, mut count) = (0.0, 0.0);
        for y in places(i[0], 0, i[1]) {
            for x in places(i[0], 1, i[2]) {
                let (y, x) = (y.min((height - 1) as f64), x.min((width - 1) as f64));
                let (y0, x0) = (y as usize, x as usize);
                let (y1, x1) = ((y0 + 1).min(height - 1), (x0 + 1).min(width - 1));
                let row = |y| at(y, x0) * (1.0 - x.fract()) + at(y, x1) * x.fract();
                sum += row(y0) * (1.0 - y.fract()) + row(y1) * y.fract();
                count += 1.0;
            }
        }
        sum / count
    });
    // Weights of quantised samples may be rounded to 1 / 255, each of the four half of that off.
    let steps =
        if is_quantised(regions.ty) { 0.5 + 2.0 * regions.features.info.scale / output.scale } else { 1.0 };
    expect_within(&got, &want.laid_out(regions.nchw), steps.into());
}

fn pooling(random: &mut Random) {
    let regions = Regions::random(random);
    let got = regions.call(ROI_POOLING, None, regions.features.like());
    // First place of a bin, and the first after it, cut at the edge.
    let bin = |region: usize, axis: usize, o: usize| {
        let (start, end) = regions.span(region, axis);
        let (start, end) = (start.round(), end.round());
        let step = (end - start + 1.0).max(1.0) as f32 / regions.out[axis] as f32;
        let edge = regions.reals.dims[1 + axis];
        let first = (step * o as f32 + start as f32).floor() as usize;
        let past = (step * (o + 1) as f32 + start as f32).ceil() as usize;
        first.min(edge)..past.min(edge)
    };
    let want = Nd::from_fn(&regions.out_dims(), |i| {
        let mut best: Option<f64> = None;
        for y in bin(i[0], 0, i[1]) {
            for x in bin(i[0], 1, i[2]) {
                let value = regions.reals.get(&[regions.batches[i[0]] as usize, y, x, i[3]]);
                best = Some(best.map_or(value, |best| best.max(value)));
            }
        }
        best.unwrap_or(0.0)
    });
    expect_within(&got, &want.laid_out(regions.nchw), 1e-3);
}

/// Row and column of the largest element, the first of them.
fn largest(map: &Nd) -> (usize, usize) {
    let best = (0..map.at.len()).fold(0, |best, i| if map.at[i] > map.at[best] { i } else { best });
    (best / map.dims[1], best % map.dims[1])
}

/// The top of the parabola through an element's neighbours: offset in rows and columns, and value. `None` where that
/// hangs on rounding.
fn top(map: &Nd, (y, x): (usize, usize)) -> Option<([f64; 2], f64)> {
    let size = map.dims[0] as i64;
    let mirrored = |i: i64| {
        (if i < 0 {
            1
        } else if i >= size {
            size - 2
        } else {
            i
        }) as usize
    };
    let at = |dy: i64, dx: i64| map.get(&[mirrored(y as i64 + dy), mirrored(x as i64 + dx)]);
    let gradient = [(at(1, 0) - at(-1, 0)) / 2.0, (at(0, 1) - at(0, -1)) / 2.0];
    let (yy, xx) = (at(1, 0) + at(-1, 0) - 2.0 * at(0, 0), at(0, 1) + at(0, -1) - 2.0 * at(0, 0));
    let xy = (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / 4.0;
    let determinant = yy * xx - xy * xy;
    if determinant.abs() < 0.05 {
        return None;
    }
    let mut offset = [
        (xy * gradient[1] - xx * gradient[0]) / determinant,
        (xy * gradient[0] - yy * gradient[1]) / determinant,
    ];
    let farthest = offset[0].abs().max(offset[1].abs());
    if farthest > 1.5 {
        offset = offset.map(|d| d * 1.5 / farthest);
    }
    let [dy, dx] = offset;
    let rise = gradient[0] * dy + gradient[1] * dx;
    let curve = (yy * dy * dy + 2.0 * xy * dy * dx + xx * dx * dx) / 2.0;
    Some((offset, at(0, 0) + rise + curve))
}

fn keypoints(random: &mut Random) {
    let (ty, nchw) = (random.pick(&COMMON), random.coin());
    let [n, size, k] = [random.batch(3), random.size(2, 6), random.size(1, 3)];
    let dims = if nchw { [n, k, size, size] } else { [n, size, size, k] };
    let heat = match is_quantised(ty) {
        true => random.tensor(ty, &dims),
        false => random.floats(ty, &dims, -4.0, 4.0),
    };
    let reals = if nchw { heat.reals().permuted(&[0, 2, 3, 1]) } else { heat.reals() };
    let corners: Vec<[f64; 4]> = (0..n)
        .map(|_| {
            let (x, y) = (random.range(0, 80) as f64 / 8.0, random.range(0, 80) as f64 / 8.0);
            [x, y, x + random.range(0, 160) as f64 / 8.0, y + random.range(0, 160) as f64 / 8.0]
        })
        .collect();
    let boxes = boxes(ty, &corners);
    let mut score = heat.like();
    if is_quantised(ty) {
        (score.scale, score.zero_point) = quantisation(ty, random);
    }
    let got = call(HEATMAP_MAX_KEYPOINT, &[&heat, &boxes, &boolean(nchw)], &[score, boxes.like()]);
    let (mut scores, mut points) = (got[0].reals(), got[1].reals());
    assert_eq!((scores.dims.clone(), points.dims.clone()), (vec![n, k], vec![n, k, 2]));
    for i in 0..n * k {
        let (region, keypoint) = (i / k, i % k);
        let map = Nd::from_fn(&[size, size], |j| reals.get(&[region, j[0], j[1], keypoint]));
        let best = largest(&map);
        if let Some((offset, value)) = top(&map, best) {
            let [x1, y1, x2, y2] = corners[region];
            let relative = |at: usize, offset: f64| (at as f64 + offset + 0.5) / size as f64;
            scores.at[i] = value;
            points.at[2 * i] = x1 + relative(best.1, offset[1]) * (x2 - x1);
            points.at[2 * i + 1] = y1 + relative(best.0, offset[0]) * (y2 - y1);
        }
    }
    let steps = if is_quantised(ty) { 0.51 } else { 5.0 };
    expect_within(&got[0], &scores, steps);
    expect_within(&got[1], &points, steps);
}
