//! Recurrent networks other than LSTMs.

use crate::support::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "RNN", operations: &[RNN], cases: 60, case: rnn },
    Property {
        name: "UNIDIRECTIONAL_SEQUENCE_RNN",
        operations: &[UNIDIRECTIONAL_SEQUENCE_RNN],
        cases: 80,
        case: unidirectional,
    },
    Property {
        name: "BIDIRECTIONAL_SEQUENCE_RNN",
        operations: &[BIDIRECTIONAL_SEQUENCE_RNN],
        cases: 120,
        case: bidirectional,
    },
    Property { name: "SVDF", operations: &[SVDF], cases: 80, case: svdf },
];

const SMALL: [f64; 2] = [-1.0, 1.0];

pub fn small(random: &mut Random, ty: OperandType, dims: &[usize]) -> Value {
    random.floats(ty, dims, SMALL[0], SMALL[1])
}

/// Recurrent activations have codes of their own beyond the fused ones.
pub fn activation(code: i32, x: f64) -> f64 {
    match code {
        4 => x.tanh(),
        6 => 1.0 / (1.0 + (-x).exp()),
        code => activate(code, x),
    }
}

/// `matrix` (rows x columns) times `vector`.
pub fn product(matrix: &Nd, vector: &[f64]) -> Vec<f64> {
    assert_eq!(matrix.dims[1], vector.len());
    matrix.at.chunks(vector.len()).map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

/// The vector of `x` (batch x size, or with time in front) at a place.
pub fn row(x: &Nd, place: &[usize]) -> Vec<f64> {
    (0..*x.dims.last().unwrap()).map(|k| x.get(&[place, &[k]].concat())).collect()
}

struct Cell {
    weights: Value,
    recurrent: Value,
    bias: Value,
    hidden: Value,
}

impl Cell {
    fn random(random: &mut Random, ty: OperandType, [batch, size, units]: [usize; 3]) -> Cell {
        Cell {
            weights: small(random, ty, &[units, size]),
            recurrent: small(random, ty, &[units, units]),
            bias: small(random, ty, &[units]),
            hidden: small(random, ty, &[batch, units]),
        }
    }

    fn values(&self) -> [&Value; 4] {
        [&self.weights, &self.recurrent, &self.bias, &self.hidden]
    }

    /// The state after `input`, with an auxiliary input and its weights.
    fn step(&self, input: &[f64], aux: Option<(&Nd, &[f64])>, hidden: &[f64], code: i32) -> Vec<f64> {
        let mut sums = product(&self.weights.reals(), input);
        let mut add = |more: Vec<f64>| sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        add(product(&self.recurrent.reals(), hidden));
        add(self.bias.reals().at);
        if let Some((weights, aux)) = aux {
            add(product(weights, aux));
        }
        sums.iter().map(|&x| activation(code, x)).collect()
    }

    /// Outputs (time x batch x units) and the last state, over `times` in that order; inputs have time first.
    fn run(&self, input: &Nd, aux: Option<(&Nd, &Nd)>, times: &[usize], code: i32) -> (Nd, Nd) {
        let batch = input.dims[1];
        let mut hidden = self.hidden.reals();
        let units = hidden.dims[1];
        let mut out = Nd::from_fn(&[times.len(), batch, units], |_| 0.0);
        for &t in times {
            for b in 0..batch {
                let aux = aux.map(|(weights, aux)| (weights, row(aux, &[t, b])));
                let aux = aux.as_ref().map(|(weights, aux)| (*weights, &aux[..]));
                let next = self.step(&row(input, &[t, b]), aux, &row(&hidden, &[b]), code);
                hidden.at[b * units..(b + 1) * units].copy_from_slice(&next);
                out.at[(t * batch + b) * units..][..units].copy_from_slice(&next);
            }
        }
        (out, hidden)
    }
}

fn code(random: &mut Random) -> i32 {
    random.pick(&[0, 1, 2, 3, 4, 6])
}

fn rnn(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let [batch, size, units] = [random.size(1, 3), random.size(1, 4), random.size(1, 4)];
    let (cell, code) = (Cell::random(random, ty, [batch, size, units]), random.below(4) as i32);
    let input = small(random, ty, &[batch, size]);
    let code_input = int(code);
    let inputs: Vec<&Value> = [&input].into_iter().chain(cell.values()).chain([&code_input]).collect();
    let got = call(RNN, &inputs, &[input.like(), input.like()]);
    let in_time = Nd { dims: vec![1, batch, size], ..input.reals() };
    let (_, state) = cell.run(&in_time, None, &[0], code);
    expect_within(&got[0], &state, 4.0);
    expect_within(&got[1], &state, 4.0);
}

/// A sequence with time first, as it is passed.
pub fn in_time(value: &Value, time_major: bool) -> Nd {
    if time_major {
        value.reals()
    } else {
        value.reals().permuted(&[1, 0, 2])
    }
}

/// A sequence with time first, in the order that it is expected in.
pub fn as_asked(sequence: &Nd, time_major: bool) -> Nd {
    if time_major {
        sequence.clone()
    } else {
        sequence.permuted(&[1, 0, 2])
    }
}

fn unidirectional(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let [time, batch, size, units] = [(); 4].map(|()| random.size(1, 4));
    let (cell, code, time_major) =
        (Cell::random(random, ty, [batch, size, units]), code(random), random.coin());
    let input = small(random, ty, &if time_major { [time, batch, size] } else { [batch, time, size] });
    let scalars = [int(code), int(time_major.into())];
    let inputs: Vec<&Value> = [&input].into_iter().chain(cell.values()).chain(&scalars).collect();
    let outputs = vec![input.like(); random.size(1, 2)];
    let got = call(UNIDIRECTIONAL_SEQUENCE_RNN, &inputs, &outputs);
    let times: Vec<usize> = (0..time).collect();
    let (want, state) = cell.run(&in_time(&input, time_major), None, &times, code);
    expect_within(&got[0], &as_asked(&want, time_major), 8.0);
    if let Some(got) = got.get(1) {
        expect_within(got, &state, 8.0);
    }
}

/// Two sequences side by side along the last dimension.
pub fn merged(a: &Nd, b: &Nd) -> Nd {
    let split = a.dims[2];
    Nd::from_fn(&[a.dims[0], a.dims[1], split + b.dims[2]], |i| match i[2].checked_sub(split) {
        None => a.get(i),
        Some(k) => b.get(&[i[0], i[1], k]),
    })
}

fn bidirectional(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let [time, batch, size, fw_units, bw_units] = [(); 5].map(|()| random.size(1, 3));
    let (code, time_major, merge) = (code(random), random.coin(), random.coin());
    // No auxiliary input, one for the backward cell alone, or one that both add.
    let linking = random.below(3);
    let aux_size = random.size(1, 3);
    let bw_size = if linking == 1 { aux_size } else { size };
    let sequence = |size: usize| if time_major { [time, batch, size] } else { [batch, time, size] };
    let input = small(random, ty, &sequence(size));
    let aux = (linking > 0).then(|| small(random, ty, &sequence(aux_size)));
    let weights = (linking == 2)
        .then(|| [small(random, ty, &[fw_units, aux_size]), small(random, ty, &[bw_units, aux_size])]);
    let fw = Cell::random(random, ty, [batch, size, fw_units]);
    let bw = Cell::random(random, ty, [batch, bw_size, bw_units]);
    let scalars = [int(code), boolean(time_major), boolean(merge)];
    let mut inputs: Vec<Option<&Value>> = vec![Some(&input)];
    inputs.extend(fw.values().into_iter().chain(bw.values()).map(Some));
    inputs.push(aux.as_ref());
    inputs.extend([0, 1].map(|i| weights.as_ref().map(|w| &w[i])));
    inputs.extend(scalars.iter().map(Some));
    let states = random.coin();
    let outputs = vec![input.like(); if merge { 1 } else { 2 } + if states { 2 } else { 0 }];
    let got = call_with(BIDIRECTIONAL_SEQUENCE_RNN, &inputs, &outputs);

    let input = in_time(&input, time_major);
    let aux = aux.map(|aux| in_time(&aux, time_major));
    let weights = weights.map(|weights| weights.map(|w| w.reals()));
    let with_aux = |i: usize| weights.as_ref().map(|w| (&w[i], aux.as_ref().unwrap()));
    let forward: Vec<usize> = (0..time).collect();
    let backward: Vec<usize> = (0..time).rev().collect();
    let (fw_out, fw_state) = fw.run(&input, with_aux(0), &forward, code);
    let bw_input = if linking == 1 { aux.as_ref().unwrap() } else { &input };
    let (bw_out, bw_state) = bw.run(bw_input, with_aux(1), &backward, code);
    let mut want = match merge {
        true => vec![as_asked(&merged(&fw_out, &bw_out), time_major)],
        false => vec![as_asked(&fw_out, time_major), as_asked(&bw_out, time_major)],
    };
    want.extend([fw_state, bw_state]);
    got.iter().zip(&want).for_each(|(got, want)| expect_within(got, want, 8.0));
}

fn svdf(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let [batch, size, units, rank, memory] = [(); 5].map(|()| random.size(1, 3));
    let filters = units * rank;
    let input = small(random, ty, &[batch, size]);
    let (features, time) = (small(random, ty, &[filters, size]), small(random, ty, &[filters, memory]));
    let bias = random.coin().then(|| small(random, ty, &[units]));
    let state = small(random, ty, &[batch, memory * filters]);
    let code = random.below(4) as i32;
    let scalars = [int(rank as i32), int(code)];
    let inputs = [
        Some(&input),
        Some(&features),
        Some(&time),
        bias.as_ref(),
        Some(&state),
        Some(&scalars[0]),
        Some(&scalars[1]),
    ];
    let got = call_with(SVDF, &inputs, &[input.like(), input.like()]);
    let (x, features, time, old) = (input.reals(), features.reals(), time.reals(), state.reals());
    // What each filter remembers: the newest feature takes the last place.
    let memories = Nd::from_fn(&[batch, filters, memory], |i| match i[2] + 1 == memory {
        true => product(&features, &row(&x, &[i[0]]))[i[1]],
        false => old.get(&[i[0], i[1] * memory + i[2]]),
    });
    let shifted = Nd::from_fn(&[batch, memory * filters], |i| {
        memories.inside(&[i[0] as i64, (i[1] / memory) as i64, (i[1] % memory) as i64 + 1]).unwrap_or(0.0)
    });
    let biases = bias.map(|bias| bias.reals().at);
    let want = Nd::from_fn(&[batch, units], |i| {
        let of_filter =
            |f: usize| -> f64 { (0..memory).map(|m| memories.get(&[i[0], f, m]) * time.get(&[f, m])).sum() };
        let sum: f64 = (0..rank).map(|r| of_filter(i[1] * rank + r)).sum();
        activate(code, sum + biases.as_ref().map_or(0.0, |b| b[i[1]]))
    });
    expect_within(&got[0], &shifted, 2.0);
    expect_within(&got[1], &want, 4.0);
}
