//! The float LSTM cell in all its variants, naively.

use crate::recurrent::{activation, product, row, small};
use crate::support::*;

/// Which optional parts a cell has.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Input and forget gate coupled.
    pub cifg: bool,
    pub peephole: bool,
    pub projection: bool,
    pub projection_bias: bool,
    pub layer_norm: bool,
    pub aux: bool,
}

impl Variant {
    pub fn random(random: &mut Random, aux: bool) -> Variant {
        let projection = random.coin();
        Variant {
            cifg: random.coin(),
            peephole: random.coin(),
            projection,
            projection_bias: projection && random.coin(),
            layer_norm: random.coin(),
            aux,
        }
    }
}

/// Sizes of a cell: batch, input, auxiliary input, cell, output (the cell's without projection).
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub batch: usize,
    pub input: usize,
    pub aux: usize,
    pub cell: usize,
    pub output: usize,
}

/// What applies to all cells of a call.
#[derive(Clone, Copy)]
pub struct Scalars {
    pub code: i32,
    pub cell_clip: f64,
    pub projection_clip: f64,
}

/// Operands, by gate where there are four: input, forget, cell, output.
pub struct LstmCell {
    pub input: [Option<Value>; 4],
    pub recurrent: [Option<Value>; 4],
    /// Input, forget, output.
    pub peephole: [Option<Value>; 3],
    pub bias: [Option<Value>; 4],
    pub projection: Option<Value>,
    pub projection_bias: Option<Value>,
    pub aux: [Option<Value>; 4],
    pub layer_norm: [Option<Value>; 4],
    pub hidden: Value,
    pub cell: Value,
    /// Whether no layer normalisation so far was of gates so near to one another that rounding decides.
    pub certain: std::cell::Cell<bool>,
}

impl LstmCell {
    pub fn random(random: &mut Random, ty: OperandType, variant: Variant, sizes: Sizes) -> LstmCell {
        let Sizes { batch, input, aux, cell, output } = sizes;
        let mut four = |given: bool, dims: &[usize]| {
            [0, 1, 2, 3].map(|gate| (given && !(gate == 0 && variant.cifg)).then(|| small(random, ty, dims)))
        };
        let (inputs, recurrent) = (four(true, &[cell, input]), four(true, &[cell, output]));
        let (bias, layer_norm) = (four(true, &[cell]), four(variant.layer_norm, &[cell]));
        let aux = four(variant.aux, &[cell, aux]);
        let [first, second, _, last] = four(variant.peephole, &[cell]);
        LstmCell {
            input: inputs,
            recurrent,
            peephole: [first, second, last],
            bias,
            projection: variant.projection.then(|| small(random, ty, &[output, cell])),
            projection_bias: variant.projection_bias.then(|| small(random, ty, &[output])),
            aux,
            layer_norm,
            hidden: small(random, ty, &[batch, output]),
            cell: small(random, ty, &[batch, cell]),
            certain: true.into(),
        }
    }

    /// The 17 operands from the input weights to the projection's bias.
    pub fn weights(&self) -> Vec<Option<&Value>> {
        let all = self.input.iter().chain(&self.recurrent).chain(&self.peephole).chain(&self.bias);
        all.chain([&self.projection, &self.projection_bias]).map(Option::as_ref).collect()
    }

    /// What a gate is before its activation.
    fn gate(&self, gate: usize, x: &[f64], aux: &[f64], hidden: &[f64], cell: Option<&[f64]>) -> Vec<f64> {
        let reals = |value: &Option<Value>| value.as_ref().map(Value::reals);
        let mut sums = product(&reals(&self.input[gate]).unwrap(), x);
        let mut add = |more: Vec<f64>| sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        add(product(&reals(&self.recurrent[gate]).unwrap(), hidden));
        if let Some(weights) = reals(&self.aux[gate]) {
            add(product(&weights, aux));
        }
        let peephole = &self.peephole[[0, 1, 1, 2][gate]];
        if let (Some(cell), Some(weights)) = (cell, reals(peephole)) {
            add(weights.at.iter().zip(cell).map(|(w, c)| w * c).collect());
        }
        if let Some(weights) = reals(&self.layer_norm[gate]) {
            let count = sums.len() as f64;
            let mean = sums.iter().sum::<f64>() / count;
            let variance = sums.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
            self.certain.set(self.certain.get() && variance > 0.01);
            let normal = |x: f64| (x - mean) / (variance + 1e-8).sqrt();
            sums = sums.iter().zip(&weights.at).map(|(&x, w)| normal(x) * w).collect();
        }
        let bias = reals(&self.bias[gate]).unwrap();
        sums.iter().zip(&bias.at).map(|(x, b)| x + b).collect()
    }

    /// Hidden state and cell after `x`.
    fn step(&self, x: &[f64], aux: &[f64], hidden: &[f64], cell: &[f64], scalars: Scalars) -> [Vec<f64>; 2] {
        let squash = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(|x| activation(6, x)).collect() };
        let act = |x: f64| activation(scalars.code, x);
        let clip = |x: f64, bound: f64| if bound > 0.0 { x.clamp(-bound, bound) } else { x };
        let forget = squash(self.gate(1, x, aux, hidden, Some(cell)));
        let input = match self.input[0].is_some() {
            true => squash(self.gate(0, x, aux, hidden, Some(cell))),
            false => forget.iter().map(|f| 1.0 - f).collect(),
        };
        let update = self.gate(2, x, aux, hidden, None);
        let cell: Vec<f64> = (0..cell.len())
            .map(|k| clip(forget[k] * cell[k] + input[k] * act(update[k]), scalars.cell_clip))
            .collect();
        let output = squash(self.gate(3, x, aux, hidden, Some(&cell)));
        let mut hidden: Vec<f64> = (0..cell.len()).map(|k| output[k] * act(cell[k])).collect();
        if let Some(projection) = &self.projection {
            hidden = product(&projection.reals(), &hidden);
            if let Some(bias) = &self.projection_bias {
                hidden = hidden.iter().zip(&bias.reals().at).map(|(h, b)| h + b).collect();
            }
            hidden = hidden.iter().map(|&h| clip(h, scalars.projection_clip)).collect();
        }
        [hidden, cell]
    }

    /// Outputs (time x batch x output), last hidden state and last cell, over `times` in that order; inputs have time
    /// first.
    pub fn run(&self, input: &Nd, aux: Option<&Nd>, times: &[usize], scalars: Scalars) -> [Nd; 3] {
        let batch = input.dims[1];
        let (mut hidden, mut cell) = (self.hidden.reals(), self.cell.reals());
        let (outputs, cells) = (hidden.dims[1], cell.dims[1]);
        let mut out = Nd::from_fn(&[times.len(), batch, outputs], |_| 0.0);
        for &t in times {
            for b in 0..batch {
                let aux = aux.map_or(vec![], |aux| row(aux, &[t, b]));
                let x = row(input, &[t, b]);
                let [h, c] = self.step(&x, &aux, &row(&hidden, &[b]), &row(&cell, &[b]), scalars);
                hidden.at[b * outputs..][..outputs].copy_from_slice(&h);
                cell.at[b * cells..][..cells].copy_from_slice(&c);
                out.at[(t * batch + b) * outputs..][..outputs].copy_from_slice(&h);
            }
        }
        [out, hidden, cell]
    }
}
