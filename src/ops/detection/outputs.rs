//! Outputs whose number is known only once they are computed.

use crate::memory::AlignedBuf;
use crate::ops::evaluate::with_dims;
use crate::ops::{Computed, OpError, Out};
use crate::tensor::{Dims, TensorInfo};

/// An output of real numbers, in the type and quantisation that `info` declares.
pub fn reals(info: &TensorInfo, dims: Dims, values: &[f32]) -> Result<Computed, OpError> {
    output(info, dims, |out| out.store_reals(values))
}

/// An output of integers.
pub fn integers(info: &TensorInfo, dims: Dims, values: &[i32]) -> Result<Computed, OpError> {
    output(info, dims, |out| out.store_integers(values))
}

fn output(
    info: &TensorInfo,
    dims: Dims,
    store: impl FnOnce(&mut Out) -> Result<(), OpError>,
) -> Result<Computed, OpError> {
    let info = with_dims(info, &dims);
    let data = info.byte_size().and_then(AlignedBuf::zeroed);
    let mut data = data.ok_or_else(|| OpError::failed(format!("no memory for an output of {dims:?}")))?;
    store(&mut Out { info: &info, data: &mut data })?;
    Ok(Computed { dims, data })
}
