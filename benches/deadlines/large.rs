//! Large calls of every operation, made of its signature: each is a model of one operation.
//!
//! What a slot is given follows from its name and type; what an operation wants otherwise stands in [`special`]. Values are
//! of no interest but that they are valid and keep the work long.

use nnhal::backend::{Arguments, Memory};
use nnhal::memory::{AlignedBuf, ClientSlice, Mapping};
use nnhal::model::{Constant, Lifetime, Model, Operand, Operation, OperationKind, Subgraph};
use nnhal::ops::signature::{self, Count, Row, Signature, Slot, Ty};
use nnhal::ops::{evaluate, Arg, Args, NeverInterrupted, OperationType};
use nnhal::tensor::{ChannelQuant, OperandType, TensorInfo};
use std::sync::Arc;
use OperandType::*;
use OperationType::*;

/// Bytes for an output whose dimensions only the evaluation tells.
const UNKNOWN_OUTPUT: usize = 64 << 20;

/// The dimensions of tensors that may have any.
type Image = [u32; 4];

/// Forms of the operations that slide a window over an image, each of which may have a way of its own.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Usual,
    ChannelsFirst,
    /// Windows of one pixel.
    Pixel,
    /// Windows as large as half of the image, so that each element takes long.
    LargeWindow,
}
use Form::*;

fn forms(ty: OperationType) -> &'static [Form] {
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
enum Given {
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

/// A model of one call.
pub struct Large {
    /// The operation, and the types and dimensions of its tensors.
    pub name: String,
    pub model: Model,
    given: Vec<Given>,
    /// Bytes of each output.
    outputs: Vec<usize>,
}

impl Large {
    /// Calls of `ty` in every signature and row of types, each over many short rows and over one row of so many elements:
    /// a power of two. An error says what the driver would refuse: this generator is wrong then.
    pub fn all(ty: OperationType, elements: u32) -> Vec<Result<Large, String>> {
        let images = [[elements >> 20, 256, 256, 16], [1, 1, 1, elements]];
        let signatures = ty.operation().expect("an operation that the driver has").signatures;
        let mut calls: Vec<(Vec<Given>, &Signature, &Row)> = Vec::new();
        for (signature, row) in signatures.iter().flat_map(|s| s.rows.iter().map(move |row| (s, row))) {
            for (&form, image) in forms(ty).iter().flat_map(|form| images.map(|image| (form, image))) {
                let given = |slot: &Slot| {
                    formed(ty, slot.name, form).unwrap_or_else(|| given(ty, slot, type_of(slot, row), image))
                };
                let given: Vec<Given> = input_slots(signature, form).iter().map(given).collect();
                let is_known = |call: &(Vec<Given>, &Signature, &Row)| call.0 == given && call.2 .1 == row.1;
                if !calls.iter().any(is_known) {
                    calls.push((given, signature, row));
                }
            }
        }
        calls.into_iter().map(|(given, signature, row)| Large::of_call(ty, given, signature, row)).collect()
    }

    fn of_call(
        ty: OperationType,
        given: Vec<Given>,
        signature: &Signature,
        row: &Row,
    ) -> Result<Large, String> {
        let mut operands: Vec<Operand> = Vec::new();
        for (slot, given) in slots(signature.inputs, signature.input_count, given.len()).iter().zip(&given) {
            let operand = operand(ty, slot.name, type_of(slot, row), given, &operands);
            operands.push(operand);
        }
        let tensors = operands.iter().map(|o| &o.info).filter(|info| info.ty.is_tensor());
        let tensors: Vec<_> = tensors.map(|info| format!("{} {:?}", info.ty.name(), info.dims)).collect();
        let name = format!("{ty}: {}", tensors.join(", "));
        let output = |slot: &Slot| output_info(ty, slot.name, type_of(slot, row), &operands[0].info);
        let infos: Vec<TensorInfo> = output_slots(signature).iter().map(output).collect();
        let (kind, outputs) = checked(ty, &operands, &infos).map_err(|why| format!("{name}: {why}"))?;
        let inputs = operands.len();
        let output = |info| Operand { info, lifetime: Lifetime::Output, extension: None };
        operands.extend(infos.into_iter().map(output));
        let is_input = |&i: &usize| matches!(operands[i].lifetime, Lifetime::Input);
        let main = Subgraph {
            operations: vec![Operation {
                kind,
                inputs: (0..inputs).collect(),
                outputs: (inputs..operands.len()).collect(),
            }],
            inputs: (0..inputs).filter(is_input).collect(),
            outputs: (inputs..operands.len()).collect(),
            operands,
        };
        Ok(Large { name, model: Model { main, referenced: vec![], relaxed: false }, given, outputs })
    }

    /// Memory for an execution.
    pub fn arguments(&self) -> Arguments {
        let main = &self.model.main;
        let input = |&i: &usize| {
            let info = &main.operands[i].info;
            let mapping = memory(info.byte_size().expect("a size"));
            let part = pattern(info, matches!(self.given[i], Boxes(_)));
            for start in (0..mapping.len()).step_by(part.len()) {
                let len = part.len().min(mapping.len() - start);
                let slice = ClientSlice::new(mapping.clone(), start, len).expect("a part");
                slice.write(&part[..len]).expect("written");
            }
            Some((Memory::Mapped(mapping), info.dims.clone()))
        };
        let output = |&size: &usize| Some((Memory::Mapped(memory(size)), Default::default()));
        let inputs = main.inputs.iter().map(input).collect();
        Arguments::in_own_memories(inputs, self.outputs.iter().map(output).collect())
    }
}

fn memory(len: usize) -> Arc<Mapping> {
    Arc::new(Mapping::anonymous(len).expect("memory"))
}

fn type_of(slot: &Slot, row: &Row) -> OperandType {
    match slot.ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => types[types.len() - 1],
    }
}

/// The fewest that there may be, but all where the form wants one of the last.
fn input_slots(signature: &Signature, form: Form) -> Vec<Slot> {
    let most = if form == ChannelsFirst { usize::MAX } else { 0 };
    slots(signature.inputs, signature.input_count, most)
}

fn output_slots(signature: &Signature) -> Vec<Slot> {
    slots(signature.outputs, signature.output_count, 0)
}

/// At least so many if there may be, otherwise the fewest or all; two where there may be any number.
fn slots(slots: &[Slot], count: Count, least: usize) -> Vec<Slot> {
    let mut slots = slots.to_vec();
    match count {
        Count::All => {}
        Count::OneOf(counts) => {
            let enough = counts.iter().find(|&&count| count >= least);
            slots.truncate(*enough.or(counts.last()).expect("a count"));
        }
        Count::Repeat(at) => slots.insert(at, slots[at]),
    }
    slots
}

/// What `slot` is given, of type `of`.
fn given(ty: OperationType, slot: &Slot, of: OperandType, image: Image) -> Given {
    if let Some(given) = special(ty, slot.name, of, image) {
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

/// What a form wants otherwise.
fn formed(ty: OperationType, slot: &str, form: Form) -> Option<Given> {
    let is_pool = matches!(ty, AVERAGE_POOL_2D | L2_POOL_2D | MAX_POOL_2D);
    let tensor = |dims: &[u32]| Some(Tensor(dims.to_vec()));
    let weights = |dims: &[u32]| Some(Weights(dims.to_vec()));
    match (form, ty, slot) {
        (ChannelsFirst, _, "nchw") => Some(Scalar(1.0)),
        (ChannelsFirst, TRANSPOSE_CONV_2D, "output shape") => Some(Numbers(vec![4], vec![1, 256, 128, 128])),
        (ChannelsFirst, DEPTHWISE_CONV_2D, "input") => tensor(&[4, 64, 256, 256]),
        (ChannelsFirst, RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, "input") => tensor(&[4, 32, 256, 256]),
        (ChannelsFirst, _, "input") if is_pool => tensor(&[4, 32, 256, 256]),
        (Pixel, GROUPED_CONV_2D, "filter") => weights(&[256, 1, 1, 32]),
        (Pixel, _, "filter") => weights(&[256, 1, 1, 128]),
        (LargeWindow, CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "input") => tensor(&[1, 64, 64, 64]),
        (LargeWindow, TRANSPOSE_CONV_2D, "output shape") => Some(Numbers(vec![4], vec![1, 64, 64, 8])),
        (LargeWindow, GROUPED_CONV_2D, "filter") => weights(&[8, 31, 31, 16]),
        (LargeWindow, CONV_2D | TRANSPOSE_CONV_2D, "filter") => weights(&[8, 31, 31, 64]),
        (LargeWindow, CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "bias") => weights(&[8]),
        (LargeWindow, DEPTHWISE_CONV_2D, "input") => tensor(&[1, 64, 64, 64]),
        (LargeWindow, DEPTHWISE_CONV_2D, "filter") => weights(&[1, 31, 31, 64]),
        (LargeWindow, _, "input") if is_pool => tensor(&[1, 128, 128, 32]),
        (LargeWindow, _, "filter width" | "filter height") => Some(Scalar(63.0)),
        _ => None,
    }
}

/// What an operation wants otherwise.
fn special(ty: OperationType, slot: &str, of: OperandType, image: Image) -> Option<Given> {
    let is_one_row = image[3] > 16;
    let ints = image.map(|d| d as i32).to_vec();
    let tensor = |dims: &[u32]| Some(Tensor(dims.to_vec()));
    let weights = |dims: &[u32]| Some(Weights(dims.to_vec()));
    let boxes = |dims: &[u32]| Some(Boxes(dims.to_vec()));
    let one = |x: f32| Some(Scalar(x));
    let numbers = |n: u32, f: fn(i32) -> i32| Some(Numbers(vec![n], (0..n as i32).map(f).collect()));
    match (ty, slot) {
        (CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "input") => tensor(&[1, 128, 128, 128]),
        (CONV_2D, "filter") => weights(&[256, 3, 3, 128]),
        (GROUPED_CONV_2D, "filter") => weights(&[256, 3, 3, 32]),
        (TRANSPOSE_CONV_2D, "filter") => weights(&[256, 3, 3, 128]),
        (CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D, "bias") => weights(&[256]),
        (TRANSPOSE_CONV_2D, "output shape") => Some(Numbers(vec![4], vec![1, 128, 128, 256])),
        (DEPTHWISE_CONV_2D, "input") => tensor(&[4, 256, 256, 64]),
        (DEPTHWISE_CONV_2D, "filter") => weights(&[1, 7, 7, 64]),
        (DEPTHWISE_CONV_2D, "bias") => weights(&[64]),
        (FULLY_CONNECTED, "input") => tensor(&[8, 8192]),
        (FULLY_CONNECTED, "weights") => weights(&[8192, 8192]),
        (FULLY_CONNECTED, "bias") => weights(&[8192]),
        (BATCH_MATMUL, "left" | "right") => tensor(&[2, 1024, 1024]),
        (AVERAGE_POOL_2D | L2_POOL_2D | MAX_POOL_2D, "input") => tensor(&[4, 256, 256, 32]),
        (LOCAL_RESPONSE_NORMALIZATION, "radius") => one(5.0),
        (LOCAL_RESPONSE_NORMALIZATION, "bias") => one(1.0),
        (RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, "input") => tensor(&[4, 256, 256, 32]),
        (RESIZE_BILINEAR | RESIZE_NEAREST_NEIGHBOR, name) if name.contains("factor") => {
            one(if of == INT32 { 512.0 } else { 2.0 })
        }
        (L2_NORMALIZATION | INSTANCE_NORMALIZATION, "gamma") => one(1.0),
        (PRELU, "alpha") => tensor(&[image[3]]),
        (ROI_ALIGN | ROI_POOLING, "features") => tensor(&[1, 256, 256, 64]),
        (ROI_ALIGN | ROI_POOLING, "roi") => boxes(&[2048, 4]),
        (ROI_ALIGN | ROI_POOLING, "batches") => numbers(2048, |_| 0),
        (ROI_ALIGN | ROI_POOLING, "output_height" | "output_width") => one(8.0),
        (ROI_ALIGN | ROI_POOLING, "height_stride" | "width_stride") => one(1.0),
        (ROI_ALIGN, "height_samples" | "width_samples") => one(4.0),
        (HEATMAP_MAX_KEYPOINT, "heatmaps") => tensor(&[512, 64, 64, 16]),
        (HEATMAP_MAX_KEYPOINT, "boxes") => boxes(&[512, 4]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "roi") => boxes(&[1 << 17, 4]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "deltas") => tensor(&[1 << 17, 64]),
        (AXIS_ALIGNED_BBOX_TRANSFORM, "batches") => numbers(1 << 17, |_| 0),
        (AXIS_ALIGNED_BBOX_TRANSFORM | GENERATE_PROPOSALS, "image_info") => boxes(&[1, 2]),
        (BOX_WITH_NMS_LIMIT, "scores") => tensor(&[8192, 4]),
        (BOX_WITH_NMS_LIMIT, "roi") => boxes(&[8192, 16]),
        (BOX_WITH_NMS_LIMIT, "batches") => numbers(8192, |_| 0),
        (BOX_WITH_NMS_LIMIT, "max_detections") => one(-1.0),
        (DETECTION_POSTPROCESSING, "scores") => tensor(&[1, 16384, 5]),
        (DETECTION_POSTPROCESSING, "deltas") => tensor(&[1, 16384, 4]),
        (DETECTION_POSTPROCESSING, "anchors") => boxes(&[16384, 4]),
        (DETECTION_POSTPROCESSING, "regular_nms") => one(1.0),
        (DETECTION_POSTPROCESSING, "max_detections_per_class" | "max_detections") => one(4096.0),
        (DETECTION_POSTPROCESSING, "max_classes_per_detection") => one(1.0),
        (DETECTION_POSTPROCESSING, "iou_threshold") => one(0.9),
        (DETECTION_POSTPROCESSING, name) if name.starts_with("scale_") => one(10.0),
        (GENERATE_PROPOSALS, "scores") => tensor(&[1, 128, 128, 16]),
        (GENERATE_PROPOSALS, "deltas") => tensor(&[1, 128, 128, 64]),
        (GENERATE_PROPOSALS, "anchors") => boxes(&[16, 4]),
        (GENERATE_PROPOSALS, "height_stride" | "width_stride") => one(1.0),
        (GENERATE_PROPOSALS, "pre_nms_max" | "post_nms_max") => one(8192.0),
        (GENERATE_PROPOSALS | BOX_WITH_NMS_LIMIT, "iou_threshold") => one(0.9),
        (EMBEDDING_LOOKUP, "lookups") => numbers(4096, |i| i * 7 % 1024),
        (EMBEDDING_LOOKUP, "values") => tensor(&[1024, 8192]),
        (HASHTABLE_LOOKUP, "lookups") => numbers(1 << 21, |i| i / 2),
        (HASHTABLE_LOOKUP, "keys") => numbers(1 << 20, |i| i),
        (HASHTABLE_LOOKUP, "values") => tensor(&[1 << 20, 8]),
        (LSH_PROJECTION, "hash") => tensor(&[64, 8]),
        (LSH_PROJECTION, "input") => tensor(&[1 << 16, 16]),
        (LSH_PROJECTION, "weight") => tensor(&[1 << 16]),
        (LSH_PROJECTION, "type") => one(2.0),
        (RANDOM_MULTINOMIAL, "logits") => tensor(if is_one_row { &[1, 1 << 22] } else { &[4096, 1024] }),
        (RANDOM_MULTINOMIAL, "samples") => one(2048.0),
        (RANDOM_MULTINOMIAL, "seeds") => numbers(2, |i| i),
        (TOPK_V2, "k") => one(if is_one_row { 1e5 } else { 4.0 }),
        (SQUEEZE, "dimensions") => Some(Omitted),
        (TRANSPOSE, "permutation") => Some(Numbers(vec![4], vec![3, 1, 2, 0])),
        (RESHAPE, "shape") => Some(Numbers(vec![1], vec![-1])),
        (FILL, "dimensions") => Some(Numbers(vec![4], ints)),
        (GATHER, "indices") => numbers(if is_one_row { 1 << 20 } else { 256 }, |i| i.wrapping_mul(77) & 255),
        (SLICE | STRIDED_SLICE, "begin") => numbers(4, |_| 0),
        (SLICE, "size") | (STRIDED_SLICE, "end") => Some(Numbers(vec![4], ints)),
        (STRIDED_SLICE, "strides") => numbers(4, |_| 1),
        (SPACE_TO_BATCH_ND, "paddings") => Some(Numbers(vec![2, 2], vec![0; 4])),
        // Rows beside one as long would take nine times as much.
        (PAD | PAD_V2, "paddings") if !is_one_row => Some(Numbers(vec![4, 2], vec![0, 0, 1, 1, 1, 1, 0, 0])),
        (PAD | PAD_V2 | MIRROR_PAD, "paddings") => Some(Numbers(vec![4, 2], vec![0, 0, 0, 0, 0, 0, 1, 1])),
        (SPACE_TO_BATCH_ND | BATCH_TO_SPACE_ND | SPACE_TO_DEPTH | DEPTH_TO_SPACE, "input") => {
            tensor(&[image[0].max(4), 256, 256, 16])
        }
        (CHANNEL_SHUFFLE, "axis") => one(3.0),
        _ if is_recurrent(ty) => recurrent(ty, slot),
        _ => None,
    }
}

fn is_recurrent(ty: OperationType) -> bool {
    ty == SVDF || ty.name().contains("RNN") || ty.name().contains("LSTM")
}

/// Cells of 2048 units; a sequence takes a few steps, and an operation of one step has a batch as large.
fn recurrent(ty: OperationType, slot: &str) -> Option<Given> {
    const UNITS: u32 = 2048;
    let is_sequence = ty.name().contains("SEQUENCE");
    let batch = if is_sequence { 4 } else { 32 };
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

/// The operand for a slot; those before it are there.
fn operand(ty: OperationType, slot: &str, of: OperandType, given: &Given, before: &[Operand]) -> Operand {
    let dims = match given {
        Tensor(dims) | Weights(dims) | Boxes(dims) | Numbers(dims, _) => &dims[..],
        Scalar(_) | Omitted => &[],
    };
    let mut info = quantised(TensorInfo::new(of, dims));
    if let Boxes(_) = given {
        (info.scale, info.zero_point) = if info.scale == 0.0 { (0.0, 0) } else { (0.125, 0) };
    }
    if let (TENSOR_QUANT8_SYMM_PER_CHANNEL, [channels, .., last]) = (of, dims) {
        let dim = if ty == DEPTHWISE_CONV_2D { 3 } else { 0 };
        let scales = vec![1.0 / 128.0; if dim == 3 { *last } else { *channels } as usize];
        info = TensorInfo {
            channel_quant: Some(ChannelQuant { scales: scales.into(), dim }),
            scale: 0.0,
            ..info
        };
    }
    if slot.ends_with("bias") && of == TENSOR_INT32 {
        let filter_scale = match before[1].info.channel_quant {
            Some(_) => 0.0,
            None => before[1].info.scale,
        };
        info.scale = before[0].info.scale * filter_scale;
    }
    let lifetime = match given {
        Tensor(_) | Boxes(_) => Lifetime::Input,
        Omitted => Lifetime::NoValue,
        Weights(_) => constant(&whole(&info)),
        Scalar(x) => constant(&scalar(of, *x)),
        Numbers(_, numbers) => constant(bytemuck::cast_slice(numbers)),
    };
    Operand { info, lifetime, extension: None }
}

fn constant(bytes: &[u8]) -> Lifetime {
    Lifetime::Constant(Constant::Private(Arc::new(AlignedBuf::copy_of(bytes).expect("memory"))))
}

fn scalar(ty: OperandType, x: f32) -> Vec<u8> {
    match ty {
        BOOL => vec![u8::from(x != 0.0)],
        FLOAT16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        FLOAT32 => x.to_le_bytes().to_vec(),
        _ => (x as i32).to_le_bytes().to_vec(),
    }
}

/// `info` with a scale and zero point that are usual for its type.
fn quantised(info: TensorInfo) -> TensorInfo {
    let (scale, zero_point) = match info.ty {
        TENSOR_QUANT8_ASYMM => (1.0 / 128.0, 128),
        TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM => (1.0 / 128.0, 0),
        TENSOR_QUANT16_ASYMM => (0.125, 0),
        TENSOR_QUANT16_SYMM => (1.0 / 2048.0, 0),
        _ => (0.0, 0),
    };
    TensorInfo { scale, zero_point, ..info }
}

/// An output without dimensions.
fn output_info(ty: OperationType, slot: &str, of: OperandType, first: &TensorInfo) -> TensorInfo {
    let mut info = quantised(TensorInfo::new(of, &[]));
    if first.ty == of {
        (info.scale, info.zero_point) = (first.scale, first.zero_point);
    }
    if of.is_quant8_asymm() {
        let least = if of == TENSOR_QUANT8_ASYMM { 0 } else { -128 };
        (info.scale, info.zero_point) = match ty {
            LOGISTIC | SOFTMAX => (1.0 / 256.0, least),
            TANH | L2_NORMALIZATION => (1.0 / 128.0, least + 128),
            CONV_2D | DEPTHWISE_CONV_2D | GROUPED_CONV_2D | TRANSPOSE_CONV_2D | FULLY_CONNECTED => {
                (1.0, least)
            }
            _ => (info.scale, info.zero_point),
        };
    }
    if slot == "hits" {
        (info.scale, info.zero_point) = (1.0, 0);
    }
    info
}

/// Checks a call as the driver does; gives what it is, and the sizes of its outputs.
fn checked(
    ty: OperationType,
    operands: &[Operand],
    outputs: &[TensorInfo],
) -> Result<(OperationKind, Vec<usize>), String> {
    let operation = ty.operation().ok_or("unknown")?;
    let seen = operands.iter().map(|operand| match operand.lifetime {
        Lifetime::NoValue => signature::Operand::Omitted(None),
        _ => signature::Operand::Present(&operand.info),
    });
    let outs: Vec<_> = outputs.iter().map(signature::Operand::Present).collect();
    let found = signature::find(operation.signatures, &seen.collect::<Vec<_>>(), &outs)?;
    let signature_index = found.signature_index;
    let values = operands.iter().map(|operand| match &operand.lifetime {
        Lifetime::Constant(constant) => constant.bytes().map(Some),
        _ => Ok(None),
    });
    let values = values.collect::<Result<Vec<_>, _>>().map_err(|why| why.to_string())?;
    let inputs = operands.iter().zip(&values).map(|(operand, value)| match operand.lifetime {
        Lifetime::NoValue => None,
        _ => Some(Arg { info: &operand.info, data: value.as_ref().map(|bytes| &bytes[..]) }),
    });
    let inputs: Vec<_> = inputs.collect();
    let args = Args { signature_index, inputs: &inputs, outputs, interrupt: &NeverInterrupted };
    (operation.check)(&args).map_err(|why| why.to_string())?;
    let sizes = match evaluate::shapes(operation, &args) {
        Ok(dims) => outputs
            .iter()
            .zip(&dims)
            .map(|(info, dims)| {
                evaluate::with_dims(info, dims).byte_size().ok_or_else(|| "too large".to_string())
            })
            .collect::<Result<_, _>>()?,
        Err(nnhal::ops::OpError::Unresolved) => vec![UNKNOWN_OUTPUT; outputs.len()],
        Err(why) => return Err(why.to_string()),
    };
    Ok((OperationKind::Known { operation, signature_index }, sizes))
}

/// Values for all of a tensor.
fn whole(info: &TensorInfo) -> Vec<u8> {
    pattern(info, false).into_iter().cycle().take(info.byte_size().expect("a size")).collect()
}

/// Values that repeat: positive, of some spread; for boxes their corners.
fn pattern(info: &TensorInfo, boxes: bool) -> Vec<u8> {
    const PERIOD: u32 = 3 << 14;
    let value = |i: u32| {
        let spread = (i.wrapping_mul(2_654_435_761) >> 8) % 1000;
        match boxes {
            // Left, top, right, bottom: in eighths where they are integers.
            true => (spread % 100 + if i % 4 < 2 { 0 } else { 128 }) as f32,
            false => (spread + 1) as f32 / 1000.0,
        }
    };
    let values = (0..PERIOD).map(value);
    match info.ty {
        TENSOR_FLOAT32 => values.flat_map(f32::to_le_bytes).collect(),
        TENSOR_FLOAT16 => values.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
        TENSOR_INT32 => values.flat_map(|x| (1 + (x * 100.0) as i32).to_le_bytes()).collect(),
        TENSOR_BOOL8 => values.map(|x| u8::from(x > 0.5)).collect(),
        TENSOR_QUANT16_ASYMM | TENSOR_QUANT16_SYMM => {
            values.flat_map(|x| (if boxes { x * 8.0 } else { x * 1000.0 } as u16).to_le_bytes()).collect()
        }
        _ => values.map(|x| (x * 127.0) as u8).collect(),
    }
}
