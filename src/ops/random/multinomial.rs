//! RANDOM_MULTINOMIAL: samples of classes, drawn by their logits.

use super::philox::Philox;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;
use std::hash::{BuildHasher, RandomState};

pub static RANDOM_MULTINOMIAL: Operation = Operation {
    ty: OperationType::RANDOM_MULTINOMIAL,
    doc: "random classes, each as probable as the exponential of its logit",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
        &[var("logits", 0), int("samples"), is("seeds", TENSOR_INT32)],
        &[is("output", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let &[batches, classes] = args.get(0)?.dims() else {
        return Err(OpError::failed("the logits must have rank 2: batches and classes"));
    };
    if classes == 0 {
        return Err(OpError::failed("there are no classes to draw from"));
    }
    if args.get(2)?.dims() != [2] {
        return Err(OpError::failed("input 2 must be a vector of two seeds"));
    }
    let samples = args.i32(1)?;
    let samples = u32::try_from(samples).map_err(|_| {
        OpError::failed(format!("the number of samples is {samples}, it must not be negative"))
    })?;
    Ok(vec![smallvec![batches, samples]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let logits = args.get(0)?;
    let classes = logits.dim(1) as usize;
    let samples = outs[0].dims()[1] as usize;
    let mut random = stream(args)?;
    let mut pace = Pace::new(args);
    if samples == 0 {
        return Ok(());
    }
    let logits = logits.floats()?;
    for (row, out) in logits.chunks_exact(classes).zip(outs[0].elements::<i32>()?.chunks_exact_mut(samples)) {
        let distribution = cumulative(row, &mut pace)?;
        let total = distribution[classes - 1];
        for class in out {
            pace.spend(20)?;
            let target = random.unit() * total;
            // Where no logit is finite there is no distribution, and the last class is as good as any.
            *class = distribution.partition_point(|&c| c <= target).min(classes - 1) as i32;
        }
    }
    Ok(())
}

/// The stream that the seeds ask for; two zeros ask for one that nobody can foresee.
fn stream(args: &Args) -> Result<Philox, OpError> {
    match *args.get(2)?.elements::<i32>()? {
        [0, 0] => {
            let entropy = || RandomState::new().hash_one(0) as i64;
            Ok(Philox::new(entropy(), entropy()))
        }
        [a, b] => Ok(Philox::new(a.into(), b.into())),
        _ => Err(OpError::failed("input 2 must be a vector of two seeds")),
    }
}

/// Sums of the exponentials of all logits up to each, relative to the greatest; what is not finite counts nothing.
fn cumulative(logits: &[f32], pace: &mut Pace) -> Result<Scratch<f64>, OpError> {
    let finite = |x: f32| x.is_finite().then_some(f64::from(x));
    let (mut max, mut total) = (f64::NEG_INFINITY, 0.0);
    pace.each(logits, 1, |&x| max = max.max(finite(x).unwrap_or(max)))?;
    let mut sums = reserved(logits.len())?;
    pace.each(logits, 8, |&x| {
        total += finite(x).map_or(0.0, |x| (x - max).exp());
        sums.push(total);
    })?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, i32s, int};
    use crate::tensor::TensorInfo;

    fn draw(dims: &[u32], logits: &[f32], samples: i32, seeds: [i32; 2]) -> Result<Vec<i32>, OpError> {
        let inputs = [f32s(dims, logits), int(samples), i32s(&[2], &seeds)].map(Some);
        let out = call(&RANDOM_MULTINOMIAL, &inputs, &[TensorInfo::new(TENSOR_INT32, &[])])?;
        Ok(bytemuck::cast_slice(&out[0].data).to_vec())
    }

    #[test]
    fn frequencies_follow_the_logits() {
        let logits = [1f32.ln(), 2f32.ln(), f32::NEG_INFINITY, 5f32.ln()];
        let drawn = draw(&[1, 4], &logits, 20_000, [37, 42]).unwrap();
        for (class, expected) in [0.125, 0.25, 0.0, 0.625].into_iter().enumerate() {
            let share = drawn.iter().filter(|&&c| c == class as i32).count() as f64 / 20_000.0;
            // Four standard deviations of the share of a class, at its widest.
            assert!((share - expected).abs() < 0.014, "class {class}: {share}, expected {expected}");
        }
        assert!(!drawn.contains(&2), "an impossible class was drawn");
    }

    #[test]
    fn seeds_decide_and_zeros_do_not() {
        let draw = |seeds| draw(&[2, 8], &[0.0; 16], 50, seeds).unwrap();
        assert_eq!(draw([1, 2]), draw([1, 2]));
        assert_ne!(draw([1, 2]), draw([2, 1]));
        assert_ne!(draw([1, 2])[..50], draw([1, 2])[50..], "batches must not repeat each other");
        assert_ne!(draw([0, 0]), draw([0, 0]));
    }

    #[test]
    fn refuses_negative_samples_and_no_classes() {
        assert!(draw(&[1, 2], &[0.0; 2], -1, [1, 2]).is_err());
        assert!(draw(&[1, 0], &[], 1, [1, 2]).is_err());
        assert_eq!(draw(&[1, 2], &[f32::NAN; 2], 1, [1, 2]), Ok(vec![1]));
        assert_eq!(draw(&[1, 2], &[0.0; 2], 0, [1, 2]), Ok(vec![]));
    }
}
