//! Operations that move elements and compute nothing: they work on raw elements of 1, 2 or 4 bytes.
//!
//! Almost all of them are a [`walk::Walk`], which holds the one copying loop; an operation only says how its axes lie in
//! the source and in the destination. CONCATENATION alone may change values, when its inputs are quantised differently.

mod batches;
mod blocks;
mod channel_shuffle;
mod concatenation;
mod fill;
mod gather;
mod image;
mod mirror_pad;
mod pack;
mod pad;
mod rank;
mod reshape;
mod reverse;
mod slice;
mod split;
mod steer;
mod tile;
mod transpose;
mod walk;

pub use batches::{BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND};
pub use blocks::{DEPTH_TO_SPACE, SPACE_TO_DEPTH};
pub use channel_shuffle::CHANNEL_SHUFFLE;
pub use concatenation::CONCATENATION;
pub use fill::FILL;
pub use gather::GATHER;
pub use mirror_pad::MIRROR_PAD;
pub use pack::PACK;
pub use pad::{PAD, PAD_V2};
pub use rank::RANK;
pub use reshape::{EXPAND_DIMS, RESHAPE, SQUEEZE};
pub use reverse::REVERSE;
pub use slice::{SLICE, STRIDED_SLICE};
pub use split::SPLIT;
pub use tile::TILE;
pub use transpose::TRANSPOSE;

pub(super) use gather::take_slices;
pub(super) use walk::around_axis;
