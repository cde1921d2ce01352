//! Broadcasting as numpy does it: dimensions aligned at the end, equal or 1.

use super::OpError;
use crate::tensor::{strides, Dims};

/// The dimensions that `a` and `b` broadcast to.
pub fn dims(a: &[u32], b: &[u32]) -> Result<Dims, OpError> {
    let rank = a.len().max(b.len());
    let at = |dims: &[u32], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(OpError::failed(format!("dimensions {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// Calls `f(index in a, index in b)` for every element of the broadcast of `a` and `b`, in row-major order; the first
/// error ends it.
pub fn for_each(
    a: &[u32],
    b: &[u32],
    mut f: impl FnMut(usize, usize) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let out = dims(a, b)?;
    let total = crate::tensor::element_count(&out).ok_or_else(|| OpError::failed("tensor too large"))?;
    let (steps_a, steps_b) = (steps(a, &out), steps(b, &out));
    let mut position = vec![0u32; out.len()];
    let (mut ia, mut ib) = (0usize, 0usize);
    for _ in 0..total {
        f(ia, ib)?;
        for i in (0..out.len()).rev() {
            position[i] += 1;
            ia += steps_a[i];
            ib += steps_b[i];
            if position[i] < out[i] {
                break;
            }
            ia -= steps_a[i] * out[i] as usize;
            ib -= steps_b[i] * out[i] as usize;
            position[i] = 0;
        }
    }
    Ok(())
}

/// Stride of `dims` along each dimension of `out`; 0 where it is broadcast.
fn steps(dims: &[u32], out: &[u32]) -> Vec<usize> {
    let own = strides(dims);
    let missing = out.len() - dims.len();
    (0..out.len()).map(|i| if i < missing || dims[i - missing] == 1 { 0 } else { own[i - missing] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn broadcasts_like_numpy() {
        assert_eq!(dims(&[2, 1, 3], &[4, 1]), Ok(smallvec![2, 4, 3]));
        assert_eq!(dims(&[0, 3], &[1]), Ok(smallvec![0, 3]));
        assert!(dims(&[2], &[3]).is_err());
        let mut pairs = Vec::new();
        let mut list = |a, b| {
            pairs.push((a, b));
            if pairs.len() == 4 {
                Err(OpError::Cancelled)
            } else {
                Ok(())
            }
        };
        assert_eq!(for_each(&[3, 1], &[2], &mut list), Err(OpError::Cancelled));
        assert_eq!(pairs, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        for_each(&[0, 3], &[1], |_, _| panic!("an empty tensor has no elements")).unwrap();
    }
}
