//! Float LSTMs: one step, sequences, both directions.

use crate::lstm_cell::{LstmCell, Scalars, Sizes, Variant};
use crate::recurrent::{as_asked, in_time, merged, small};
use crate::support::*;
use OperationType::*;

pub const PROPERTIES: &[Property] = &[
    Property { name: "LSTM", operations: &[LSTM], cases: 150, case: lstm },
    Property {
        name: "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operations: &[UNIDIRECTIONAL_SEQUENCE_LSTM],
        cases: 120,
        case: unidirectional,
    },
    Property {
        name: "BIDIRECTIONAL_SEQUENCE_LSTM",
        operations: &[BIDIRECTIONAL_SEQUENCE_LSTM],
        cases: 150,
        case: bidirectional,
    },
];

/// Asserts that outputs are what is wanted, unless rounding decides.
fn check(got: &[Value], want: &[Nd], cells: &[&LstmCell]) {
    if cells.iter().all(|cell| cell.certain.get()) {
        got.iter().zip(want).for_each(|(got, want)| expect_within(got, want, 10.0));
    }
}

fn sizes(random: &mut Random, variant: Variant, batch: usize) -> Sizes {
    let cell = random.size(2, 4);
    let output = if variant.projection { random.size(1, 4) } else { cell };
    Sizes { batch, input: random.size(1, 4), aux: random.size(1, 3), cell, output }
}

/// The activation, and the two clips as scalars of the type that goes with `ty`.
fn scalars(random: &mut Random, ty: OperandType) -> (Scalars, [Value; 3]) {
    let code = random.pick(&[0, 1, 3, 4, 6]);
    let (cell_clip, projection_clip) = (random.pick(&[0.0, 0.5]), random.pick(&[0.0, 0.25]));
    let values = [int(code), scalar(ty, cell_clip), scalar(ty, projection_clip)];
    (Scalars { code, cell_clip, projection_clip }, values)
}

/// Layer normalisation weights, which may be left off the list altogether where there are none.
fn layer_norm<'a>(cell: &'a LstmCell, variant: Variant, random: &mut Random) -> Vec<Option<&'a Value>> {
    match variant.layer_norm || random.coin() {
        true => cell.layer_norm.iter().map(Option::as_ref).collect(),
        false => vec![],
    }
}

fn lstm(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let variant = Variant::random(random, false);
    let batch = random.size(1, 3);
    let sizes = sizes(random, variant, batch);
    let cell = LstmCell::random(random, ty, variant, sizes);
    let (scalars, scalar_inputs) = scalars(random, ty);
    let input = small(random, ty, &[batch, sizes.input]);
    let mut inputs = vec![Some(&input)];
    inputs.extend(cell.weights());
    inputs.extend([&cell.hidden, &cell.cell].map(Some));
    inputs.extend(scalar_inputs.iter().map(Some));
    inputs.extend(layer_norm(&cell, variant, random));
    let got = call_with(LSTM, &inputs, &vec![input.like(); 4]);
    let gates = if variant.cifg { 3 } else { 4 };
    assert_eq!(got[0].dims(), [batch, gates * sizes.cell]);
    let sequence = Nd { dims: vec![1, batch, sizes.input], ..input.reals() };
    let [_, hidden, state] = cell.run(&sequence, None, &[0], scalars);
    check(&got[1..], &[hidden.clone(), state, hidden], &[&cell]);
}

fn unidirectional(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    let variant = Variant::random(random, false);
    let [time, batch] = [random.size(1, 3), random.size(1, 3)];
    let sizes = sizes(random, variant, batch);
    let cell = LstmCell::random(random, ty, variant, sizes);
    let (scalars, scalar_inputs) = scalars(random, ty);
    let time_major = random.coin();
    let dims = if time_major { [time, batch, sizes.input] } else { [batch, time, sizes.input] };
    let input = small(random, ty, &dims);
    let order = boolean(time_major);
    let mut inputs = vec![Some(&input)];
    inputs.extend(cell.weights());
    inputs.extend([&cell.hidden, &cell.cell].map(Some));
    inputs.extend(scalar_inputs.iter().chain([&order]).map(Some));
    inputs.extend(cell.layer_norm.iter().map(Option::as_ref));
    let outputs = vec![input.like(); random.pick(&[1, 3])];
    let got = call_with(UNIDIRECTIONAL_SEQUENCE_LSTM, &inputs, &outputs);
    let times: Vec<usize> = (0..time).collect();
    let [out, hidden, state] = cell.run(&in_time(&input, time_major), None, &times, scalars);
    check(&got, &[as_asked(&out, time_major), hidden, state], &[&cell]);
}

fn bidirectional(random: &mut Random) {
    let ty = random.pick(&FLOATS);
    // No auxiliary input, one for the backward cell alone, or one that both add.
    let linking = random.below(3);
    let variant = Variant::random(random, linking == 2);
    let [time, batch] = [random.size(1, 3), random.size(1, 3)];
    let fw_sizes = sizes(random, variant, batch);
    let mut bw_sizes = Sizes { input: fw_sizes.input, aux: fw_sizes.aux, ..sizes(random, variant, batch) };
    if linking == 1 {
        bw_sizes.input = fw_sizes.aux;
    }
    let fw = LstmCell::random(random, ty, variant, fw_sizes);
    let bw = LstmCell::random(random, ty, variant, bw_sizes);
    let (scalars, scalar_inputs) = scalars(random, ty);
    let (time_major, merge) = (random.coin(), random.coin());
    let sequence = |size: usize| if time_major { [time, batch, size] } else { [batch, time, size] };
    let input = small(random, ty, &sequence(fw_sizes.input));
    let aux = (linking > 0).then(|| small(random, ty, &sequence(fw_sizes.aux)));
    let flags = [boolean(merge), boolean(time_major)];
    let mut inputs = vec![Some(&input)];
    inputs.extend(fw.weights());
    inputs.extend(bw.weights());
    inputs.extend([&fw.hidden, &fw.cell, &bw.hidden, &bw.cell].map(Some));
    inputs.push(aux.as_ref());
    inputs.extend(fw.aux.iter().chain(&bw.aux).map(Option::as_ref));
    inputs.extend(scalar_inputs.iter().chain(&flags).map(Some));
    inputs.extend(fw.layer_norm.iter().chain(&bw.layer_norm).map(Option::as_ref));
    let states = random.coin();
    let outputs = vec![input.like(); if merge { 1 } else { 2 } + if states { 4 } else { 0 }];
    let got = call_with(BIDIRECTIONAL_SEQUENCE_LSTM, &inputs, &outputs);

    let input = in_time(&input, time_major);
    let aux = aux.map(|aux| in_time(&aux, time_major));
    let added = if linking == 2 { aux.as_ref() } else { None };
    let forward: Vec<usize> = (0..time).collect();
    let backward: Vec<usize> = (0..time).rev().collect();
    let [fw_out, fw_hidden, fw_cell] = fw.run(&input, added, &forward, scalars);
    let bw_input = if linking == 1 { aux.as_ref().unwrap() } else { &input };
    let [bw_out, bw_hidden, bw_cell] = bw.run(bw_input, added, &backward, scalars);
    let mut want = match merge {
        true => vec![as_asked(&merged(&fw_out, &bw_out), time_major)],
        false => vec![as_asked(&fw_out, time_major), as_asked(&bw_out, time_major)],
    };
    want.extend([fw_hidden, fw_cell, bw_hidden, bw_cell]);
    check(&got, &want, &[&fw, &bw]);
}
