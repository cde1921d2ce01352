//! Fast kernels. Each replaces the plain evaluation of an operation where it can, and is tested against it.

mod attention;
mod batch_matmul;
mod conv;
mod depthwise;
mod dispatch;
mod eight_bit;
mod elementwise;
mod forms;
mod fully_connected;
mod gather;
mod gemm;
pub mod isa;
mod kernel;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod memory_tests;
mod merged;
mod movement;
#[cfg(target_arch = "aarch64")]
mod neon;
mod norm;
mod parts;
mod peaks;
mod picked;
mod pool;
mod recurrent;
mod reduce;
mod regions;
mod resize;
mod rows;
mod simd;
mod softmax;
mod softmax_bytes;
mod source;
#[cfg(test)]
mod tests;
mod then;
mod topk;
mod topk_many;
#[cfg(test)]
mod turns_tests;
#[cfg(test)]
mod twin_tests;
#[cfg(test)]
mod twins;
mod vector;
pub mod was_bytes;
mod winograd;
mod work;
#[cfg(test)]
mod work_tests;

pub use attention::Attention;
pub use elementwise::is_elementwise;
pub use kernel::{ByRows, Kernel, Tiled};
pub use merged::{is_of_lanes, merge, Input, MergedCall, LONGEST_ROW};
pub use peaks::peaks;
pub use rows::{Image, Maker, Rowwise};
pub use source::{Pack, Source};
pub use then::{Elementwise, Next, Then};
pub use work::Work;

use crate::ops::{Args, Operation, OperationType};
use crate::tensor::{element_count, OperandType, TensorInfo};
use forms::Kernels;
use isa::Isa;

/// A kernel for this call, if there is a faster one than the plain evaluation. All dimensions are known, those of the
/// outputs too; constants have data, but for those whose packed form the source has.
///
/// Everything that steers the kernel follows from `args`; the source gives nothing but values.
pub fn select(operation: &Operation, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    select_for(Isa::detect(), operation, args, source)
}

/// The same for an instruction set.
fn select_for(isa: Isa, operation: &Operation, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    // Nothing is to be made. Dimensions beside one of nothing may be of any size, and their products beyond all integers.
    if args.outputs.iter().all(|output| element_count(&output.dims) == Some(0)) {
        return None;
    }
    let kernels = Kernels { isa, select: select_for };
    if forms::is_of_halves(operation.ty, args) {
        return forms::of_halves(kernels, operation, args, source);
    }
    let image = |kernel: Option<Box<dyn Kernel>>| forms::channels_last(kernels, operation, args, kernel?);
    let lanes = |kernel: Option<Box<dyn Kernel>>| forms::lanes_last(kernels, operation, args, kernel?);
    match operation.ty {
        OperationType::BATCH_MATMUL => batch_matmul::select(isa, args),
        OperationType::CONV_2D => image(conv::select(isa, args, source)),
        OperationType::DEPTHWISE_CONV_2D => image(depthwise::select(isa, args, source)),
        OperationType::FULLY_CONNECTED => fully_connected::select(isa, args, source),
        OperationType::GROUPED_CONV_2D => image(
            depthwise::select_grouped(isa, args, source).or_else(|| parts::select_grouped(isa, args, source)),
        ),
        OperationType::TRANSPOSE_CONV_2D => image(parts::select_transposed(isa, args, source)),
        ty => elementwise::select(operation, args, source)
            .or_else(|| movement::select(operation, args, source))
            .or_else(|| gather::select(ty, args))
            .or_else(|| image(pool::select(ty, args)))
            .or_else(|| reduce::select(ty, args))
            .or_else(|| image(resize::select(ty, args, source)))
            .or_else(|| lanes(softmax::select(ty, args)))
            .or_else(|| lanes(norm::select(ty, args)))
            .or_else(|| topk::select(ty, args))
            .or_else(|| image(regions::select(ty, args)))
            .or_else(|| recurrent::select(isa, ty, args, source)),
    }
}

/// Bytes that a constant of so many takes once it is packed, about.
pub fn packed_bytes(info: &TensorInfo, bytes: usize) -> usize {
    // Half floats are packed as floats, and all are a little longer.
    let bytes = if info.ty == OperandType::TENSOR_FLOAT16 { bytes.saturating_mul(2) } else { bytes };
    let bytes = if info.ty.is_float() { winograd::floats::packed_bytes(&info.dims, bytes) } else { bytes };
    bytes.saturating_add(bytes / 8)
}

/// The type that 8-bit inputs of products are best of, if it matters.
pub fn preferred_bytes() -> Option<OperandType> {
    let ty = |signed| match signed {
        true => OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        false => OperandType::TENSOR_QUANT8_ASYMM,
    };
    gemm::prefers_signed(Isa::detect()).map(ty)
}

/// Counts the changes to which calls have kernels, to which of them go together, as memory is planned by that, and to their
/// results: what an earlier generation compiled is not to be mixed with this one.
const GENERATION: u32 = 28;

/// The instruction set that kernels are chosen for, and their generation.
pub fn instruction_set() -> String {
    format!("{}.{GENERATION}", Isa::detect().name())
}
