//! LSTMs against the plain evaluation.

use crate::backend::cpu::kernels::forms::tests::optional_in_halves;
use crate::backend::cpu::kernels::twins::{compare, Noise, Within};
use crate::ops::testing::{boolean, float, int, tensor, Tensor};
use crate::ops::OperationType::{LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM};
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

/// All inputs of an LSTM on an input of these dimensions.
fn inputs(
    parts: Parts,
    (input, batch): (&[u32], u32),
    [size, units, outputs]: Sizes,
    (activation, clips): (i32, [f32; 2]),
    time_major: Option<bool>,
    seed: u32,
) -> Vec<Option<Tensor>> {
    let mut noise = Noise(seed);
    let mut some = |present: bool, dims: &[u32], by: f32| {
        present.then(|| {
            let info = TensorInfo::new(TENSOR_FLOAT32, dims);
            let count = dims.iter().product::<u32>();
            let values: Vec<f32> = (0..count).map(|_| noise.float().clamp(-2.0, 2.0) * by).collect();
            tensor(info, &values)
        })
    };
    let Parts { input_gate, peepholes, norms, projection, projection_bias } = parts;
    let has = [input_gate, true, true, true];
    let mut inputs = vec![some(true, input, 0.5)];
    inputs.extend(has.map(|has| some(has, &[units, size], 0.3)));
    inputs.extend(has.map(|has| some(has, &[units, outputs], 0.05)));
    inputs.extend([input_gate, true, true].map(|has| some(has && peepholes, &[units], 0.3)));
    inputs.extend(has.map(|has| some(has, &[units], 0.3)));
    inputs.push(some(projection, &[outputs, units], 0.2));
    inputs.push(some(projection && projection_bias, &[outputs], 0.2));
    inputs.extend([some(true, &[batch, outputs], 0.5), some(true, &[batch, units], 0.5)]);
    inputs.push(Some(int(activation)));
    inputs.extend(clips.map(|clip| Some(float(clip))));
    inputs.extend(time_major.map(|time_major| Some(boolean(time_major))));
    inputs.extend(has.map(|has| some(has && norms, &[units], 0.5)));
    inputs
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
    let output = TensorInfo::new(TENSOR_FLOAT32, &[]);
    // A norm of few units makes much of the last bits.
    let bound = if parts.norms { 1e-3 } else { 2e-5 };
    prop_assert!(compare(ty, &inputs, 1, &vec![output.clone(); outputs], Within::Relative(bound))?);
    if parts.norms {
        return Ok(()); // more than the last bits of half floats
    }
    let (inputs, output) = optional_in_halves(&inputs, &output);
    prop_assert!(compare(ty, &inputs, 1, &vec![output; outputs], Within::Relative(bound))?);
    Ok(())
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

/// More rows than a product takes at once, and more than one part of a sequence is.
#[test]
fn long_sequences_and_large_batches_are_near() {
    let parts =
        Parts { input_gate: true, peepholes: true, norms: false, projection: true, projection_bias: true };
    check(parts, (500, 1), [3, 9, 5], (4, [0.0; 2]), Some(true), 1).unwrap();
    check(parts, (2, 400), [3, 9, 5], (4, [0.0; 2]), Some(false), 2).unwrap();
}
