//! Operations that look for the largest or smallest elements along an axis.

mod arg;
mod key;
mod topk;

pub use arg::{ARGMAX, ARGMIN};
pub use key::float_key;
pub use topk::TOPK_V2;
