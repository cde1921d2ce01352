//! GROUPED_CONV_2D: CONV_2D on groups of channels, each by itself.

use super::{check_channel_dim, evaluate, ConvGeometry, OUTPUT, ROWS_FROM_3, TENSORS};
use crate::ops::image::{EXPLICIT_STRIDES, IMPLICIT_STRIDES};
use crate::ops::signature::{boolean, int, join, Slot};
use crate::ops::{Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};

const REST: [Slot; 3] = [int("groups"), int("activation"), boolean("nchw")];

pub static GROUPED_CONV_2D: Operation = Operation {
    ty: OperationType::GROUPED_CONV_2D,
    doc: "CONV_2D on groups of channels, each by itself",
    signatures: &[
        Signature::new(ROWS_FROM_3, &join::<9>(&[&TENSORS, &IMPLICIT_STRIDES, &REST]), OUTPUT),
        Signature::new(ROWS_FROM_3, &join::<12>(&[&TENSORS, &EXPLICIT_STRIDES, &REST]), OUTPUT),
    ],
    check: |args| check_channel_dim(args, 0),
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    Ok(vec![ConvGeometry::from_grouped_args(args)?.output_dims()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    evaluate(&ConvGeometry::from_grouped_args(args)?, args, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int, Tensor};

    fn grouped(groups: i32) -> Vec<Tensor> {
        let mut inputs = vec![
            f32s(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]),
            f32s(&[4, 1, 1, 2], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]),
            f32s(&[4], &[0.0, 0.0, 0.0, 0.5]),
        ];
        inputs.extend([2, 1, 1, groups, 0].map(int));
        inputs.push(boolean(false));
        inputs
    }

    #[test]
    fn groups_see_their_own_channels() {
        let out = call_simple::<f32>(&GROUPED_CONV_2D, &grouped(2));
        assert_eq!(out, Ok((vec![1, 1, 1, 4], vec![21.0, 42.0, 129.0, 172.5])));
    }

    #[test]
    fn groups_that_do_not_divide_are_refused() {
        for groups in [i32::MIN, -2, 0, 1, 3, 4, i32::MAX] {
            assert!(call_simple::<f32>(&GROUPED_CONV_2D, &grouped(groups)).is_err(), "{groups}");
        }
    }
}
