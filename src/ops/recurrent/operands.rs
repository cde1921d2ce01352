//! Reading the operands of recurrent operations: dimensions checked against what they must be, values of just that many
//! elements.

use crate::ops::scratch::{Scratch, Values};
use crate::ops::{Args, OpError};
use bytemuck::AnyBitPattern;

/// Dimensions of input `i`, which must be of rank `N`.
pub fn dims<const N: usize>(args: &Args, i: usize) -> Result<[u32; N], OpError> {
    let dims = args.get(i)?.dims();
    dims.try_into().map_err(|_| OpError::failed(format!("input {i} has rank {}, expected {N}", dims.len())))
}

/// An error unless input `i` has the dimensions `expected`.
pub fn expect(args: &Args, i: usize, expected: &[u32]) -> Result<(), OpError> {
    let dims = args.get(i)?.dims();
    if dims == expected {
        return Ok(());
    }
    Err(OpError::failed(format!("input {i} has dimensions {dims:?}, expected {expected:?}")))
}

/// As [`expect`], where the input may be left out.
pub fn expect_if_present(args: &Args, i: usize, expected: &[u32]) -> Result<(), OpError> {
    match args.opt(i) {
        Some(_) => expect(args, i, expected),
        None => Ok(()),
    }
}

/// Whether the inputs `group`, which belong together, are present; an error if some are and some are not.
pub fn all_or_none(args: &Args, group: &[usize]) -> Result<bool, OpError> {
    let present = group.iter().filter(|&&i| args.opt(i).is_some()).count();
    if present != 0 && present != group.len() {
        return Err(OpError::failed(format!("inputs {group:?} must be given all or not at all")));
    }
    Ok(present != 0)
}

/// An error if one of `sizes` is 0: a cell without inputs or units computes nothing, however long its sequence is.
pub fn not_empty(sizes: &[u32]) -> Result<(), OpError> {
    if sizes.contains(&0) {
        return Err(OpError::failed("a cell must have an input size, units and outputs greater than 0"));
    }
    Ok(())
}

/// The values of float input `i`, as many as its dimensions say.
pub fn floats<'a>(args: &Args<'a>, i: usize) -> Result<Values<'a, f32>, OpError> {
    let values = args.get(i)?.floats()?;
    expect_count(args, i, values.len())?;
    Ok(values)
}

/// As [`floats`], where the input may be left out.
pub fn floats_if_present<'a>(args: &Args<'a>, i: usize) -> Result<Option<Values<'a, f32>>, OpError> {
    args.opt(i).map(|_| floats(args, i)).transpose()
}

/// The elements of input `i` as they lie in memory, as many as its dimensions say.
pub fn elements<'a, T: AnyBitPattern>(args: &Args<'a>, i: usize) -> Result<&'a [T], OpError> {
    let values: &[T] = args.get(i)?.elements()?;
    expect_count(args, i, values.len())?;
    Ok(values)
}

/// The elements of quantised input `i` less its zero point, as many as its dimensions say.
pub fn centred(args: &Args, i: usize) -> Result<Scratch<i32>, OpError> {
    let values = args.get(i)?.centred()?;
    expect_count(args, i, values.len())?;
    Ok(values)
}

fn expect_count(args: &Args, i: usize, count: usize) -> Result<(), OpError> {
    let arg = args.get(i)?;
    if count == arg.count()? {
        return Ok(());
    }
    Err(OpError::failed(format!("input {i} has {count} values for {:?}", arg.dims())))
}

/// The exponent of a scale that is a power of two up to rounding.
pub fn power_of_two(scale: f32) -> Option<i32> {
    let log2 = scale.log2();
    (log2.is_finite() && (log2 - log2.round()).abs() < 1e-3).then(|| log2.round() as i32)
}
