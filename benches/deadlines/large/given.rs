//! What each slot of an operation is given, by its name and type; what an operation wants otherwise stands in [`special`].

use nnhal::ops::signature::Slot;
use nnhal::ops::OperationType;
use nnhal::tensor::OperandType;
use OperandType::*;
use OperationType::*;

/// How large a call is.
#[derive(Clone, Copy)]
pub struct Size {
    /// Elements of tensors that may have any dimensions: a power of two.
    pub elements: u32,
    /// How many times as large the call is, in what its work grows with: most often its batch.
    pub times: u32,
}

/// The dimensions of tensors that may have any.
pub type Image = [u32; 4];

impl Size {
    /// One row of all elements, or many short rows.
    pub fn image(self, is_one_row: bool) -> Image {
        let elements = self.elements * self.times;
        match is_one_row {
            true => [1, 1, 1, elements],
            false => [elements >> 20, 256, 256, 16],
        }
    }
}

/// Forms of the operations that slide a window over an image, each of which may have a way of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Usual,
    ChannelsFirst,
    /// Windows of one pixel.
    Pixel,
    /// Windows as large as half of the image, so that each element takes long.
    LargeWindow,
}
use Form::*;

pub fn forms(ty: OperationType) -> &'static [Form] {
    match ty {
        CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D => &[Usual, ChannelsFirst, Pixel, LargeWindow],
        DEPTHWISE_CONV_2D | AVERAGE_POOL_2D | L2_POOL_2D | MAX_POOL_2D => {
            &[Usual, ChannelsFirst, LargeWindow]
        }
        RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR => &[Usual, ChannelsFirst],
        _ => &[Usual],
    }
}

/// What a slot is given.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Any values, by the request.
    Tensor(Vec<u32>),
    /// Any values, with the model.
    Weights(Vec<u32>),
    /// Corners of boxes, by the request.
    Boxes(Vec<u32>),
    /// These numbers, with the model.
    Numbers(Vec<u32>, Vec<i32>),
    Scalar(f32),
    Omitted,
}
use Given::*;

/// What `slot` is given, of type `of`.
pub fn given(
    ty: OperationType,
    slot: &Slot,
    of: OperandType,
    (form, is_one_row): (Form, bool),
    size: Size,
) -> Given {
    let image = size.image(is_one_row);
    let otherwise = formed(ty, slot.name, form, size.times);
    if let Some(given) = otherwise.or_else(|| special(ty, slot.name, of, image, size.times)) {
        return given;
    }
    match slot.name {
        _ if slot.optional => Omitted,
        "axis" if ty == REVERSE => Numbers(vec![1], vec![longest(image)]),
        "axis" if of == INT32 => Scalar(longest(image) as f32),
        "axes" => Numbers(vec![1], vec![longest(image)]),
        "padding scheme" | "stride width" | "stride height" | "dilation width" | "dilation height" => {
            Scalar(1.0)
        }
        "filter width" | "filter height" => Scalar(15.0),
        "groups" => Scalar(4.0),
        "block size" | "number of parts" => Scalar(2.0),
        "depth multiplier" | "beta" | "alpha" | "epsilon" | "samples" => Scalar(1.0),
        "permutation" => Numbers(vec![4], vec![3, 1, 2, 0]),
        "multiples" => Numbers(vec![4], vec![1, 1, 1, 2]),
        "block sizes" => Numbers(vec![2], vec![2, 2]),
        _ if of.is_scalar() => Scalar(0.0),
        _ => Tensor(image.to_vec()),
    }
}

/// The axis of an image that is long.
fn longest(image: Image) -> i32 {
    if image[3] > 16 {
        3
    } else {
        1
    }
}

/// What a form wants otherwise, `n` times as large.
fn formed(ty: OperationType, slot: &str, form: Form, n: u32) -> Option<Given> {
    let batch = n as i32;
    let is_pool = matches!(ty, AVERAGE_POOL_2D | L2_POOL_2D | MAX_POOL_2D);
    let tensor = |dims: &[u32]| Some(Tensor(dims.to_vec()));
    let weights = |dims: &[u32]| Some(Weights(dims.to_vec()));
    match (form, ty, slot) {
        (ChannelsFirst, _, "nchw") => Some(Scalar(1.0)),
        (ChannelsFirst, TRANSPOSE_CONV_2D, "output shape") => {
            Some(Numbers(vec![4], vec![batch, 256, 128, 128]))
        }
        (ChannelsFirst, DEPTHWISE_CONV_2D, "input") => tensor(&[4 * n, 64, 256, 256]),
        (ChannelsFirst, RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, "input") => tensor(&[4 * n, 32, 256, 256]),
        (ChannelsFirst, _, "input") if is_pool => tensor(&[4 * n, 32, 256, 256]),
        (Pixel, GROUPED_CONV_2D, "filter") => weights(&[256, 1, 1, 32]),
        (Pixel, _, "filter") => weights(&[256, 1, 1, 128]),
        (LargeWindow, CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "input") => tensor(&[n, 64, 64, 64]),
        (LargeWindow, TRANSPOSE_CONV_2D, "output shape") => Some(Numbers(vec![4], vec![batch, 64, 64, 8])),
        (LargeWindow, GROUPED_CONV_2D, "filter") => weights(&[8, 31, 31, 16]),
        (LargeWindow, CONV_2D | TRANSPOSE_CONV_2D, "filter") => weights(&[8, 31, 31, 64]),
        (LargeWindow, CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "bias") => weights(&[8]),
        (LargeWindow, DEPTHWISE_CONV_2D, "input") => tensor(&[n, 64, 64, 64]),
        (LargeWindow, DEPTHWISE_CONV_2D, "filter") => weights(&[1, 31, 31, 64]),
        (LargeWindow, _, "input") if is_pool => tensor(&[n, 128, 128, 32]),
        (LargeWindow, _, "filter width" | "filter height") => Some(Scalar(63.0)),
        _ => None,
    }
}

/// What an operation wants otherwise, `n` times as large.
fn special(ty: OperationType, slot: &str, of: OperandType, image: Image, n: u32) -> Option<Given> {
    let batch = n as i32;
    let is_one_row = image[3] > 16;
    let ints = image.map(|d| d as i32).to_vec();
    let tensor = |dims: &[u32]| Some(Tensor(dims.to_vec()));
    let weights = |dims: &[u32]| Some(Weights(dims.to_vec()));
    let boxes = |dims: &[u32]| Some(Boxes(dims.to_vec()));
    let one = |x: f32| Some(Scalar(x));
    let numbers = |n: u32, f: fn(i32) -> i32| Some(Numbers(vec![n], (0..n as i32).map(f).collect()));
    match (ty, slot) {
        (CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "input") => tensor(&[n, 128, 128, 128]),
        (CONV_2D, "filter") => weights(&[256, 3, 3, 128]),
        (GROUPED_CONV_2D, "filter") => weights(&[256, 3, 3, 32]),
        (TRANSPOSE_CONV_2D, "filter") => weights(&[256, 3, 3, 128]),
        (CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "bias") => weights(&[256]),
        (TRANSPOSE_CONV_2D, "output shape") => Some(Numbers(vec![4], vec![batch, 128, 128, 256])),
        (DEPTHWISE_CONV_2D, "input") => tensor(&[4 * n, 256, 256, 64]),
        (DEPTHWISE_CONV_2D, "filter") => weights(&[1, 7, 7, 64]),
        (DEPTHWISE_CONV_2D, "bias") => weights(&[64]),
        (FULLY_CONNECTED, "input") => tensor(&[8 * n, 8192]),
        (FULLY_CONNECTED, "weights") => weights(&[8192, 8192]),
        (FULLY_CONNECTED, "bias") => weights(&[8192]),
        (BATCH_MATMUL, "left" | "right") => tensor(&[2 * n, 1024, 1024]),
        (AVERAGE_POOL_2D | L2_POOL_2D | MAX_POOL_2D, "input") => tensor(&[4 * n, 256, 256, 32]),
        (LOCAL_RESPONSE_NORMALIZATION, "radius") => one(5.0),
        (LOCAL_RESPONSE_NORMALIZATION, "bias") => one(1.0),
        (RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, "input") => tensor(&[4 * n, 256, 256, 32]),
        (RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, name) if name.contains("factor") => {
            one(if of == INT32 { 512.0 } else { 2.0 })
        }
        (L2_NORMALIZATION | INSTANCE_NORMALIZATION, "gamma") => one(1.0),
        (PRELU, "alpha") => tensor(&[image[3]]),
        (ROI_ALIGN | ROI_POOLING, "features") => tensor(&[1, 256, 256, 64]),
        (ROI_ALIGN | ROI_POOLING, "roi") => boxes(&[2048 * n, 4]),
        (ROI_ALIGN | ROI_POOLING, "batches") => numbers(2048 * n, |_| 0),
        (ROI_ALIGN | ROI_POOLING, "output_height" | "output_width") => one(8.0),
        (ROI_ALIGN | ROI_POOLING, "height_stride" | "width_stride") => one(1.0),
        (ROI_ALIGN, "height_samples" | "width_samples") => one(4.0),
        (HEATMAP_MAX_KEYPOINT, "heatmaps") => tensor(&[512 * n, 64, 64, 16]),
        (HEATMAP_MAX_KEYPOINT, "boxes") => boxes(&[512 * n, 4]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "roi") => boxes(&[n << 17, 4]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "deltas") => tensor(&[n << 17, 64]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "batches") => numbers(n << 17, |_| 0),
        (GENERATE_PROPOSALS, "image_info") => boxes(&[n, 2]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "image_info") => boxes(&[1, 2]),
        (BOX_WITH_NMS_LIMIT, "scores") => tensor(&[8192 * n, 4]),
        (BOX_WITH_NMS_LIMIT, "roi") => boxes(&[8192 * n, 16]),
        (BOX_WITH_NMS_LIMIT, "batches") => numbers(8192 * n, |_| 0),
        (BOX_WITH_NMS_LIMIT, "max_detections") => one(-1.0),
        (DETECTION_POSTPROCESSING, "scores") => tensor(&[1, 16384 * n, 5]),
        (DETECTION_POSTPROCESSING, "deltas") => tensor(&[1, 16384 * n, 4]),
        (DETECTION_POSTPROCESSING, "anchors") => boxes(&[16384 * n, 4]),
        (DETECTION_POSTPROCESSING, "regular_nms") => one(1.0),
        (DETECTION_POSTPROCESSING, "max_detections_per_class" | "max_detections") => one(4096.0),
        (DETECTION_POSTPROCESSING, "max_classes_per_detection") => one(1.0),
        (DETECTION_POSTPROCESSING, "iou_threshold") => one(0.9),
        (DETECTION_POSTPROCESSING, name) if name.starts_with("scale_") => one(10.0),
        (GENERATE_PROPOSALS, "scores") => tensor(&[n, 128, 128, 16]),
        (GENERATE_PROPOSALS, "deltas") => tensor(&[n, 128, 128, 64]),
        (GENERATE_PROPOSALS, "anchors") => boxes(&[16, 4]),
        (GENERATE_PROPOSALS, "height_stride" | "width_stride") => one(1.0),
        (GENERATE_PROPOSALS, "pre_nms_max" | "post_nms_max") => one(8192.0),
        (GENERATE_PROPOSALS | BOX_WITH_NMS_LIMIT, "iou_threshold") => one(0.9),
        (EMBEDDING_LOOKUP, "lookups") => numbers(4096 * n, |i| i * 7 % 1024),
        (EMBEDDING_LOOKUP, "values") => tensor(&[1024, 8192]),
        (HASHTABLE_LOOKUP, "lookups") => numbers(n << 21, |i| i / 2 % (1 << 20)),
        (HASHTABLE_LOOKUP, "keys") => numbers(1 << 20, |i| i),
        (HASHTABLE_LOOKUP, "values") => tensor(&[1 << 20, 8]),
        (LSH_PROJECTION, "hash") => tensor(&[64, 8]),
        (LSH_PROJECTION, "input") => tensor(&[n << 16, 16]),
        (LSH_PROJECTION, "weight") => tensor(&[n << 16]),
        (LSH_PROJECTION, "type") => one(2.0),
        (RANDOM_MULTINOMIAL, "logits") => tensor(&if is_one_row { [1, n << 22] } else { [4096 * n, 1024] }),
        (RANDOM_MULTINOMIAL, "samples") => one(2048.0),
        (RANDOM_MULTINOMIAL, "seeds") => numbers(2, |i| i),
        (TOPK_V2, "k") => one(if is_one_row { 1e5 } else { 4.0 }),
        (SQUEEZE, "dimensions") => Some(Omitted),
        (TRANSPOSE, "permutation") => Some(Numbers(vec![4], vec![3, 1, 2, 0])),
        (RESHAPE, "shape") => Some(Numbers(vec![1], vec![-1])),
        (FILL, "dimensions") => Some(Numbers(vec![4], ints)),
        (GATHER, "indices") => numbers(if is_one_row { n << 20 } else { 256 }, |i| i.wrapping_mul(77) & 255),
        (SLICE | STRIDED_SLICE, "begin") => numbers(4, |_| 0),
        (SLICE, "size") | (STRIDED_SLICE, "end") => Some(Numbers(vec![4], ints)),
        (STRIDED_SLICE, "strides") => numbers(4, |_| 1),
        (SPACE_TO_BATCH_ND, "paddings") => Some(Numbers(vec![2, 2], vec![0; 4])),
        // Rows beside one as long would take nine times as much.
        (PAD | PAD_V2, "paddings") if !is_one_row => Some(Numbers(vec![4, 2], vec![0, 0, 1, 1, 1, 1, 0, 0])),
        (PAD | PAD_V2 | MIRROR_PAD, "paddings") => Some(Numbers(vec![4, 2], vec![0, 0, 0, 0, 0, 0, 1, 1])),
        (SPACE_TO_BATCH_ND | BATCH_TO_SPACE_ND | SPACE_TO_DEPTH | DEPTH_TO_SPACE, "input") => {
            tensor(&[image[0].max(4 * n), 256, 256, 16])
        }
        (CHANNEL_SHUFFLE, "axis") => one(3.0),
        _ if is_recurrent(ty) => recurrent(ty, slot, n),
        _ => None,
    }
}

fn is_recurrent(ty: OperationType) -> bool {
    ty == SVDF || ty.name().contains("RNN") || ty.name().contains("LSTM")
}

/// Cells of 2048 units; a sequence takes a few steps, and an operation of one step has a batch as large. There are `n` such
/// batches.
fn recurrent(ty: OperationType, slot: &str, n: u32) -> Option<Given> {
    const UNITS: u32 = 2048;
    let is_sequence = ty.name().contains("SEQUENCE");
    let batch = if is_sequence { 4 * n } else { 32 * n };
    // Both directions name their slots alike, and the states of each with "fw_" or "bw_".
    let state = slot.ends_with("state_in") || slot.starts_with("prev_");
    let weights = |dims: &[u32]| Some(Weights(dims.to_vec()));
    match slot {
        "input" if is_sequence => Some(Tensor(vec![batch, 8, UNITS])),
        "input" => Some(Tensor(vec![batch, UNITS])),
        "weights_feature" => weights(&[UNITS, UNITS]),
        "weights_time" => weights(&[UNITS, 64]),
        "state_in" => Some(Tensor(vec![batch, UNITS * 64])),
        "rank" => Some(Scalar(1.0)),
        _ if slot.starts_with("aux") || slot.contains("_aux") || slot.starts_with("projection_bias") => None,
        _ if slot.starts_with("projection") || slot.contains("layer_norm") || slot.starts_with("cell_to") => {
            None
        }
        _ if state => Some(Tensor(vec![batch, UNITS])),
        _ if slot.ends_with("weights") => weights(&[UNITS, UNITS]),
        _ if slot.ends_with("bias") && ty != SVDF => weights(&[UNITS]),
        "activation" | "merge_outputs" => Some(Scalar(1.0)),
        _ if slot.ends_with("_scale") => Some(Scalar(1.0 / 4096.0)),
        _ => None,
    }
}
