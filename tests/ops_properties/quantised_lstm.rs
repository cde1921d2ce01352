//! The two integer LSTMs, against the real numbers that their operands stand for.

use crate::recurrent::{activation, product, row};
use crate::support::*;
use OperandType::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property {
        name: "QUANTIZED_16BIT_LSTM",
        operations: &[QUANTIZED_16BIT_LSTM],
        cases: 80,
        case: sixteen_bit,
    },
    Property { name: "QUANTIZED_LSTM", operations: &[QUANTIZED_LSTM], cases: 150, case: eight_bit },
];

/// Some numbers of an integer operand, from `-most` to `most` around the zero point.
fn raw(random: &mut Random, info: TensorInfo, most: i64) -> Value {
    let count = info.dims.iter().product::<u32>();
    let zero = i64::from(info.zero_point);
    let numbers: Vec<i64> = (0..count).map(|_| zero + random.range(-most, most)).collect();
    Value::of_raw(info, &numbers)
}

fn quant(ty: OperandType, dims: &[usize], scale: f32, zero_point: i32) -> TensorInfo {
    TensorInfo::quantised(ty, &dims.iter().map(|&d| d as u32).collect::<Vec<_>>(), scale, zero_point)
}

/// The real numbers of an INT32 bias.
fn bias_reals(bias: &Value) -> Vec<f64> {
    bias.numbers().at.iter().map(|b| b * f64::from(bias.info.scale)).collect()
}

fn logistic(x: f64) -> f64 {
    activation(6, x)
}

/// Asserts that all elements are within `tolerance`.
fn near(what: &str, got: &Value, want: &Nd, tolerance: f64) {
    let got = got.reals();
    assert_eq!(got.dims, want.dims, "{what}");
    for (got_at, want_at) in got.at.iter().zip(&want.at) {
        let off = (got_at - want_at).abs();
        assert!(off <= tolerance, "{what}: {off} off\n got {:?}\nwant {:?}", got.at, want.at);
    }
}

fn sixteen_bit(random: &mut Random) {
    let [batch, inputs, units] = [random.size(1, 3), random.size(1, 4), random.size(1, 4)];
    let state = |dims: &[usize]| quant(TENSOR_QUANT8_ASYMM, dims, 1.0 / 128.0, 128);
    let input = raw(random, state(&[batch, inputs]), 127);
    let (scale, zero) = (0.02f32, random.range(90, 160) as i32);
    let mut weights = |columns: usize| {
        [0; 4].map(|_| raw(random, quant(TENSOR_QUANT8_ASYMM, &[units, columns], scale, zero), 90))
    };
    let (of_input, of_hidden) = (weights(inputs), weights(units));
    let biases = [0; 4].map(|_| raw(random, quant(TENSOR_INT32, &[units], scale / 128.0, 0), 6000));
    let cell = raw(random, quant(TENSOR_QUANT16_SYMM, &[batch, units], 1.0 / 2048.0, 0), 6000);
    let hidden = raw(random, state(&[batch, units]), 127);
    let operands: Vec<&Value> = [&input]
        .into_iter()
        .chain(&of_input)
        .chain(&of_hidden)
        .chain(&biases)
        .chain([&cell, &hidden])
        .collect();
    let got = call(QUANTIZED_16BIT_LSTM, &operands, &[cell.like(), hidden.like()]);
    let (x, h, c) = (input.reals(), hidden.reals(), cell.reals());
    // The suite's expectations are of one joint matrix, recurrent columns first, that meets the input followed by the
    // state: where the two differ in size, columns and values are not each other's.
    let gate = |gate: usize, b: usize, u: usize| {
        let values = [row(&x, &[b]), row(&h, &[b])].concat();
        let weights = [row(&of_hidden[gate].reals(), &[u]), row(&of_input[gate].reals(), &[u])].concat();
        let joint = Nd { dims: vec![1, weights.len()], at: weights };
        product(&joint, &values)[0] + bias_reals(&biases[gate])[u]
    };
    let cells = Nd::from_fn(&[batch, units], |i| {
        let gate = |g| gate(g, i[0], i[1]);
        logistic(gate(1)) * c.get(i) + logistic(gate(0)) * gate(2).tanh()
    });
    let outputs = Nd::from_fn(&[batch, units], |i| logistic(gate(3, i[0], i[1])) * cells.get(i).tanh());
    near("cell", &got[0], &cells, 4.0 / 2048.0);
    near("output", &got[1], &outputs, 1.5 / 128.0);
}

/// Operands of an 8-bit LSTM, by gate where there are four: input, forget, cell, output.
struct EightBit {
    units: usize,
    input: Value,
    of_input: [Option<Value>; 4],
    of_hidden: [Option<Value>; 4],
    /// Input, forget, output.
    peephole: [Option<Value>; 3],
    bias: [Option<Value>; 4],
    projection: Option<(Value, Option<Value>)>,
    hidden: Value,
    cell: Value,
    layer_norm: [Option<Value>; 4],
    cell_clip: f64,
    projection_clip: f64,
    intermediate: f32,
    hidden_scale: f32,
    hidden_zero_point: i32,
    /// Whether no layer normalisation so far was of gates so near to one another that rounding decides.
    certain: std::cell::Cell<bool>,
}

impl EightBit {
    fn random(random: &mut Random) -> EightBit {
        let [batch, inputs, units] = [random.size(1, 3), random.size(1, 4), random.size(2, 4)];
        let [cifg, peephole, layer_norm, projected] = [0; 4].map(|_| random.coin());
        let outputs = if projected { random.size(1, 4) } else { units };
        let weight_scale = 1.0 / 64.0;
        let intermediate = if layer_norm { random.pick(&[1.0 / 1024.0, 0.003]) } else { 1.0 / 4096.0 };
        let input_zero = random.range(-20, 20) as i32;
        let input =
            raw(random, quant(TENSOR_QUANT8_ASYMM_SIGNED, &[batch, inputs], 1.0 / 128.0, input_zero), 100);
        let mut four = |given: bool, info: TensorInfo, most: i64| {
            [0, 1, 2, 3].map(|gate| (given && !(gate == 0 && cifg)).then(|| raw(random, info.clone(), most)))
        };
        let weights = |dims: &[usize]| quant(TENSOR_QUANT8_SYMM, dims, weight_scale, 0);
        let of_input = four(true, weights(&[units, inputs]), 127);
        let of_hidden = four(true, weights(&[units, outputs]), 127);
        let norm_scale = 1.0 / 16384.0;
        let bias_scale = if layer_norm { norm_scale / 1024.0 } else { weight_scale / 128.0 };
        let bias = four(true, quant(TENSOR_INT32, &[units], bias_scale, 0), (1.0 / bias_scale) as i64);
        let norm = four(layer_norm, quant(TENSOR_QUANT16_SYMM, &[units], norm_scale, 0), 20000);
        let [first, second, _, last] =
            four(peephole, quant(TENSOR_QUANT16_SYMM, &[units], 1.0 / 32768.0, 0), 30000);
        let (hidden_scale, hidden_zero_point) =
            if projected { (1.0 / 110.0, random.range(-8, 8) as i32) } else { (1.0 / 128.0, 0) };
        let out_zero = if projected { random.range(-20, 20) as i32 } else { 0 };
        let projection = projected.then(|| {
            let weights = raw(random, weights(&[outputs, units]), 40);
            let info = quant(TENSOR_INT32, &[outputs], weight_scale * hidden_scale, 0);
            let bias = random.coin().then(|| raw(random, info, 2000));
            (weights, bias)
        });
        let out_scale = if projected { 1.0 / 64.0 } else { hidden_scale };
        EightBit {
            units,
            input,
            of_input,
            of_hidden,
            peephole: [first, second, last],
            bias,
            projection,
            hidden: raw(
                random,
                quant(TENSOR_QUANT8_ASYMM_SIGNED, &[batch, outputs], out_scale, out_zero),
                60,
            ),
            cell: raw(random, quant(TENSOR_QUANT16_SYMM, &[batch, units], 1.0 / 2048.0, 0), 4000),
            layer_norm: norm,
            cell_clip: random.pick(&[0.0, 0.75]),
            projection_clip: random.pick(&[0.0, 0.5]),
            intermediate,
            hidden_scale,
            hidden_zero_point,
            certain: true.into(),
        }
    }

    fn call(&self) -> Vec<Value> {
        let clips = [float(self.cell_clip), float(self.projection_clip)];
        let scale = float(self.intermediate.into());
        let hidden = [int(self.hidden_zero_point), float(self.hidden_scale.into())];
        let projection = self.projection.as_ref();
        let mut inputs = vec![Some(&self.input)];
        let groups = self.of_input.iter().chain(&self.of_hidden).chain(&self.peephole).chain(&self.bias);
        inputs.extend(groups.map(Option::as_ref));
        inputs.push(projection.map(|p| &p.0));
        inputs.push(projection.and_then(|p| p.1.as_ref()));
        inputs.extend([&self.hidden, &self.cell].map(Some));
        inputs.extend(self.layer_norm.iter().map(Option::as_ref));
        inputs.extend(clips.iter().chain([&scale; 4]).chain(&hidden).map(Some));
        call_with(QUANTIZED_LSTM, &inputs, &[self.hidden.like(), self.cell.like(), self.hidden.like()])
    }

    /// A gate before its function. What the layer normalisation sees is held in 16 bits.
    fn gate(&self, gate: usize, batch: usize, cell: Option<&[f64]>) -> Vec<f64> {
        let reals = |value: &Option<Value>| value.as_ref().map(Value::reals);
        let mut sums = product(&reals(&self.of_input[gate]).unwrap(), &row(&self.input.reals(), &[batch]));
        let mut add = |more: Vec<f64>| sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        add(product(&reals(&self.of_hidden[gate]).unwrap(), &row(&self.hidden.reals(), &[batch])));
        if let (Some(cell), Some(weights)) = (cell, reals(&self.peephole[[0, 1, 1, 2][gate]])) {
            add(weights.at.iter().zip(cell).map(|(w, c)| w * c).collect());
        }
        if let Some(weights) = reals(&self.layer_norm[gate]) {
            let count = sums.len() as f64;
            let mean = sums.iter().sum::<f64>() / count;
            let deviation = (sums.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt();
            self.certain.set(self.certain.get() && deviation > 0.3);
            sums = sums.iter().zip(&weights.at).map(|(x, w)| (x - mean) / deviation * w).collect();
        }
        let bias = bias_reals(self.bias[gate].as_ref().unwrap());
        sums.iter().zip(bias).map(|(x, b)| x + b).collect()
    }

    /// Cell and output, each batch x units or outputs.
    fn want(&self) -> [Nd; 2] {
        let batch = self.input.dims()[0];
        let (mut cells, mut outputs) = (self.cell.reals(), self.hidden.reals());
        let clip = |x: f64, bound: f64| if bound > 0.0 { x.clamp(-bound, bound) } else { x };
        for b in 0..batch {
            let old = row(&cells, &[b]);
            let squash = |x: Vec<f64>| x.into_iter().map(logistic).collect::<Vec<f64>>();
            let forget = squash(self.gate(1, b, Some(&old)));
            let input = match self.of_input[0].is_some() {
                true => squash(self.gate(0, b, Some(&old))),
                false => forget.iter().map(|f| 1.0 - f).collect(),
            };
            let update = self.gate(2, b, None);
            let new: Vec<f64> = (0..self.units)
                .map(|u| clip(forget[u] * old[u] + input[u] * update[u].tanh(), self.cell_clip))
                .collect();
            let output = squash(self.gate(3, b, Some(&new)));
            let mut hidden: Vec<f64> = (0..self.units).map(|u| output[u] * new[u].tanh()).collect();
            if let Some((weights, bias)) = &self.projection {
                hidden = product(&weights.reals(), &hidden);
                let bias = bias.as_ref().map_or(vec![0.0; hidden.len()], bias_reals);
                hidden = hidden.iter().zip(bias).map(|(h, b)| clip(h + b, self.projection_clip)).collect();
            }
            cells.at[b * self.units..][..self.units].copy_from_slice(&new);
            outputs.at[b * hidden.len()..][..hidden.len()].copy_from_slice(&hidden);
        }
        [cells, outputs]
    }
}

fn eight_bit(random: &mut Random) {
    let lstm = EightBit::random(random);
    let got = lstm.call();
    let [cells, outputs] = lstm.want();
    // Layer normalisation of sums near to one another amplifies their rounding.
    let normed = lstm.layer_norm[3].is_some();
    let step = f64::from(lstm.hidden.info.scale);
    if !lstm.certain.get() {
        return;
    }
    near("cell", &got[1], &cells, if normed { 0.05 } else { 6.0 / 2048.0 });
    near("output", &got[2], &outputs, step * if normed { 4.0 } else { 2.5 });
    assert_eq!(got[0].data[..], got[2].data[..]);
}
