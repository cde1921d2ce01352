//! INSTANCE_NORMALIZATION: each channel of each image brought to a given mean and deviation.

use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{boolean, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

pub static INSTANCE_NORMALIZATION: Operation = Operation {
    ty: OperationType::INSTANCE_NORMALIZATION,
    doc: "each channel of each image minus its mean, times gamma by its deviation, plus beta",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
        &[var("input", 0), var("gamma", 1), var("beta", 1), var("epsilon", 1), boolean("nchw")],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let dims = args.get(0)?.dims();
    if dims.len() != 4 {
        return Err(OpError::failed(format!("the input has rank {}, expected 4", dims.len())));
    }
    Ok(vec![dims.into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let input = args.get(0)?;
    let (gamma, beta, epsilon) = (args.f32(1)?, args.f32(2)?, args.f32(3)?);
    let x = input.floats()?;
    let mut y = filled(args.interrupt, 0.0, x.len())?;
    if x.is_empty() {
        return Ok(());
    }
    let dim = |i: usize| input.dim(i) as usize;
    // A plane is one channel of one image: `area` elements, `stride` apart.
    let (channels, area, stride, next_channel) = if args.bool(4)? {
        (dim(1), dim(2) * dim(3), 1, dim(2) * dim(3))
    } else {
        (dim(3), dim(1) * dim(2), dim(3), 1)
    };
    let mut pace = Pace::new(args);
    for image in 0..dim(0) {
        for channel in 0..channels {
            let start = image * channels * area + channel * next_channel;
            let plane = (0..area).map(|i| start + i * stride);
            let (mut sum, mut squares) = (0f64, 0f64);
            pace.each(plane.clone(), 1, |i| sum += f64::from(x[i]))?;
            let mean = sum / area as f64;
            pace.each(plane.clone(), 1, |i| squares += (f64::from(x[i]) - mean).powi(2))?;
            let variance = squares / area as f64;
            let scale = gamma / (variance as f32 + epsilon).sqrt();
            pace.each(plane, 1, |i| y[i] = (x[i] - mean as f32) * scale + beta)?;
        }
    }
    outs[0].store_floats(args.interrupt, &y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, float};

    fn normalise(dims: &[u32], x: &[f32], nchw: bool) -> Vec<f32> {
        let inputs = [f32s(dims, x), float(2.0), float(10.0), float(0.0), boolean(nchw)];
        call_simple::<f32>(&INSTANCE_NORMALIZATION, &inputs).unwrap().1
    }

    #[test]
    fn each_channel_has_its_own_statistics() {
        let (low, high) = (8.0, 12.0);
        assert_eq!(normalise(&[1, 1, 2, 2], &[1.0, 10.0, 3.0, 30.0], false), [low, low, high, high]);
        assert_eq!(normalise(&[1, 2, 1, 2], &[1.0, 3.0, 10.0, 30.0], true), [low, high, low, high]);
        // One channel: both layouts are the same.
        assert_eq!(normalise(&[1, 1, 2, 1], &[1.0, 3.0], false), [low, high]);
        assert!(normalise(&[1, 0, 2, 1], &[], false).is_empty());
    }

    #[test]
    fn refuses_other_ranks() {
        let inputs = [f32s(&[1], &[1.0]), float(1.0), float(0.0), float(0.0), boolean(false)];
        assert!(call_simple::<f32>(&INSTANCE_NORMALIZATION, &inputs).is_err());
    }
}
