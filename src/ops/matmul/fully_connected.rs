//! FULLY_CONNECTED: every output of a row is a weighted sum of all inputs of that row.

use crate::ops::conv::{dot, evaluate, ChannelRequant, Number, WeightedSums};
use crate::ops::image::expect_rank;
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{int, var, Row};
use crate::ops::{Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::requant::Activation;
use crate::tensor::{element_count, Dims, OperandType::*};
use smallvec::smallvec;

pub static FULLY_CONNECTED: Operation = Operation {
    ty: OperationType::FULLY_CONNECTED,
    doc: "every output of a row is a weighted sum of all inputs of that row",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16]),
            Row(1, &[TENSOR_QUANT8_ASYMM, TENSOR_INT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_INT32]),
        ],
        &[var("input", 0), var("weights", 0), var("bias", 1), int("activation")],
        &[var("output", 0)],
    )],
    check,
    run: Run::Shaped { shapes, eval },
};

/// A fully connected layer: weights `[units, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullyConnectedGeometry {
    /// Rows of the input, which is `batches * inputs` elements in whatever shape. May be 0.
    pub batches: usize,
    /// At least 1.
    pub inputs: usize,
    /// At least 1.
    pub units: usize,
    pub activation: Activation,
}

impl FullyConnectedGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (input, weights, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
        check_ranks(args)?;
        let (units, inputs) = (weights.dim(0) as usize, weights.dim(1) as usize);
        if units == 0 || inputs == 0 {
            return Err(OpError::failed(format!(
                "weights of {:?}: only batches may be zero",
                weights.dims()
            )));
        }
        if bias.dim(0) as usize != units {
            return Err(OpError::failed(format!("{} bias elements for {units} units", bias.dim(0))));
        }
        let count = input.count()?;
        if !count.is_multiple_of(inputs) {
            return Err(OpError::failed(format!("{count} input elements are not rows of {inputs}")));
        }
        if !input.ty().is_float() {
            ChannelRequant::check(input.info, weights.info, bias.info, units)?;
        }
        let activation = args.activation(3)?;
        Ok(FullyConnectedGeometry { batches: count / inputs, inputs, units, activation })
    }

    pub fn output_dims(&self) -> Dims {
        // Both are at most a tensor's element count, which fits.
        smallvec![self.batches as u32, self.units as u32]
    }
}

impl WeightedSums for FullyConnectedGeometry {
    fn out_channels(&self) -> usize {
        self.units
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn sums<T: Number, W: Copy>(
        &self,
        input: &[T],
        filter: &[W],
        value: impl Fn(W) -> T + Copy,
        pace: &mut Pace,
        mut emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let mut sums = filled(pace.interrupt(), T::default(), self.units)?;
        for (batch, row) in input.chunks_exact(self.inputs).enumerate() {
            for (sum, weights) in sums.iter_mut().zip(filter.chunks_exact(self.inputs)) {
                *sum = dot(row, weights, value, pace)?;
            }
            emit(batch, &sums, pace)?;
        }
        Ok(())
    }
}

fn check_ranks(args: &Args) -> Result<(), OpError> {
    let (input, weights, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    if !(2..=4).contains(&input.dims().len()) {
        return Err(OpError::failed(format!("input of {:?}, expected rank 2 to 4", input.dims())));
    }
    expect_rank(&weights, "weights", 2)?;
    expect_rank(&bias, "bias", 1)
}

/// NNAPI's reference looks at shapes already at validation, if it knows all ranks.
fn check(args: &Args) -> Result<(), OpError> {
    let (input, weights, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    if [input, weights, bias].iter().any(|arg| arg.rank().is_none()) {
        return Ok(());
    }
    check_ranks(args)?;
    let (units, inputs, biases) = (weights.dim(0), weights.dim(1), bias.dim(0));
    let count = element_count(input.dims()).unwrap_or(0);
    if inputs != 0 && !count.is_multiple_of(inputs as usize) {
        return Err(OpError::failed(format!("{count} input elements are not rows of {inputs}")));
    }
    if units != 0 && biases != 0 && units != biases {
        return Err(OpError::failed(format!("{biases} bias elements for {units} units")));
    }
    Ok(())
}

fn shapes(args: &Args) -> Shapes {
    Ok(vec![FullyConnectedGeometry::from_args(args)?.output_dims()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    evaluate(&FullyConnectedGeometry::from_args(args)?, args, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, i32s, int, tensor};
    use crate::ops::{Arg, NeverInterrupted};
    use crate::tensor::TensorInfo;

    #[test]
    fn rows_of_any_shape() {
        let input = f32s(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        let weights = f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0]);
        let inputs = [input, weights, f32s(&[3], &[0.0, 0.5, 0.0]), int(1)];
        let out = call_simple::<f32>(&FULLY_CONNECTED, &inputs);
        assert_eq!(out, Ok((vec![2, 3], vec![1.0, 2.5, 0.0, 3.0, 4.5, 0.0])));
    }

    #[test]
    fn quantised_rows() {
        let info = |dims: &[u32], scale, zero| TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, scale, zero);
        let mut bias = i32s(&[1], &[3]);
        bias.info.scale = 0.25;
        let inputs = [
            tensor(info(&[2, 2], 0.5, 100), &[102u8, 104, 0, 0]),
            tensor(info(&[1, 2], 0.5, 10), &[11u8, 12]),
            bias,
            int(0),
        ];
        // Row 0: (2 * 1 + 4 * 2 + 3) / 4 = 3.25 in steps of 0.5 over 100; row 1 is far below the range.
        let out = call_simple::<u8>(&FULLY_CONNECTED, &inputs);
        assert_eq!(out, Ok((vec![2, 1], vec![107, 0])));
    }

    #[test]
    fn a_bias_in_other_units_fails_at_execution_only() {
        let info = |ty, dims: &[u32], scale| TensorInfo::quantised(ty, dims, scale, 0);
        let inputs = [
            tensor(info(TENSOR_QUANT8_ASYMM, &[1, 1], 0.5), &[1u8]),
            tensor(info(TENSOR_QUANT8_ASYMM, &[1, 1], 0.5), &[1u8]),
            tensor(info(TENSOR_INT32, &[1], 0.5), &[1i32]),
            int(0),
        ];
        let listed: Vec<_> =
            inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
        let args = Args { signature_index: 0, inputs: &listed, outputs: &[], interrupt: &NeverInterrupted };
        assert_eq!(check(&args), Ok(()));
        assert!(shapes(&args).is_err());
    }

    #[test]
    fn no_rows_and_rows_that_do_not_fit() {
        let call = |dims: &[u32], weights: &[u32]| {
            let count = |dims: &[u32]| vec![0.0; dims.iter().product::<u32>() as usize];
            let tensors = [f32s(dims, &count(dims)), f32s(weights, &count(weights)), f32s(&[3], &[0.0; 3])];
            call_simple::<f32>(&FULLY_CONNECTED, &[&tensors[..], &[int(0)]].concat())
        };
        assert_eq!(call(&[0, 2], &[3, 2]), Ok((vec![0, 3], vec![])));
        assert!(call(&[1, 3], &[3, 2]).is_err());
        assert!(call(&[1, 2], &[4, 2]).is_err());
        assert!(call(&[1, 2], &[3, 0]).is_err());
        assert!(call(&[2], &[3, 2]).is_err());
    }

    #[test]
    fn what_is_unknown_passes_the_check() {
        let unknown = TensorInfo::new(TENSOR_FLOAT32, &[]);
        let half_known = TensorInfo::new(TENSOR_FLOAT32, &[0, 3]);
        let bias = TensorInfo::new(TENSOR_FLOAT32, &[5]);
        for input in [&unknown, &half_known] {
            let listed = [input, &half_known, &bias].map(|info| Some(Arg { info, data: None }));
            let args =
                Args { signature_index: 0, inputs: &listed, outputs: &[], interrupt: &NeverInterrupted };
            assert_eq!(check(&args), Ok(()));
        }
    }
}
