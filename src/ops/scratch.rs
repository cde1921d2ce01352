//! Memory for work in progress. How much of it a call needs follows from what a client sent, so not to get it is an
//! error and nothing worse.

use super::OpError;

/// An empty vector with room for `len` values.
pub fn reserved<T>(len: usize) -> Result<Vec<T>, OpError> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| OpError::failed(format!("no memory for a scratch buffer of {len} elements")))?;
    Ok(values)
}

/// A vector of `len` copies of `value`.
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>, OpError> {
    let mut values = reserved(len)?;
    values.resize(len, value);
    Ok(values)
}

/// A vector of what `values` gives.
pub fn collected<T>(values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, OpError> {
    let mut all = reserved(values.len())?;
    all.extend(values);
    Ok(all)
}
