//! Operations that move elements and compute nothing: they work on raw elements of 1, 2 or 4 bytes.
//!
//! Almost all of them are a `walk::Walk`, which holds the one copying loop; an operation only says how its axes lie in
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
pub use walk::{Axis, Move, Moves};

use super::{Args, OperationType};
use crate::tensor::{element_count, TensorInfo};

/// Whether calls of this operation have [moves].
pub fn moves_only(ty: OperationType) -> bool {
    moves_of(ty).is_some()
}

/// The moves of a call whose outputs are as `args` has them; `None` where it is no such operation. PAD, PAD_V2 and
/// SPACE_TO_BATCH_ND move into outputs that are padding already, CONCATENATION what is [requantised](requantisation).
pub fn moves(ty: OperationType, args: &Args) -> Option<Moves> {
    let moves = moves_of(ty)?;
    // The dimensions of a tensor without elements may be of any size, and their products beyond all integers.
    if args.outputs.iter().all(|output| element_count(&output.dims) == Some(0)) {
        return Some(Ok(Vec::new()));
    }
    let outputs: Vec<&TensorInfo> = args.outputs.iter().collect();
    Some(moves(args, &outputs))
}

fn moves_of(ty: OperationType) -> Option<fn(&Args, &[&TensorInfo]) -> Moves> {
    Some(match ty {
        OperationType::BATCH_TO_SPACE_ND => batches::batch_to_space_moves,
        OperationType::SPACE_TO_BATCH_ND => batches::space_to_batch_moves,
        OperationType::DEPTH_TO_SPACE => blocks::depth_to_space_moves,
        OperationType::SPACE_TO_DEPTH => blocks::space_to_depth_moves,
        OperationType::CHANNEL_SHUFFLE => channel_shuffle::moves,
        OperationType::CONCATENATION => concatenation::moves,
        OperationType::PACK => pack::moves,
        OperationType::PAD | OperationType::PAD_V2 => pad::moves,
        OperationType::RESHAPE | OperationType::SQUEEZE | OperationType::EXPAND_DIMS => reshape::moves,
        OperationType::REVERSE => reverse::moves,
        OperationType::SLICE => slice::slice_moves,
        OperationType::STRIDED_SLICE => slice::strided_slice_moves,
        OperationType::SPLIT => split::moves,
        OperationType::TILE => tile::moves,
        OperationType::TRANSPOSE => transpose::moves,
        _ => return None,
    })
}

/// Whether CONCATENATION [requantises](requantisation) this input.
pub fn is_requantised(input: &TensorInfo, output: &TensorInfo) -> bool {
    concatenation::is_requantised(input, output)
}

/// What becomes of an input of CONCATENATION where the output has another quantisation.
pub fn requantisation(input: &TensorInfo, output: &TensorInfo) -> Option<[u8; 256]> {
    concatenation::requantisation(input, output)
}

pub(super) use gather::take_slices;
pub(super) use walk::around_axis;
