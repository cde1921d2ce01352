//! The options of a node, from the structure that the runtime parsed them into.
//!
//! The source of every fact is the runtime's `core/c/builtin_op_data.h`, as of LiteRT 2.3. Leading fields are read by their
//! documented order; what follows the last field that the importer needs is left out, so that fields which later runtimes
//! append do not matter.

use nnhal::tflite::schema::{self, Options};
use std::ffi::{c_int, c_void};

/// Reads the structure at `data` as the one of the operator `name`. `None` for operators that have no options, or none
/// that anybody reads.
///
/// # Safety
/// `data` is null, or points to the structure that the runtime made for a node of the builtin operator `name`.
pub unsafe fn read(name: &str, data: *const c_void) -> Option<Options> {
    if data.is_null() {
        return None;
    }
    let at = Fields(data.cast());
    // By the caller's contract the structure is the operator's own; each number below is the place of a field in it.
    Some(match name {
        "CONV_2D" => Options::Conv2D(Box::new(schema::Conv2DOptions {
            padding: at.padding(0),
            stride_w: at.int(4),
            stride_h: at.int(8),
            activation: at.activation(12),
            dilation_w: at.int(16),
            dilation_h: at.int(20),
        })),
        "DEPTHWISE_CONV_2D" => Options::DepthwiseConv2D(Box::new(schema::DepthwiseConv2DOptions {
            padding: at.padding(0),
            stride_w: at.int(4),
            stride_h: at.int(8),
            activation: at.activation(16),
            dilation_w: at.int(20),
            dilation_h: at.int(24),
            ..Default::default()
        })),
        "TRANSPOSE_CONV" => Options::TransposeConv(Box::new(schema::TransposeConvOptions {
            padding: at.padding(0),
            stride_w: at.int(4),
            stride_h: at.int(8),
            activation: at.activation(12),
        })),
        "AVERAGE_POOL_2D" | "MAX_POOL_2D" | "L2_POOL_2D" => {
            Options::Pool2D(Box::new(schema::Pool2DOptions {
                padding: at.padding(0),
                stride_w: at.int(4),
                stride_h: at.int(8),
                filter_w: at.int(12),
                filter_h: at.int(16),
                activation: at.activation(20),
            }))
        }
        "FULLY_CONNECTED" => Options::FullyConnected(Box::new(schema::FullyConnectedOptions {
            activation: at.activation(0),
            weights_format: at.small(4),
            keep_num_dims: at.flag(8),
        })),
        "SOFTMAX" => Options::Softmax(Box::new(schema::SoftmaxOptions { beta: at.float(0) })),
        "CONCATENATION" => Options::Concatenation(Box::new(schema::ConcatenationOptions {
            axis: at.int(0),
            activation: at.activation(4),
        })),
        "ADD" => Options::Add(at.only_activation()),
        "SUB" => Options::Sub(at.only_activation()),
        "MUL" => Options::Mul(at.only_activation()),
        "DIV" => Options::Div(at.only_activation()),
        "L2_NORMALIZATION" => Options::L2Norm(at.only_activation()),
        "LOCAL_RESPONSE_NORMALIZATION" => Options::LocalResponse(Box::new(schema::LocalResponseOptions {
            radius: at.int(0),
            bias: at.float(4),
            alpha: at.float(8),
            beta: at.float(12),
        })),
        "RESIZE_BILINEAR" => Options::ResizeBilinear(Box::new(schema::ResizeBilinearOptions {
            align_corners: at.flag(0),
            half_pixel_centers: at.flag(1),
            ..Default::default()
        })),
        "RESIZE_NEAREST_NEIGHBOR" => Options::ResizeNearest(Box::new(schema::ResizeNearestOptions {
            align_corners: at.flag(0),
            half_pixel_centers: at.flag(1),
        })),
        "SPACE_TO_DEPTH" => Options::SpaceToDepth(Box::new(schema::BlockOptions { block_size: at.int(0) })),
        "DEPTH_TO_SPACE" => Options::DepthToSpace(Box::new(schema::BlockOptions { block_size: at.int(0) })),
        "GATHER" => {
            Options::Gather(Box::new(schema::GatherOptions { axis: at.int(0), batch_dims: at.int(4) }))
        }
        "MEAN" | "SUM" | "REDUCE_PROD" | "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_ANY" | "REDUCE_ALL" => {
            Options::Reducer(Box::new(schema::ReducerOptions { keep_dims: at.flag(0) }))
        }
        "STRIDED_SLICE" => Options::StridedSlice(Box::new(schema::StridedSliceOptions {
            begin_mask: at.int(0),
            end_mask: at.int(4),
            ellipsis_mask: at.int(8),
            new_axis_mask: at.int(12),
            shrink_axis_mask: at.int(16),
            offset: at.flag(20),
        })),
        "PACK" => Options::Pack(Box::new(schema::PackOptions { axis: at.int(4), ..Default::default() })),
        "UNIDIRECTIONAL_SEQUENCE_LSTM" => Options::SequenceLstm(Box::new(schema::SequenceLstmOptions {
            activation: at.activation(0),
            cell_clip: at.float(4),
            proj_clip: at.float(8),
            time_major: at.flag(12),
            diagonal_recurrent: at.flag(14),
            ..Default::default()
        })),
        "LEAKY_RELU" => Options::LeakyRelu(Box::new(schema::LeakyReluOptions { alpha: at.float(0) })),
        "GELU" => Options::Gelu(Box::new(schema::GeluOptions { approximate: at.flag(0) })),
        "ONE_HOT" => Options::OneHot(Box::new(schema::OneHotOptions { axis: at.int(0) })),
        "UNPACK" => {
            Options::Unpack(Box::new(schema::UnpackOptions { axis: at.int(4), ..Default::default() }))
        }
        "MIRROR_PAD" => Options::MirrorPad(Box::new(schema::MirrorPadOptions {
            // The runtime counts from 1, with 0 for unknown; the file format from 0.
            mode: at.small(0).wrapping_sub(1),
        })),
        "BATCH_MATMUL" => Options::BatchMatMul(Box::new(schema::BatchMatMulOptions {
            adj_x: at.flag(0),
            adj_y: at.flag(1),
        })),
        _ => return None,
    })
}

/// A structure of the runtime's, as bytes.
struct Fields(*const u8);

impl Fields {
    fn int(&self, place: usize) -> c_int {
        // SAFETY: `read` names places of fields only, and its caller vouches for the structure.
        unsafe { self.0.add(place).cast::<c_int>().read_unaligned() }
    }

    fn float(&self, place: usize) -> f32 {
        f32::from_bits(self.int(place) as u32)
    }

    fn flag(&self, place: usize) -> bool {
        // SAFETY: as for `int`.
        unsafe { self.0.add(place).read() != 0 }
    }

    /// A number that the file format keeps in a byte; one that does not fit is none that it knows.
    fn small(&self, place: usize) -> i8 {
        i8::try_from(self.int(place)).unwrap_or(i8::MAX)
    }

    /// The runtime counts paddings from 1 (same, valid), with 0 for unknown; the file format from 0.
    fn padding(&self, place: usize) -> i8 {
        self.small(place).wrapping_sub(1)
    }

    /// The same numbers in both.
    fn activation(&self, place: usize) -> i8 {
        self.small(place)
    }

    fn only_activation(&self) -> Box<schema::ActivationOptions> {
        Box::new(schema::ActivationOptions { activation: self.activation(0) })
    }
}
