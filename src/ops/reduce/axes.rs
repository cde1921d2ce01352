//! Which axes a reduction folds, and the walk over its input.

use crate::ops::evaluate::check_rank;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::{axis_index, Args, OpError};
use crate::tensor::{element_count, strides, Dims};
use smallvec::smallvec;

/// The axes that input 1 of a reduction names, of its input 0: true where an axis is folded.
pub fn folded(args: &Args) -> Result<Vec<bool>, OpError> {
    let rank = args.get(0)?.dims().len();
    let axes = args.get(1)?;
    if axes.dims().len() != 1 {
        return Err(OpError::failed(format!(
            "input 1 has rank {}, expected a vector of axes",
            axes.dims().len()
        )));
    }
    check_rank(axes.dim(0) as usize)?;
    let mut folded = vec![false; rank];
    for &axis in axes.elements::<i32>()? {
        folded[axis_index(axis, rank)?] = true;
    }
    Ok(folded)
}

/// Dimensions of the output of a reduction; one that folds everything away gives a vector of 1.
pub fn output_dims(input: &[u32], folded: &[bool], keep: bool) -> Dims {
    let dims = input.iter().zip(folded).filter(|(_, &folded)| keep || !folded);
    let dims: Dims = dims.map(|(&dim, &folded)| if folded { 1 } else { dim }).collect();
    if dims.is_empty() {
        smallvec![1]
    } else {
        dims
    }
}

/// Elements of a row folded in one go.
const STRETCH: usize = 1 << 14;

/// Folds `input` of dimensions `dims` with `f`, each element of the result starting from `start`.
pub fn fold<T: Copy, A: Copy>(
    args: &Args,
    input: &[T],
    dims: &[u32],
    folded: &[bool],
    start: A,
    f: impl Fn(A, T) -> A,
) -> Result<Scratch<A>, OpError> {
    let kept = output_dims(dims, folded, true);
    let count = element_count(&kept).ok_or_else(|| OpError::failed("tensor too large"))?;
    let mut result = filled(args.interrupt, start, count)?;
    let (Some((&row, outer)), false) = (dims.split_last(), input.is_empty()) else { return Ok(result) };
    let steps: Vec<usize> =
        strides(&kept).iter().zip(folded).map(|(&s, &folded)| if folded { 0 } else { s }).collect();
    let (row, step) = (row as usize, steps[outer.len()]);
    let mut pace = Pace::new(args);
    // An odometer over all dimensions but the last, and where in the result it points.
    let (mut position, mut at) = (vec![0u32; outer.len()], 0);
    for row in input.chunks_exact(row) {
        for (part, row) in row.chunks(STRETCH).enumerate() {
            pace.spend(row.len())?;
            let at = at + part * STRETCH * step;
            for (i, &x) in row.iter().enumerate() {
                let sum = &mut result[at + i * step];
                *sum = f(*sum, x);
            }
        }
        for i in (0..outer.len()).rev() {
            position[i] += 1;
            at += steps[i];
            if position[i] < outer[i] {
                break;
            }
            at -= steps[i] * outer[i] as usize;
            position[i] = 0;
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;

    #[test]
    fn folds_any_axes() {
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &NeverInterrupted };
        let input: Vec<i32> = (0..12).collect();
        let sums = |folded: [bool; 3]| fold(&args, &input, &[2, 3, 2], &folded, 0, |a, x| a + x).unwrap();
        assert_eq!(*sums([false, true, false]), [6, 9, 24, 27]);
        assert_eq!(*sums([true, false, true]), [14, 22, 30]);
        assert_eq!(*sums([true, true, true]), [66]);
        assert_eq!(*sums([false, false, false]), input);
    }

    #[test]
    fn output_dims_are_never_none() {
        assert_eq!(output_dims(&[2, 3], &[true, false], false)[..], [3]);
        assert_eq!(output_dims(&[2, 3], &[true, false], true)[..], [1, 3]);
        assert_eq!(output_dims(&[2, 3], &[true, true], false)[..], [1]);
    }
}
