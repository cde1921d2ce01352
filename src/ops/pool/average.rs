//! AVERAGE_POOL_2D: the mean of each window, padding left out.

use super::geometry::{pool_floats, pool_integers, shapes};
use super::{signatures, ROWS};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run};

pub static AVERAGE_POOL_2D: Operation = Operation {
    ty: OperationType::AVERAGE_POOL_2D,
    doc: "the mean of each window, padding left out",
    signatures: &signatures(ROWS),
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let out = &mut outs[0];
    if out.info.ty.is_float() {
        return pool_floats(args, out, 0.0, |sum, x| sum + x, |sum, cells| sum / cells as f32);
    }
    // Halves round away from zero in stored units, as in NNAPI's and TensorFlow Lite's references.
    let mean = |sum: i64, cells: usize| {
        let cells = cells as i64;
        let half = if sum < 0 { -(cells / 2) } else { cells / 2 };
        ((sum + half) / cells) as i32
    };
    pool_integers(args, out, 0, |sum, q| sum + i64::from(q), mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, int, tensor, Tensor};
    use crate::tensor::{OperandType::*, TensorInfo};

    fn with_ints(input: Tensor, ints: &[i32]) -> Vec<Tensor> {
        std::iter::once(input).chain(ints.iter().map(|&value| int(value))).collect()
    }

    #[test]
    fn padding_takes_no_part() {
        let input = f32s(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 6.0]);
        let out = call_simple::<f32>(&AVERAGE_POOL_2D, &with_ints(input, &[1, 1, 1, 2, 2, 0]));
        assert_eq!(out, Ok((vec![1, 2, 2, 1], vec![3.0, 4.0, 4.5, 6.0])));
    }

    #[test]
    fn halves_round_away_from_zero() {
        let ints = [2, 1, 1, 2, 1, 0];
        let unsigned = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 1, 3, 1], 1.0, 0);
        let out = call_simple::<u8>(&AVERAGE_POOL_2D, &with_ints(tensor(unsigned, &[0u8, 1, 255]), &ints));
        assert_eq!(out, Ok((vec![1, 1, 2, 1], vec![1, 128])));
        let signed = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 1, 3, 1], 1.0, -128);
        let out =
            call_simple::<i8>(&AVERAGE_POOL_2D, &with_ints(tensor(signed, &[-128i8, -127, 127]), &ints));
        assert_eq!(out, Ok((vec![1, 1, 2, 1], vec![-128, 0])));
    }

    #[test]
    fn empty_windows_are_refused() {
        let refused = |ints: &[i32]| {
            let input = f32s(&[1, 2, 2, 1], &[0.0; 4]);
            call_simple::<f32>(&AVERAGE_POOL_2D, &with_ints(input, ints)).is_err()
        };
        assert!(refused(&[2, 0, 0, 0, 1, 1, 2, 2, 0]), "padding as large as the filter");
        assert!(refused(&[1, 1, 1, 0, 2, 0]), "filter 0");
        assert!(refused(&[1, 1, 1, 2, -1, 0]), "filter -1");
        assert!(refused(&[2, 1, 1, 3, 2, 0]), "filter larger than the image");
        assert!(refused(&[1, 0, 1, 2, 2, 0]), "stride 0");
    }
}
