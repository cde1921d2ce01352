//! Reading what steers a movement: small INT32 tensors and checked arithmetic on dimensions. All of it is a client's.

use crate::ops::evaluate::check_rank;
use crate::ops::{Args, OpError};

/// The elements of INT32 tensor `i`, which must have dimensions `dims`.
pub fn ints<'a>(args: &Args<'a>, i: usize, dims: &[usize]) -> Result<&'a [i32], OpError> {
    let arg = args.get(i)?;
    if arg.dims().iter().map(|&d| d as usize).ne(dims.iter().copied()) {
        return Err(OpError::failed(format!("input {i} has dimensions {:?}, expected {dims:?}", arg.dims())));
    }
    let values = arg.elements::<i32>()?;
    if values.len() != dims.iter().product::<usize>() {
        return Err(OpError::failed(format!("input {i} has {} values for {dims:?}", values.len())));
    }
    Ok(values)
}

/// The elements of INT32 vector `i`: dimensions or axes, of which there are no more than a tensor may have.
pub fn vector<'a>(args: &Args<'a>, i: usize) -> Result<&'a [i32], OpError> {
    let len = args.get(i)?.dim(0) as usize;
    check_rank(len)?;
    ints(args, i, &[len])
}

/// The paddings in input `i`, before and after each of `rank` dimensions, none of them negative.
pub fn paddings(args: &Args, i: usize, rank: usize) -> Result<Vec<(u32, u32)>, OpError> {
    let amount = |amount: i32| {
        u32::try_from(amount).map_err(|_| OpError::failed(format!("input {i}: padding {amount} is negative")))
    };
    ints(args, i, &[rank, 2])?.chunks_exact(2).map(|pair| Ok((amount(pair[0])?, amount(pair[1])?))).collect()
}

/// A block size, at least 1.
pub fn block(size: i32) -> Result<u32, OpError> {
    u32::try_from(size)
        .ok()
        .filter(|&size| size > 0)
        .ok_or_else(|| OpError::failed(format!("block size {size} is not positive")))
}

/// `a * b` as a dimension.
pub fn times(a: u32, b: u32) -> Result<u32, OpError> {
    a.checked_mul(b).ok_or_else(|| OpError::failed(format!("dimension {a} * {b} is too large")))
}

/// `dim` with padding, as a dimension.
pub fn padded(dim: u32, (before, after): (u32, u32)) -> Result<u32, OpError> {
    before
        .checked_add(dim)
        .and_then(|n| n.checked_add(after))
        .ok_or_else(|| OpError::failed(format!("dimension {before} + {dim} + {after} is too large")))
}

/// `dim / by`, which must leave no rest. `by` is positive.
pub fn divided(dim: u32, by: u32, what: &str) -> Result<u32, OpError> {
    if by == 0 || !dim.is_multiple_of(by) {
        return Err(OpError::failed(format!("{what} {dim} is not a multiple of {by}")));
    }
    Ok(dim / by)
}
