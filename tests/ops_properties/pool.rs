//! The three pools.

use crate::support::*;
use crate::window::Window;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[Property {
    name: "pools",
    operations: &[AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D],
    cases: 400,
    case: pool,
}];

fn pool(random: &mut Random) {
    let operation = random.pick(&[AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D]);
    let window = Window::random(random, 1);
    let (code, nchw) = (random.below(4) as i32, random.coin());
    let ty = random.pick(if operation == L2_POOL_2D { &FLOATS } else { &COMMON[..] });
    let (n, c) = (random.batch(2), random.size(1, 3));
    let (h, w) = (window.h.input as usize, window.w.input as usize);
    let input = random.tensor(ty, &if nchw { [n, c, h, w] } else { [n, h, w, c] });
    let reals = if nchw { input.reals().permuted(&[0, 2, 3, 1]) } else { input.reals() };
    let want = Nd::from_fn(&[n, window.h.output(), window.w.output(), c], |i| {
        let mut seen = Vec::new();
        for fh in 0..window.h.filter as usize {
            for fw in 0..window.w.filter as usize {
                let (h, w) = (window.h.at(i[1], fh), window.w.at(i[2], fw));
                seen.extend(reals.inside(&[i[0] as i64, h, w, i[3] as i64]));
            }
        }
        let count = seen.len() as f64;
        let value = match operation {
            AVERAGE_POOL_2D => seen.iter().sum::<f64>() / count,
            MAX_POOL_2D => seen.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => (seen.iter().map(|x| x * x).sum::<f64>() / count).sqrt(),
        };
        activate(code, value)
    });
    let sizes = vec![int(window.w.filter as i32), int(window.h.filter as i32), int(code)];
    let mut inputs = [vec![input.clone()], window.padding_inputs(), window.stride_inputs(), sizes].concat();
    if nchw || random.coin() {
        inputs.push(boolean(nchw));
    }
    let inputs: Vec<&Value> = inputs.iter().collect();
    let got = call(operation, &inputs, &[input.like()]).remove(0);
    // A quantised average rounds to the nearest, then the activation clamps at a rounded bound.
    expect_within(&got, &want.laid_out(nchw), 0.501);
}
