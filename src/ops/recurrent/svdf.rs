//! SVDF: a stateful dense layer whose weights are factored into filters over features and over time.

use super::linear::{add_product, dot, CellActivation, FUNCTION};
use super::operands::{dims, expect, expect_if_present, floats, floats_if_present, not_empty};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{int, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static SVDF: Operation = Operation {
    ty: OperationType::SVDF,
    doc: "a stateful dense layer whose weights are factored into filters over features and over time",
    signatures: &[Signature::new(
        &[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
        &[
            var("input", 0),
            var("weights_feature", 0),
            var("weights_time", 0),
            var("bias", 0).optional(),
            var("state_in", 0),
            int("rank"),
            int("activation"),
        ],
        &[var("state_out", 0), var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const WEIGHTS_FEATURE: usize = SvdfCall::FEATURE;
const WEIGHTS_TIME: usize = SvdfCall::TIME;
const BIAS: usize = SvdfCall::BIAS;
const STATE: usize = SvdfCall::STATE;
const RANK: usize = 5;
const ACTIVATION: usize = 6;

struct Shape {
    batch: u32,
    input: u32,
    filters: u32,
    memory: u32,
    /// Length of the state of one element of the batch: filters * memory.
    state: u32,
    units: u32,
}

fn shape(args: &Args) -> Result<Shape, OpError> {
    let [batch, input] = dims(args, 0)?;
    let [filters, _] = dims(args, WEIGHTS_FEATURE)?;
    let [_, memory] = dims(args, WEIGHTS_TIME)?;
    not_empty(&[input, filters, memory])?;
    expect(args, WEIGHTS_FEATURE, &[filters, input])?;
    expect(args, WEIGHTS_TIME, &[filters, memory])?;
    let rank = args.i32(RANK)?;
    let units = u32::try_from(rank)
        .ok()
        .filter(|&rank| rank > 0 && filters.is_multiple_of(rank))
        .map(|rank| filters / rank)
        .ok_or_else(|| OpError::failed(format!("rank {rank} does not divide {filters} filters")))?;
    expect_if_present(args, BIAS, &[units])?;
    let state = filters.checked_mul(memory).ok_or_else(|| OpError::failed("the state is too large"))?;
    expect(args, STATE, &[batch, state])?;
    Ok(Shape { batch, input, filters, memory, state, units })
}

/// A call of SVDF, read once for all that evaluate it.
#[derive(Clone, Copy, Debug)]
pub struct SvdfCall {
    pub batch: usize,
    pub input: usize,
    pub filters: usize,
    /// Steps that a filter remembers, the newest last.
    pub memory: usize,
    /// They divide the filters: each has as many in a row.
    pub units: usize,
    pub activation: CellActivation,
}

impl SvdfCall {
    /// Which inputs are what.
    pub const FEATURE: usize = 1;
    pub const TIME: usize = 2;
    pub const BIAS: usize = 3;
    pub const STATE: usize = 4;

    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (shape, activation) = (shape(args)?, CellActivation::from_input(args, ACTIVATION)?);
        let [batch, input, filters, memory, units] =
            [shape.batch, shape.input, shape.filters, shape.memory, shape.units].map(|size| size as usize);
        Ok(SvdfCall { batch, input, filters, memory, units, activation })
    }
}

fn shapes(args: &Args) -> Shapes {
    let Shape { batch, state, units, .. } = shape(args)?;
    Ok(vec![smallvec![batch, state], smallvec![batch, units]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let SvdfCall { batch, input, filters, memory, units, activation } = SvdfCall::from_args(args)?;
    let rank = filters / units;
    let x = floats(args, 0)?;
    let (feature, time) = (floats(args, WEIGHTS_FEATURE)?, floats(args, WEIGHTS_TIME)?);
    let bias = floats_if_present(args, BIAS)?;
    let mut state = floats(args, STATE)?.into_owned(args.interrupt)?;
    let mut out = filled(args.interrupt, 0.0, batch * units)?;
    let mut features = filled(args.interrupt, 0.0, filters)?;
    let mut pace = Pace::new(args);
    let batches = x.chunks_exact(input).zip(state.chunks_exact_mut(filters * memory));
    for ((x, state), out) in batches.zip(out.chunks_exact_mut(units)) {
        args.interrupt.yield_point()?;
        pace.each(&mut *features, 1, |feature| *feature = 0.0)?;
        add_product(&feature, x, &mut features, &mut pace)?;
        if let Some(bias) = &bias {
            pace.each(out.iter_mut().zip(&**bias), 1, |(out, &bias)| *out = bias)?;
        }
        let filters = state.chunks_exact_mut(memory).zip(time.chunks_exact(memory)).zip(features.iter());
        for (filter, ((state, time), &newest)) in filters.enumerate() {
            state[memory - 1] = newest;
            out[filter / rank] += dot(state, time, &mut pace)?;
            // Room for the next step's feature at the end, as the state is handed out.
            pace.in_stretches(memory - 1, 1, |to| state.copy_within(to.start + 1..to.end + 1, to.start))?;
            state[memory - 1] = 0.0;
        }
        pace.each(out, FUNCTION, |x| *x = activation.apply(*x))?;
    }
    outs[0].store_floats(args.interrupt, &state)?;
    outs[1].store_floats(args.interrupt, &out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::evaluate::evaluate;
    use crate::ops::testing::{call, f32s, int, Counting, Tensor};
    use crate::ops::Arg;
    use crate::tensor::TensorInfo;

    /// Four filters over two features, a memory of two steps.
    fn inputs(rank: i32) -> Vec<Option<Tensor>> {
        let feature = f32s(&[4, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.0]);
        let time = f32s(&[4, 2], &[1.0, 10.0, 1.0, 10.0, 1.0, 10.0, 1.0, 10.0]);
        let state = f32s(&[1, 8], &[0.1, 9.0, 0.2, 9.0, 0.3, 9.0, 0.4, 9.0]);
        let x = f32s(&[1, 2], &[1.0, 2.0]);
        vec![Some(x), Some(feature), Some(time), None, Some(state), Some(int(rank)), Some(int(0))]
    }

    fn run(inputs: &[Option<Tensor>]) -> Result<Vec<Vec<f32>>, OpError> {
        let outputs = call(&SVDF, inputs, &vec![TensorInfo::new(TENSOR_FLOAT32, &[]); 2])?;
        Ok(outputs.iter().map(|out| bytemuck::cast_slice(&out.data).to_vec()).collect())
    }

    #[test]
    fn filters_of_a_unit_are_summed_and_the_state_moves_on() {
        let mut args = inputs(2);
        let out = run(&args).unwrap();
        assert_eq!(out[0], [1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 2.0, 0.0]);
        assert_eq!(out[1], [10.1 + 20.2, 30.3 + 20.4]);
        args[3] = Some(f32s(&[2], &[1.0, -100.0]));
        args[6] = Some(int(1));
        assert_eq!(run(&args).unwrap()[1], [1.0f32 + 10.1 + 20.2, 0.0]);
    }

    #[test]
    fn hostile_ranks_and_dimensions_are_refused() {
        for rank in [0, 3, 5, -1, -2, i32::MIN, i32::MAX] {
            assert!(run(&inputs(rank)).is_err(), "rank {rank}");
        }
        for i in 0..5 {
            for dims in [&[1, 1][..], &[4, 0], &[0, 2], &[8]] {
                let mut args = inputs(2);
                args[i] = Some(f32s(dims, &vec![0.0; dims.iter().product::<u32>() as usize]));
                assert!(run(&args).is_err(), "input {i} of {dims:?}");
            }
        }
    }

    #[test]
    fn a_filter_of_a_very_long_memory_gives_way() {
        const MEMORY: usize = 1 << 20;
        let (one, row) = (f32s(&[1, 1], &[1.0]), f32s(&[1, MEMORY as u32], &vec![0.5; MEMORY]));
        let tensors = [Some(&one), Some(&one), Some(&row), None, Some(&row)];
        let scalars = [int(1), int(0)];
        let inputs: Vec<_> = tensors.into_iter().chain(scalars.iter().map(Some)).collect();
        let inputs: Vec<_> =
            inputs.iter().map(|t| t.map(|t| Arg { info: &t.info, data: Some(&t.data) })).collect();
        let (interrupt, outputs) = (Counting::default(), vec![TensorInfo::new(TENSOR_FLOAT32, &[]); 2]);
        evaluate(&SVDF, &inputs, &outputs, &interrupt).unwrap();
        // The state is copied and stored, 32,768 elements at a time; weighted and moved, twice as many at a time.
        let passed = interrupt.take();
        assert!(passed >= (MEMORY >> 14) + (MEMORY >> 15) - 8, "{passed} yield points");
    }
}
