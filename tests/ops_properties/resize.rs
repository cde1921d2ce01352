//! Resizing of images: all flags, both ways to give a size, both layouts.

use crate::support::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[Property {
    name: "resize",
    operations: &[RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR],
    cases: 400,
    case: resize,
}];

/// Where output `o` lies in the input. The interface defines sizes and places in single precision.
fn place(o: usize, input: usize, output: usize, align: bool, half: bool, nearest: bool) -> f32 {
    let scale = match align && output > 1 {
        true => (input - 1) as f32 / (output - 1) as f32,
        false => input as f32 / output as f32,
    };
    match (half, nearest) {
        (true, true) => (o as f32 + 0.5) * scale,
        (true, false) => (o as f32 + 0.5) * scale - 0.5,
        _ => o as f32 * scale,
    }
}

fn nearest_index(at: f32, input: usize, align: bool) -> usize {
    let rounded = if align { at.round() } else { at.floor() };
    (rounded.max(0.0) as usize).min(input - 1)
}

fn resize(random: &mut Random) {
    let operation = random.pick(&[RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR]);
    let nearest = operation == RESIZE_NEAREST_NEIGHBOR;
    let (align, half) = random.pick(&[(false, false), (true, false), (false, true)]);
    let ty = random.pick(&COMMON);
    let nchw = random.coin();
    let [n, h, w, c] = [random.batch(2), random.size(1, 6), random.size(1, 6), random.size(1, 3)];
    let input = random.tensor(ty, &if nchw { [n, c, h, w] } else { [n, h, w, c] });
    let reals = if nchw { input.reals().permuted(&[0, 2, 3, 1]) } else { input.reals() };
    let by_scale = random.coin();
    let (sizes, oh, ow) = match by_scale {
        false => {
            let (oh, ow) = (random.size(1, 9), random.size(1, 9));
            ([int(ow as i32), int(oh as i32)], oh, ow)
        }
        true => {
            let mut scale = |size: usize| {
                let scale = scalar(ty, random.real(1.0 / size as f64 + 0.01, 2.5));
                let value = scale.numbers().at[0] as f32;
                (scale, (size as f32 * value).floor() as usize)
            };
            let ((ws, ow), (hs, oh)) = (scale(w), scale(h));
            ([ws, hs], oh, ow)
        }
    };
    let want = Nd::from_fn(&[n, oh, ow, c], |i| {
        let (y, x) = (place(i[1], h, oh, align, half, nearest), place(i[2], w, ow, align, half, nearest));
        if nearest {
            return reals.get(&[i[0], nearest_index(y, h, align), nearest_index(x, w, align), i[3]]);
        }
        let (y, x) = (f64::from(y).clamp(0.0, (h - 1) as f64), f64::from(x).clamp(0.0, (w - 1) as f64));
        let (y0, x0) = (y as usize, x as usize);
        let at = |y: usize, x: usize| reals.get(&[i[0], y.min(h - 1), x.min(w - 1), i[3]]);
        let row = |y: usize| at(y, x0) * (1.0 - x.fract()) + at(y, x0 + 1) * x.fract();
        row(y0) * (1.0 - y.fract()) + row(y0 + 1) * y.fract()
    });
    let [first, second] = sizes;
    let mut inputs = vec![input.clone(), first, second];
    let flags = [nchw, align, half];
    let needed = flags.iter().rposition(|&flag| flag).map_or(usize::from(nearest), |last| last + 1);
    let given = random.size(needed, 3);
    inputs.extend(flags[..given].iter().map(|&flag| boolean(flag)));
    let inputs: Vec<&Value> = inputs.iter().collect();
    let got = call(operation, &inputs, &[input.like()]).remove(0);
    match nearest {
        true => expect_within(&got, &want.laid_out(nchw), 1e-3),
        false => expect(&got, &want.laid_out(nchw)),
    }
}
