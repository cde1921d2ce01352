//! The arithmetic that recurrent cells share: dot products, matrix times vector, activations.
//!
//! Nothing here knows of operands; slices are private memory of lengths that the caller has checked.

use crate::ops::pace::Pace;
use crate::ops::{Args, OpError};
use crate::tensor::requant::Activation;

/// Sum of `a[i] * b[i]`, in an order that depends on the length only.
pub fn dot(a: &[f32], b: &[f32], pace: &mut Pace) -> Result<f32, OpError> {
    const LANES: usize = 8;
    let (mut sums, mut tail) = ([0.0; LANES], 0.0);
    // The last stretch is the only one with a tail.
    pace.in_stretches(a.len().min(b.len()), 1, |part| {
        let (a_blocks, b_blocks) = (a[part.clone()].chunks_exact(LANES), b[part].chunks_exact(LANES));
        tail = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
        for (a, b) in a_blocks.zip(b_blocks) {
            for lane in 0..LANES {
                sums[lane] += a[lane] * b[lane];
            }
        }
    })?;
    Ok(sums.iter().sum::<f32>() + tail)
}

/// Adds `matrix * x` to `out`; `matrix` has a row for each element of `out`.
pub fn add_product(matrix: &[f32], x: &[f32], out: &mut [f32], pace: &mut Pace) -> Result<(), OpError> {
    if x.is_empty() {
        return Ok(());
    }
    for (row, out) in matrix.chunks_exact(x.len()).zip(out) {
        *out += dot(row, x, pace)?;
    }
    Ok(())
}

/// Steps that a function such as [`sigmoid`] is worth.
pub const FUNCTION: usize = 8;

pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub fn sigmoid_all(values: &mut [f32], pace: &mut Pace) -> Result<(), OpError> {
    pace.each(values, FUNCTION, |x| *x = sigmoid(*x))
}

/// Activation of a recurrent cell: the fused activations, and two more codes of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellActivation {
    Fused(Activation),
    Tanh,
    Sigmoid,
}

impl CellActivation {
    /// The activation whose code input `i` holds.
    pub fn from_input(args: &Args, i: usize) -> Result<Self, OpError> {
        match args.i32(i)? {
            4 => Ok(CellActivation::Tanh),
            6 => Ok(CellActivation::Sigmoid),
            code => Activation::from_code(code).map(CellActivation::Fused).ok_or_else(|| {
                OpError::failed(format!("input {i}: {code} is not an activation of a cell (0 to 4, or 6)"))
            }),
        }
    }

    pub fn apply(self, x: f32) -> f32 {
        match self {
            CellActivation::Fused(Activation::None) => x,
            CellActivation::Fused(fused) => fused.apply(x),
            CellActivation::Tanh => x.tanh(),
            CellActivation::Sigmoid => sigmoid(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;

    #[test]
    fn dot_counts_every_element_once() {
        for n in [0usize, 1, 7, 8, 9, 16, 19] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let expected: usize = (0..n).map(|i| i * i).sum();
            assert_eq!(dot(&a, &a, &mut Pace::of(&NeverInterrupted)), Ok(expected as f32));
        }
    }

    #[test]
    fn product_adds_to_what_is_there() {
        let interrupt = crate::ops::testing::InterruptedAfter::checks(1);
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &interrupt };
        let (mut out, pace) = ([10.0, 20.0], &mut Pace::new(&args));
        add_product(&[1.0, 2.0, 3.0, 4.0], &[1.0, -1.0], &mut out, pace).unwrap();
        assert_eq!(out, [9.0, 19.0]);
        let (large, mut sums) = (vec![1.0; 1 << 18], [0.0; 4]);
        let stopped = add_product(&large, &large[..1 << 16], &mut sums, pace);
        assert_eq!((stopped, sums), (Err(OpError::Cancelled), [65536.0, 0.0, 0.0, 0.0]));
        add_product(&[], &[], &mut out, pace).unwrap();
        assert_eq!(out, [9.0, 19.0]);
    }
}
