//! CONV_2D: a filter that mixes channels, swept over an image.

use super::{check_channel_dim, evaluate, ConvGeometry, OUTPUT, ROWS};
use crate::ops::image::{EXPLICIT_STRIDES, IMPLICIT_STRIDES};
use crate::ops::signature::{boolean, int, join, var, Slot};
use crate::ops::{Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};

const TENSORS: [Slot; 3] = [var("input", 0).rank(4, 4), var("filter", 1).rank(4, 4), var("bias", 2)];
const REST: [Slot; 4] = [int("activation"), boolean("nchw"), int("dilation width"), int("dilation height")];

pub static CONV_2D: Operation = Operation {
    ty: OperationType::CONV_2D,
    doc: "a filter that mixes channels, swept over an image",
    signatures: &[
        Signature::new(ROWS, &join::<10>(&[&TENSORS, &IMPLICIT_STRIDES, &REST]), OUTPUT)
            .input_counts(&[7, 8, 10]),
        Signature::new(ROWS, &join::<13>(&[&TENSORS, &EXPLICIT_STRIDES, &REST]), OUTPUT)
            .input_counts(&[10, 11, 13]),
    ],
    check: |args| check_channel_dim(args, 0),
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    Ok(vec![ConvGeometry::from_args(args)?.output_dims()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    evaluate(&ConvGeometry::from_args(args)?, args, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call, call_simple, f32s, int, tensor, InterruptedAfter, Tensor};
    use crate::ops::{evaluate, Arg};
    use crate::tensor::OperandType::*;
    use crate::tensor::{ChannelQuant, TensorInfo};

    fn with_ints(mut tensors: Vec<Tensor>, ints: &[i32]) -> Vec<Tensor> {
        tensors.extend(ints.iter().map(|&value| int(value)));
        tensors
    }

    #[test]
    fn sums_under_the_filter() {
        let image = f32s(&[1, 3, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let inputs = vec![image, f32s(&[1, 2, 2, 1], &[1.0, 10.0, 100.0, 1000.0]), f32s(&[1], &[0.5])];
        let valid = call_simple::<f32>(&CONV_2D, &with_ints(inputs.clone(), &[2, 1, 1, 0]));
        assert_eq!(valid, Ok((vec![1, 2, 2, 1], vec![5421.5, 6532.5, 8754.5, 9865.5])));
        // Padding left 1: the first column sees only the right taps.
        let explicit = call_simple::<f32>(&CONV_2D, &with_ints(inputs, &[1, 0, 0, 0, 2, 2, 3]));
        assert_eq!(explicit, Ok((vec![1, 1, 2, 1], vec![6.0, 6.0])));
    }

    #[test]
    fn channels_first_and_dilated() {
        let image = f32s(&[1, 2, 1, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let filter = f32s(&[2, 1, 2, 2], &[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
        let mut inputs = with_ints(vec![image, filter, f32s(&[2], &[0.0, 0.0])], &[2, 1, 1, 0]);
        inputs.extend([boolean(true), int(2), int(1)]);
        let out = call_simple::<f32>(&CONV_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 2, 1, 1], vec![11.0, 63.0])));
    }

    fn per_channel(dim: u32) -> Vec<Tensor> {
        let input = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 1, 1, 2], 0.5, 128);
        let mut filter = TensorInfo::new(TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 1, 1, 2]);
        filter.channel_quant = Some(ChannelQuant { scales: [1.0, 2.0].into(), dim });
        let tensors = vec![
            tensor(input, &[130u8, 126]),
            tensor(filter, &[3i8, 1, -4, 4]),
            crate::ops::testing::i32s(&[2], &[6, 0]),
        ];
        with_ints(tensors, &[2, 1, 1, 0])
    }

    #[test]
    fn quantised_with_a_scale_per_channel() {
        let out = call_simple::<u8>(&CONV_2D, &per_channel(0));
        // Channel 0: (2*3 - 2*1 + 6) * 0.5 = 5, in steps of 0.5; channel 1: (-8 - 8) * 1 = -16.
        assert_eq!(out, Ok((vec![1, 1, 1, 2], vec![138, 96])));
        assert!(call_simple::<u8>(&CONV_2D, &per_channel(3)).is_err());
    }

    #[test]
    fn no_batches_give_no_batches() {
        let inputs = vec![f32s(&[0, 3, 3, 1], &[]), f32s(&[4, 2, 2, 1], &[0.0; 16]), f32s(&[4], &[0.0; 4])];
        let out = call_simple::<f32>(&CONV_2D, &with_ints(inputs, &[1, 1, 1, 0]));
        assert_eq!(out, Ok((vec![0, 3, 3, 4], vec![])));
    }

    #[test]
    fn wrong_calls_are_refused() {
        let conv = |filter: &[u32], ints: &[i32]| {
            let count = filter.iter().product::<u32>() as usize;
            let inputs =
                vec![f32s(&[1, 3, 3, 1], &[0.0; 9]), f32s(filter, &vec![0.0; count]), f32s(&[1], &[0.0])];
            call_simple::<f32>(&CONV_2D, &with_ints(inputs, ints))
        };
        assert!(conv(&[1, 2, 2, 1], &[1, 1, 1, 0]).is_ok());
        assert!(conv(&[1, 2, 2, 2], &[1, 1, 1, 0]).is_err(), "depth");
        assert!(conv(&[2, 2, 2, 1], &[1, 1, 1, 0]).is_err(), "bias");
        assert!(conv(&[1, 2, 2, 1], &[1, 0, 1, 0]).is_err(), "stride");
        assert!(conv(&[1, 2, 2, 1], &[1, 1, 1, 4]).is_err(), "activation");
        assert!(conv(&[1, 4, 4, 1], &[2, 1, 1, 0]).is_err(), "filter larger than the image");
        assert!(conv(&[1, 2, 2, 1], &[0, 1, 1, 0]).is_err(), "padding scheme");
        let lone_dilation = vec![Some(f32s(&[1, 3, 3, 1], &[0.0; 9])); 9];
        assert!(call(&CONV_2D, &lone_dilation, &[TensorInfo::new(TENSOR_FLOAT32, &[])]).is_err());
    }

    #[test]
    fn a_single_large_pixel_is_interrupted() {
        let tensors = [(vec![1, 1, 1, 512], 512), (vec![512, 1, 1, 512], 512 * 512), (vec![512], 512)]
            .map(|(dims, count)| f32s(&dims, &vec![0.0; count]));
        let inputs = with_ints(tensors.to_vec(), &[2, 1, 1, 0]);
        let listed: Vec<_> =
            inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
        // Four questions while the filter is rearranged, one while the pixel is summed.
        let output = [TensorInfo::new(TENSOR_FLOAT32, &[])];
        let result = evaluate::evaluate(&CONV_2D, &listed, &output, &InterruptedAfter::checks(4));
        assert_eq!(result.map(|_| ()), Err(OpError::Cancelled));
    }
}
