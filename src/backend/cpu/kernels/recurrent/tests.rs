//! Recurrent layers of floats against the plain evaluation.

use crate::backend::cpu::kernels::forms::tests::optional_in_halves;
use crate::backend::cpu::kernels::twins::{compare, Noise, Within};
use crate::ops::testing::{boolean, float, int, tensor, Tensor};
use crate::ops::OperationType::{self, *};
use crate::tensor::{OperandType::*, TensorInfo};
use proptest::prelude::*;

/// Which of its optional parts an LSTM has.
#[derive(Clone, Copy, Debug)]
struct Parts {
    input_gate: bool,
    peepholes: bool,
    norms: bool,
    projection: bool,
    projection_bias: bool,
}

fn parts() -> impl Strategy<Value = Parts> {
    any::<[bool; 5]>().prop_map(|[input_gate, peepholes, norms, projection, projection_bias]| Parts {
        input_gate,
        peepholes,
        norms,
        projection,
        projection_bias,
    })
}

/// Sizes of input, units and, with a projection, outputs.
type Sizes = [u32; 3];

/// Numbers of both signs, or nothing.
fn some(noise: &mut Noise, present: bool, dims: &[u32], by: f32) -> Option<Tensor> {
    present.then(|| {
        let count = dims.iter().product::<u32>();
        let values: Vec<f32> = (0..count).map(|_| noise.float().clamp(-2.0, 2.0) * by).collect();
        tensor(TensorInfo::new(TENSOR_FLOAT32, dims), &values)
    })
}

impl Parts {
    fn gates(self) -> [bool; 4] {
        [self.input_gate, true, true, true]
    }

    /// Weights and biases, without those of an auxiliary input.
    fn weights(self, noise: &mut Noise, [size, units, outputs]: Sizes) -> Vec<Option<Tensor>> {
        let (has, input_gate) = (self.gates(), self.input_gate);
        let mut all: Vec<_> = has.map(|has| some(noise, has, &[units, size], 0.3)).into();
        all.extend(has.map(|has| some(noise, has, &[units, outputs], 0.05)));
        all.extend([input_gate, true, true].map(|has| some(noise, has && self.peepholes, &[units], 0.3)));
        all.extend(has.map(|has| some(noise, has, &[units], 0.3)));
        all.push(some(noise, self.projection, &[outputs, units], 0.2));
        all.push(some(noise, self.projection && self.projection_bias, &[outputs], 0.2));
        all
    }

    fn norms(self, noise: &mut Noise, units: u32) -> [Option<Tensor>; 4] {
        self.gates().map(|has| some(noise, has && self.norms, &[units], 0.5))
    }

    fn aux_weights(self, noise: &mut Noise, present: bool, units: u32, size: u32) -> [Option<Tensor>; 4] {
        self.gates().map(|has| some(noise, has && present, &[units, size], 0.3))
    }
}

/// All inputs of an LSTM on an input of these dimensions.
fn inputs(
    parts: Parts,
    (input, batch): (&[u32], u32),
    sizes: Sizes,
    (activation, clips): (i32, [f32; 2]),
    time_major: Option<bool>,
    seed: u32,
) -> Vec<Option<Tensor>> {
    let (noise, [_, units, outputs]) = (&mut Noise(seed), sizes);
    let mut inputs = vec![some(noise, true, input, 0.5)];
    inputs.extend(parts.weights(noise, sizes));
    inputs.extend([outputs, units].map(|size| some(noise, true, &[batch, size], 0.5)));
    inputs.push(Some(int(activation)));
    inputs.extend(clips.map(|clip| Some(float(clip))));
    inputs.extend(time_major.map(|time_major| Some(boolean(time_major))));
    inputs.extend(parts.norms(noise, units));
    inputs
}

/// How an auxiliary input takes part: not at all, in the backward cell, in both.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aux {
    None,
    Parallel,
    Cross,
}

/// Dimensions of a sequence of vectors.
fn sequence((steps, batch): (u32, u32), size: u32, time_major: bool) -> [u32; 3] {
    if time_major {
        [steps, batch, size]
    } else {
        [batch, steps, size]
    }
}

/// Two LSTMs whose cells differ in size.
fn check_both_ways(
    parts: [Parts; 2],
    (steps, batch): (u32, u32),
    (sizes, aux_size, aux): (Sizes, u32, Aux),
    (merged, time_major, states): (bool, bool, bool),
    seed: u32,
) -> Result<(), TestCaseError> {
    let noise = &mut Noise(seed);
    let input_sizes = if aux == Aux::Parallel { [sizes[0], aux_size] } else { [sizes[0]; 2] };
    let cells = [0, 1].map(|i| {
        let units = sizes[1] + 3 * i as u32;
        [input_sizes[i], units, if parts[i].projection { sizes[2] } else { units }]
    });
    let mut inputs = vec![some(noise, true, &sequence((steps, batch), sizes[0], time_major), 0.5)];
    for (parts, cell) in parts.iter().zip(cells) {
        inputs.extend(parts.weights(noise, cell));
    }
    for [_, units, outputs] in cells {
        inputs.extend([outputs, units].map(|size| some(noise, true, &[batch, size], 0.5)));
    }
    inputs.push(some(noise, aux != Aux::None, &sequence((steps, batch), aux_size, time_major), 0.5));
    for (parts, [_, units, _]) in parts.iter().zip(cells) {
        inputs.extend(parts.aux_weights(noise, aux == Aux::Cross, units, aux_size));
    }
    inputs.extend([int(4), float(0.0), float(0.3), boolean(merged), boolean(time_major)].map(Some));
    for (parts, [_, units, _]) in parts.iter().zip(cells) {
        inputs.extend(parts.norms(noise, units));
    }
    let count = if merged { 1 } else { 2 } + if states { 4 } else { 0 };
    check_call(BIDIRECTIONAL_SEQUENCE_LSTM, &inputs, count, parts.iter().any(|parts| parts.norms))
}

/// Compares a call of floats, and the same of half floats.
fn check_call(
    ty: OperationType,
    inputs: &[Option<Tensor>],
    outputs: usize,
    norms: bool,
) -> Result<(), TestCaseError> {
    let output = TensorInfo::new(TENSOR_FLOAT32, &[]);
    // A norm of few units makes much of the last bits.
    let bound = if norms { 1e-3 } else { 2e-5 };
    prop_assert!(compare(ty, inputs, 1, &vec![output.clone(); outputs], Within::Relative(bound))?);
    if norms {
        return Ok(()); // more than the last bits of half floats
    }
    let (inputs, output) = optional_in_halves(inputs, &output);
    prop_assert!(compare(ty, &inputs, 1, &vec![output; outputs], Within::Relative(bound))?);
    Ok(())
}

/// An RNN's weights, recurrent weights, bias and state.
fn rnn(noise: &mut Noise, batch: u32, size: u32, units: u32) -> [Option<Tensor>; 4] {
    [
        some(noise, true, &[units, size], 0.3),
        some(noise, true, &[units, units], 0.1),
        some(noise, true, &[units], 0.3),
        some(noise, true, &[batch, units], 0.5),
    ]
}

fn check(
    parts: Parts,
    (steps, batch): (u32, u32),
    sizes: Sizes,
    parameters: (i32, [f32; 2]),
    time_major: Option<bool>,
    seed: u32,
) -> Result<(), TestCaseError> {
    let sizes = if parts.projection { sizes } else { [sizes[0], sizes[1], sizes[1]] };
    let (ty, dims, outputs) = match time_major {
        Some(true) => (UNIDIRECTIONAL_SEQUENCE_LSTM, vec![steps, batch, sizes[0]], 3),
        Some(false) => (UNIDIRECTIONAL_SEQUENCE_LSTM, vec![batch, steps, sizes[0]], 3),
        None => (LSTM, vec![batch, sizes[0]], 4),
    };
    let inputs = inputs(parts, (&dims, batch), sizes, parameters, time_major, seed);
    check_call(ty, &inputs, outputs, parts.norms)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sequences_are_near(
        parts in parts(), steps in 1u32..9, batch in 1u32..5, sizes in [1u32..40, 8u32..40, 1u32..40],
        activation in prop::sample::select(vec![0, 1, 3, 4, 6]), clips in prop::sample::select(vec![[0.0f32, 0.0], [0.6, 0.3]]),
        time_major in any::<bool>(), seed in any::<u32>(),
    ) {
        check(parts, (steps, batch), sizes, (activation, clips), Some(time_major), seed)?;
    }

    #[test]
    fn steps_are_near(
        parts in parts(), batch in 1u32..5, sizes in [1u32..40, 8u32..40, 1u32..40],
        activation in prop::sample::select(vec![0, 1, 3, 4, 6]), clips in prop::sample::select(vec![[0.0f32, 0.0], [0.6, 0.3]]),
        seed in any::<u32>(),
    ) {
        check(parts, (1, batch), sizes, (activation, clips), None, seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_lstms_are_near(
        parts in [parts(), parts()], steps in 1u32..7, batch in 1u32..4, sizes in [1u32..30, 8u32..30, 1u32..30], aux_size in 1u32..20,
        aux in prop::sample::select(vec![Aux::None, Aux::Parallel, Aux::Cross]), merged in any::<bool>(), time_major in any::<bool>(),
        states in any::<bool>(), seed in any::<u32>(),
    ) {
        check_both_ways(parts, (steps, batch), (sizes, aux_size, aux), (merged, time_major, states), seed)?;
    }

    #[test]
    fn rnns_are_near(
        steps in 1u32..9, batch in 1u32..5, size in 1u32..40, units in 1u32..40, activation in prop::sample::select(vec![0, 1, 2, 3, 4, 6]),
        time_major in any::<bool>(), states in 0usize..2, seed in any::<u32>(),
    ) {
        let noise = &mut Noise(seed);
        let mut step = vec![some(noise, true, &[batch, size], 0.5)];
        step.extend(rnn(noise, batch, size, units));
        step.push(Some(int(activation)));
        check_call(RNN, &step, 2, false)?;
        step[0] = some(noise, true, &sequence((steps, batch), size, time_major), 0.5);
        step.push(Some(int(time_major.into())));
        check_call(UNIDIRECTIONAL_SEQUENCE_RNN, &step, 1 + states, false)?;
    }

    #[test]
    fn two_rnns_are_near(
        steps in 1u32..9, batch in 1u32..4, size in 1u32..40, units in 1u32..40, aux_size in 1u32..20, merged in any::<bool>(),
        aux in prop::sample::select(vec![Aux::None, Aux::Parallel, Aux::Cross]), time_major in any::<bool>(), states in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let noise = &mut Noise(seed);
        let mut inputs = vec![some(noise, true, &sequence((steps, batch), size, time_major), 0.5)];
        inputs.extend(rnn(noise, batch, size, units));
        inputs.extend(rnn(noise, batch, if aux == Aux::Parallel { aux_size } else { size }, units + 2));
        inputs.push(some(noise, aux != Aux::None, &sequence((steps, batch), aux_size, time_major), 0.5));
        inputs.extend([units, units + 2].map(|units| some(noise, aux == Aux::Cross, &[units, aux_size], 0.3)));
        inputs.extend([int(4), boolean(time_major), boolean(merged)].map(Some));
        let outputs = if merged { 1 } else { 2 } + if states { 2 } else { 0 };
        check_call(BIDIRECTIONAL_SEQUENCE_RNN, &inputs, outputs, false)?;
    }

    #[test]
    fn factored_layers_are_near(
        batch in 1u32..4, size in 1u32..40, units in 1u32..20, rank in 1u32..4, memory in prop::sample::select(vec![1u32, 2, 3, 17, 40]),
        bias in any::<bool>(), activation in prop::sample::select(vec![0, 1, 3, 4, 6]), seed in any::<u32>(),
    ) {
        let (noise, filters) = (&mut Noise(seed), units * rank);
        let mut inputs = vec![some(noise, true, &[batch, size], 0.5), some(noise, true, &[filters, size], 0.3)];
        inputs.extend([some(noise, true, &[filters, memory], 0.3), some(noise, bias, &[units], 0.5)]);
        inputs.push(some(noise, true, &[batch, filters * memory], 0.5));
        inputs.extend([Some(int(rank as i32)), Some(int(activation))]);
        check_call(SVDF, &inputs, 2, false)?;
    }
}

/// More rows than a product takes at once, and more than one part of a sequence is.
#[test]
fn long_sequences_and_large_batches_are_near() {
    let parts =
        Parts { input_gate: true, peepholes: true, norms: false, projection: true, projection_bias: true };
    check(parts, (500, 1), [3, 9, 5], (4, [0.0; 2]), Some(true), 1).unwrap();
    check(parts, (2, 400), [3, 9, 5], (4, [0.0; 2]), Some(false), 2).unwrap();
    for (steps, batch) in [(500, 1), (2, 400)] {
        check_both_ways([parts; 2], (steps, batch), ([3, 9, 5], 4, Aux::Cross), (true, false, true), 3)
            .unwrap();
    }
}
