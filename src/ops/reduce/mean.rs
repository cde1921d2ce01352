//! MEAN: the average along axes.

use super::axes::{fold, folded, output_dims};
use crate::ops::scratch::collected;
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{
    no_check, same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;

pub static MEAN: Operation = Operation {
    ty: OperationType::MEAN,
    doc: "the average along axes",
    signatures: &[Signature::new(
        &[
            Row(2, &[TENSOR_FLOAT32]),
            Row(2, &[TENSOR_QUANT8_ASYMM]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), is("axes", TENSOR_INT32), int("keep_dims")],
        &[var("output", 0).rank(1, 4)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let input = args.get(0)?;
    // Here, other than in the REDUCE operations, an INT32 says whether to keep folded dimensions.
    let keep = args.i32(2)? > 0;
    same_quantisation(input.info, args.output(0)?)?;
    Ok(vec![output_dims(input.dims(), &folded(args)?, keep)])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (input, folded) = (args.get(0)?, folded(args)?);
    let folded_dims = input.dims().iter().zip(&folded).filter(|(_, &folded)| folded);
    let count: f64 = folded_dims.map(|(&dim, _)| f64::from(dim)).product();
    if input.ty().is_float() {
        let sums =
            fold(args, &input.floats()?, input.dims(), &folded, 0.0, |sum: f64, x| sum + f64::from(x))?;
        let means = collected(args.interrupt, sums.iter().map(|sum| (sum / count) as f32))?;
        return outs[0].store_floats(args.interrupt, &means);
    }
    let sums = fold(args, &input.integers()?, input.dims(), &folded, 0, |sum: i64, q| sum + i64::from(q))?;
    // The mean of nothing is the zero point, which a quantised tensor has for NaN.
    let mean =
        |&sum: &i64| if count == 0.0 { input.zero_point() } else { (sum as f64 / count).round() as i32 };
    let means = collected(args.interrupt, sums.iter().map(mean))?;
    outs[0].store_integers(args.interrupt, &means)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, i32s, int, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn averages_along_axes_named_twice() {
        let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 5.0, 6.0, 7.0]);
        let mean = |axes: &[i32], keep| {
            call_simple::<f32>(&MEAN, &[x.clone(), i32s(&[axes.len() as u32], axes), int(keep)])
        };
        assert_eq!(mean(&[0, -2], 0), Ok((vec![3], vec![3.0, 4.0, 5.0])));
        assert_eq!(mean(&[1], 2), Ok((vec![2, 1], vec![2.0, 6.0])));
        assert_eq!(mean(&[0, 1], -1), Ok((vec![1], vec![4.0])));
        assert_eq!(mean(&[], 0).unwrap().0, [2, 3]);
        assert!(mean(&[2], 1).is_err());
    }

    #[test]
    fn quantised_rounds_and_survives_emptiness() {
        let q = |dims: &[u32], values: &[u8]| {
            let x = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, 0.5, 7), values);
            call_simple::<u8>(&MEAN, &[x, i32s(&[1], &[0]), int(0)]).unwrap()
        };
        assert_eq!(q(&[2, 2], &[255, 1, 254, 2]), (vec![2], vec![255, 2]));
        assert_eq!(q(&[0, 1], &[]), (vec![1], vec![7]));
    }
}
