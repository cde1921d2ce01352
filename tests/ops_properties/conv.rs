//! The four convolutions, in every type, padding and layout.

use crate::support::*;
use crate::window::{Padding, Window};
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "CONV_2D", operations: &[CONV_2D], cases: 250, case: conv },
    Property { name: "DEPTHWISE_CONV_2D", operations: &[DEPTHWISE_CONV_2D], cases: 250, case: depthwise },
    Property { name: "GROUPED_CONV_2D", operations: &[GROUPED_CONV_2D], cases: 150, case: grouped },
    Property { name: "TRANSPOSE_CONV_2D", operations: &[TRANSPOSE_CONV_2D], cases: 200, case: transpose },
];

/// Types and quantisation of a convolution.
struct Kind {
    input: Value,
    filter: Value,
    bias: Value,
    /// What the biases stand for.
    bias_reals: Vec<f64>,
    output: TensorInfo,
}

/// Operands of some types: `input` in NHWC, `filter` with its output channels along `channel`.
fn operands(random: &mut Random, input: &[usize], filter: &[usize], channel: usize) -> Kind {
    let ty = random.pick(&COMMON);
    let input = random.tensor(ty, input);
    let channels = filter[channel];
    if !is_quantised(ty) {
        let (filter, bias) = (random.tensor(ty, filter), random.tensor(ty, &[channels]));
        let bias_reals = bias.reals().at;
        let output = input.like();
        return Kind { input, filter, bias, bias_reals, output };
    }
    let per_channel = random.coin();
    let mut filter = match per_channel {
        true => random.fill(TENSOR_QUANT8_SYMM_PER_CHANNEL, filter, 0.0, 0),
        false => random.tensor(ty, filter),
    };
    if per_channel {
        let scales = (0..channels).map(|_| random.real(0.01, 0.5) as f32).collect();
        filter.info.channel_quant = Some(ChannelQuant { scales, dim: channel as u32 });
    }
    let product = |c: usize| match &filter.info.channel_quant {
        Some(channels) => input.info.scale * channels.scales[c],
        None => input.info.scale * filter.info.scale,
    };
    let mut bias = random.fill(TENSOR_INT32, &[channels], 0.0, 0);
    bias.info.scale = if per_channel { 0.0 } else { product(0) };
    let bias_reals = bias.numbers().at.iter().enumerate().map(|(c, b)| b * f64::from(product(c))).collect();
    let (_, zero_point) = quantisation(ty, random);
    let scale = product(0) * random.pick(&[0.7, 40.0, 150.0, 700.0]);
    let output = TensorInfo::quantised(ty, &[], scale, zero_point);
    Kind { input, filter, bias, bias_reals, output }
}

impl Kind {
    /// The input as it is passed, with its layout.
    fn input_in(&self, nchw: bool) -> Value {
        let numbers = self.input.numbers().laid_out(nchw);
        let dims = numbers.dims.iter().map(|&d| d as u32).collect();
        Value::of_numbers(TensorInfo { dims, ..self.input.info.clone() }, &numbers.at)
    }
}

/// Input, filter and bias, then the inputs that follow.
fn inputs(kind: &Kind, nchw: bool, rest: Vec<Value>) -> Vec<Value> {
    [kind.input_in(nchw), kind.filter.clone(), kind.bias.clone()].into_iter().chain(rest).collect()
}

/// Layout and dilation inputs, both left off, or the dilation, where they are not needed.
fn layout_and_dilation(window: &Window, nchw: bool, random: &mut Random) -> Vec<Value> {
    let dilated = window.h.dilation != 1 || window.w.dilation != 1;
    let mut tail = Vec::new();
    if nchw || dilated || random.coin() {
        tail.push(boolean(nchw));
    }
    if dilated || (!tail.is_empty() && random.coin()) {
        tail.extend([int(window.w.dilation as i32), int(window.h.dilation as i32)]);
    }
    tail
}

fn check(operation: OperationType, kind: &Kind, inputs: &[Value], want: &Nd) {
    let inputs: Vec<&Value> = inputs.iter().collect();
    let got = call(operation, &inputs, std::slice::from_ref(&kind.output)).remove(0);
    // A product is rounded, then, if it is shifted right, rounded again: at worst to a half and then by a quarter more.
    expect_within(&got, want, 0.76);
}

/// Sums `term` over the window's taps that lie inside the image.
fn over_taps(
    window: &Window,
    oh: usize,
    ow: usize,
    mut term: impl FnMut(usize, usize, i64, i64) -> f64,
) -> f64 {
    let mut sum = 0.0;
    for fh in 0..window.h.filter as usize {
        for fw in 0..window.w.filter as usize {
            let (h, w) = (window.h.at(oh, fh), window.w.at(ow, fw));
            if h >= 0 && w >= 0 && h < window.h.input && w < window.w.input {
                sum += term(fh, fw, h, w);
            }
        }
    }
    sum
}

fn conv(random: &mut Random) {
    let window = Window::random(random, 3);
    let [n, ci, co] = [random.batch(2), random.size(1, 4), random.size(1, 5)];
    let (code, nchw) = (random.below(4) as i32, random.coin());
    let kind = operands(
        random,
        &[n, window.h.input as usize, window.w.input as usize, ci],
        &[co, window.h.filter as usize, window.w.filter as usize, ci],
        0,
    );
    let (input, filter) = (kind.input.reals(), kind.filter.reals());
    let want = Nd::from_fn(&[n, window.h.output(), window.w.output(), co], |i| {
        let sum = over_taps(&window, i[1], i[2], |fh, fw, h, w| {
            (0..ci)
                .map(|c| input.get(&[i[0], h as usize, w as usize, c]) * filter.get(&[i[3], fh, fw, c]))
                .sum()
        });
        activate(code, sum + kind.bias_reals[i[3]])
    });
    let mut rest = [window.padding_inputs(), window.stride_inputs(), vec![int(code)]].concat();
    rest.extend(layout_and_dilation(&window, nchw, random));
    check(CONV_2D, &kind, &inputs(&kind, nchw, rest), &want.laid_out(nchw));
}

fn depthwise(random: &mut Random) {
    let window = Window::random(random, 3);
    let [n, ci, multiplier] = [random.batch(2), random.size(1, 4), random.size(1, 3)];
    let (code, nchw) = (random.below(4) as i32, random.coin());
    let kind = operands(
        random,
        &[n, window.h.input as usize, window.w.input as usize, ci],
        &[1, window.h.filter as usize, window.w.filter as usize, ci * multiplier],
        3,
    );
    let (input, filter) = (kind.input.reals(), kind.filter.reals());
    let want = Nd::from_fn(&[n, window.h.output(), window.w.output(), ci * multiplier], |i| {
        let sum = over_taps(&window, i[1], i[2], |fh, fw, h, w| {
            input.get(&[i[0], h as usize, w as usize, i[3] / multiplier]) * filter.get(&[0, fh, fw, i[3]])
        });
        activate(code, sum + kind.bias_reals[i[3]])
    });
    let mut rest =
        [window.padding_inputs(), window.stride_inputs(), vec![int(multiplier as i32), int(code)]].concat();
    rest.extend(layout_and_dilation(&window, nchw, random));
    check(DEPTHWISE_CONV_2D, &kind, &inputs(&kind, nchw, rest), &want.laid_out(nchw));
}

fn grouped(random: &mut Random) {
    let window = Window::random(random, 1);
    let [n, groups, ci, co] = [random.batch(2), random.size(1, 3), random.size(1, 3), random.size(1, 3)];
    let (code, nchw) = (random.below(4) as i32, random.coin());
    let kind = operands(
        random,
        &[n, window.h.input as usize, window.w.input as usize, groups * ci],
        &[groups * co, window.h.filter as usize, window.w.filter as usize, ci],
        0,
    );
    let (input, filter) = (kind.input.reals(), kind.filter.reals());
    let want = Nd::from_fn(&[n, window.h.output(), window.w.output(), groups * co], |i| {
        let first = i[3] / co * ci;
        let sum = over_taps(&window, i[1], i[2], |fh, fw, h, w| {
            (0..ci)
                .map(|c| {
                    input.get(&[i[0], h as usize, w as usize, first + c]) * filter.get(&[i[3], fh, fw, c])
                })
                .sum()
        });
        activate(code, sum + kind.bias_reals[i[3]])
    });
    let rest =
        [window.padding_inputs(), window.stride_inputs(), vec![int(groups as i32), int(code), boolean(nchw)]]
            .concat();
    check(GROUPED_CONV_2D, &kind, &inputs(&kind, nchw, rest), &want.laid_out(nchw));
}

/// One spatial dimension of a transposed convolution.
struct Spread {
    input: usize,
    filter: usize,
    stride: usize,
    head: i64,
    tail: i64,
    output: usize,
}

fn spread(padding: Padding, random: &mut Random) -> Spread {
    loop {
        let (input, filter, stride) = (random.size(1, 5), random.size(1, 4), random.size(1, 3));
        let full = (input - 1) * stride + filter;
        let (head, tail) = match padding {
            Padding::Valid => (0, 0),
            // An end may even be padded beyond what the filter reaches.
            Padding::Explicit => (random.range(0, filter as i64 - 1), random.range(-1, filter as i64 - 1)),
            // Any output that a convolution of this stride would turn into the input.
            Padding::Same => {
                let output = random.size((input - 1) * stride + 1, input * stride);
                let total = full as i64 - output as i64;
                (total.max(0) / 2, total - total.max(0) / 2)
            }
        };
        let output = full as i64 - head - tail;
        if output > 0 {
            return Spread { input, filter, stride, head, tail, output: output as usize };
        }
    }
}

fn transpose(random: &mut Random) {
    let padding = random.pick(&[Padding::Same, Padding::Valid, Padding::Explicit]);
    let (h, w) = (spread(padding, random), spread(padding, random));
    let [n, ci, co] = [random.batch(2), random.size(1, 3), random.size(1, 4)];
    let (code, nchw) = (random.below(4) as i32, random.coin());
    let kind = operands(random, &[n, h.input, w.input, ci], &[co, h.filter, w.filter, ci], 0);
    let (input, filter) = (kind.input.reals(), kind.filter.reals());
    let mut sums = Nd::from_fn(&[n, h.output, w.output, co], |i| kind.bias_reals[i[3]]);
    let places = Nd::from_fn(&[h.input, w.input, h.filter, w.filter], |_| 0.0);
    Nd::from_fn(&places.dims, |i| {
        let (oh, ow) = ((i[0] * h.stride + i[2]) as i64 - h.head, (i[1] * w.stride + i[3]) as i64 - w.head);
        if oh >= 0 && ow >= 0 && oh < h.output as i64 && ow < w.output as i64 {
            Nd::from_fn(&[n, ci, co], |j| {
                let to = ((j[0] * h.output + oh as usize) * w.output + ow as usize) * co + j[2];
                sums.at[to] += input.get(&[j[0], i[0], i[1], j[1]]) * filter.get(&[j[2], i[2], i[3], j[1]]);
                0.0
            });
        }
        0.0
    });
    let want = sums.map(|x| activate(code, x)).laid_out(nchw);
    let paddings = match padding {
        Padding::Explicit => [w.head, w.tail, h.head, h.tail].map(|p| int(p as i32)).to_vec(),
        _ => {
            let dims: Vec<i32> = want.dims.iter().map(|&d| d as i32).collect();
            vec![ints(&dims), int(if padding == Padding::Same { 1 } else { 2 })]
        }
    };
    let strides = vec![int(w.stride as i32), int(h.stride as i32)];
    let rest = [paddings, strides, vec![int(code), boolean(nchw)]].concat();
    check(TRANSPOSE_CONV_2D, &kind, &inputs(&kind, nchw, rest), &want);
}
