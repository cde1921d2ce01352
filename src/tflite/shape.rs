//! Dimensions, and how many of them NNAPI takes.

use super::error::Refusal;

/// Dimensions that NNAPI's operations take.
pub const MOST: usize = 4;

/// What the model has for a tensor of these dimensions.
pub fn held(dims: Vec<u32>) -> Result<Vec<u32>, Refusal> {
    if dims.len() <= MOST {
        return Ok(dims);
    }
    Ok(vec![product(&dims)?])
}

/// How many elements these dimensions have, as one dimension.
pub fn product(dims: &[u32]) -> Result<u32, Refusal> {
    let count = dims.iter().try_fold(1u32, |count, &dim| count.checked_mul(dim));
    count.filter(|&n| i32::try_from(n).is_ok()).ok_or_else(|| format!("{dims:?} is too large").into())
}

/// The dimensions before an axis, along it and after it.
pub fn around(dims: &[u32], axis: usize) -> Result<[u32; 3], Refusal> {
    Ok([product(&dims[..axis])?, dims[axis], product(&dims[axis + 1..])?])
}
