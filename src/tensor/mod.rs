//! What a tensor is: operand types, dimensions, quantisation, and typed access to private bytes.
//!
//! Nothing here knows of clients or operations, and nothing here may point into client memory: a slice is always over
//! memory that only this process writes.

mod dims;
pub mod fixed_point;
pub mod fixed_softmax;
mod operand_type;
pub mod requant;
pub mod rescale;

pub use dims::{byte_size, combine_dims, element_count, strides, Dims};
pub use operand_type::OperandType;

use std::sync::Arc;

/// Scales of a `TENSOR_QUANT8_SYMM_PER_CHANNEL` operand.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelQuant {
    /// Real value = q * scales[index along `dim`]; all greater than 0. Copies of a description share them: there may be very
    /// many.
    pub scales: Arc<[f32]>,
    /// The dimension that the scales run along.
    pub dim: u32,
}

/// What an allocator takes for itself of each block, about, with what it rounds up.
pub const ALLOCATION: usize = 24;

/// Everything about an operand but its value: type, dimensions and quantisation.
///
/// In a model, a 0 in `dims` is an unknown dimension and an empty `dims` on a tensor is an unknown rank. At execution
/// every dimension is known, and a 0 is a zero-sized one.
#[derive(Debug, PartialEq)]
pub struct TensorInfo {
    pub ty: OperandType,
    pub dims: Dims,
    /// Real value = (q - zero_point) * scale; 0 for types without a scale.
    pub scale: f32,
    pub zero_point: i32,
    pub channel_quant: Option<ChannelQuant>,
}

impl Clone for TensorInfo {
    /// What is derived copies dimensions one by one, and a compilation has dozens of copies of each operand's description.
    fn clone(&self) -> Self {
        let TensorInfo { ty, ref dims, scale, zero_point, ref channel_quant } = *self;
        TensorInfo {
            ty,
            dims: Dims::from_slice(dims),
            scale,
            zero_point,
            channel_quant: channel_quant.clone(),
        }
    }
}

impl TensorInfo {
    /// An operand without quantisation.
    pub fn new(ty: OperandType, dims: &[u32]) -> Self {
        TensorInfo { ty, dims: Dims::from_slice(dims), scale: 0.0, zero_point: 0, channel_quant: None }
    }

    /// A quantised operand.
    pub fn quantised(ty: OperandType, dims: &[u32], scale: f32, zero_point: i32) -> Self {
        TensorInfo { scale, zero_point, ..Self::new(ty, dims) }
    }

    /// Whether rank and all dimensions are known, in a model's reading of `dims`.
    pub fn is_fully_specified(&self) -> bool {
        self.ty.is_scalar() || (!self.dims.is_empty() && !self.dims.contains(&0))
    }

    /// About the memory that this description takes beside its own size, in bytes.
    pub fn heap(&self) -> usize {
        let block = |count: usize| count.saturating_mul(size_of::<u32>()).saturating_add(ALLOCATION);
        let dims = if self.dims.spilled() { block(self.dims.len()) } else { 0 };
        let scales = self.channel_quant.as_ref().map_or(0, |quant| block(quant.scales.len()));
        dims.saturating_add(scales)
    }

    /// Size of the value in bytes, with every dimension taken as it stands; `None` on overflow of 32 bits.
    pub fn byte_size(&self) -> Option<usize> {
        byte_size(self.ty, &self.dims)
    }
}
