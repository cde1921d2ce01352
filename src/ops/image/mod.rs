//! What operations over images share: layouts, and sliding windows.
//!
//! An image tensor has rank 4: batches, height, width and channels, in this order or with the channels after the
//! batches ("NCHW"). Plain evaluations compute on channels-last data only; the layout is turned on the way in and out.
//! Nothing here knows what an operation computes.

mod layout;
mod window;

pub use layout::{channels_last, named, ordered, ImageDims, Pixels};
pub use window::{slide, Padding, Patch, Strides, Window, EXPLICIT_STRIDES, IMPLICIT_STRIDES};

use super::{Arg, OpError};
use crate::ops::scratch::Values;

/// An error unless `arg` has rank `rank`.
pub fn expect_rank(arg: &Arg, name: &str, rank: usize) -> Result<(), OpError> {
    if arg.dims().len() == rank {
        return Ok(());
    }
    Err(OpError::failed(format!("{name} has dimensions {:?}, expected rank {rank}", arg.dims())))
}

/// `values` of `arg`, an error unless they are exactly as many as its dimensions say.
pub fn exactly<'a, T: Clone>(arg: &Arg, values: Values<'a, T>) -> Result<Values<'a, T>, OpError> {
    if values.len() == arg.count()? {
        return Ok(values);
    }
    Err(OpError::failed(format!("{} elements for dimensions {:?}", values.len(), arg.dims())))
}
