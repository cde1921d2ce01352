//! Convolutions, and the weights and biases that they share with FULLY_CONNECTED.

use super::call::{bytes, check_size, dims, info, is_quantised, options, Call, Mapped};
use super::error::Refusal;
use super::schema::Options;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use smallvec::smallvec;

/// Weights for `data`: quantised weights beside float data are dequantised.
pub fn weights(call: &mut Call, i: usize, data: OperandIndex) -> Result<OperandIndex, Refusal> {
    let float_data = call.builder().info(data).ty.is_float();
    if float_data && is_quantised(call.tensor(i)?) {
        call.state.rounds_inputs = true;
        return call.float_input(i);
    }
    call.input(i)
}

/// The bias in input `i`, or zeros where there is none.
pub fn bias(
    call: &mut Call,
    i: usize,
    data: OperandIndex,
    weights: OperandIndex,
    units: u32,
) -> Result<OperandIndex, Refusal> {
    if !call.has_input(i) {
        return zero_bias(call, data, weights, units);
    }
    let own = bias_info(call, data, weights, units);
    let tensor = call.tensor(i)?;
    match &tensor.data {
        Some(data) if info(tensor)?.ty == own.ty => {
            check_size(tensor, &own, data)?;
            Ok(call.builder().constant(own, data.clone()))
        }
        _ => call.input(i),
    }
}

pub fn zero_bias(
    call: &mut Call,
    data: OperandIndex,
    weights: OperandIndex,
    units: u32,
) -> Result<OperandIndex, Refusal> {
    let info = bias_info(call, data, weights, units);
    let size = info.byte_size().ok_or("the bias is too large")?;
    Ok(call.builder().uniform(info, 0, size))
}

/// A quantised bias has the scale of the products that it is added to; beside per-channel weights, it has the scale 0.
fn bias_info(call: &mut Call, data: OperandIndex, weights: OperandIndex, units: u32) -> TensorInfo {
    let (data, weights) = (call.builder().info(data).clone(), call.builder().info(weights));
    if data.ty.is_float() {
        return TensorInfo::new(data.ty, &[units]);
    }
    let scale = if weights.channel_quant.is_some() { 0.0 } else { data.scale * weights.scale };
    TensorInfo::quantised(OperandType::TENSOR_INT32, &[units], scale, 0)
}

/// One of a tensor's four dimensions.
fn dim(call: &Call, i: usize, axis: usize) -> Result<u32, Refusal> {
    let dims = dims(call.tensor(i)?)?;
    match dims.len() {
        4 => Ok(dims[axis]),
        rank => Err(format!("input {i} has rank {rank}, expected 4").into()),
    }
}

/// What CONV_2D and DEPTHWISE_CONV_2D are told.
struct Window {
    padding: i8,
    stride: (i32, i32),
    dilation: (i32, i32),
    activation: i8,
}

pub fn conv_2d(call: &mut Call) -> Mapped {
    let window = options!(call, Conv2D(o) => Window {
        padding: o.padding,
        stride: (o.stride_w, o.stride_h),
        dilation: (o.dilation_w, o.dilation_h),
        activation: o.activation,
    });
    let (depth, filter_depth) = (dim(call, 0, 3)?, dim(call, 1, 3)?);
    if depth == filter_depth {
        return windowed(call, OperationType::CONV_2D, &window, None);
    }
    // Fewer channels in the filter than in the input: the channels go in groups.
    if depth % filter_depth != 0 || window.dilation != (1, 1) {
        return Err(format!("a filter of {filter_depth} channels over {depth} cannot be mapped").into());
    }
    windowed(call, OperationType::GROUPED_CONV_2D, &window, Some(depth / filter_depth))
}

pub fn depthwise_conv_2d(call: &mut Call) -> Mapped {
    let window = options!(call, DepthwiseConv2D(o) => Window {
        padding: o.padding,
        stride: (o.stride_w, o.stride_h),
        dilation: (o.dilation_w, o.dilation_h),
        activation: o.activation,
    });
    // The options' multiplier is redundant and may be wrong; TensorFlow Lite itself goes by the shapes.
    let (depth, filter_depth) = (dim(call, 0, 3)?, dim(call, 1, 3)?);
    if filter_depth % depth != 0 {
        return Err(format!("a filter of {filter_depth} channels over {depth}").into());
    }
    windowed(call, OperationType::DEPTHWISE_CONV_2D, &window, Some(filter_depth / depth))
}

/// Emits one of the convolutions; `count` is the depth multiplier, or the number of groups.
fn windowed(call: &mut Call, ty: OperationType, window: &Window, count: Option<u32>) -> Mapped {
    let data = call.input(0)?;
    let filter = weights(call, 1, data)?;
    let units = dim(call, 1, if ty == OperationType::DEPTHWISE_CONV_2D { 3 } else { 0 })?;
    let bias = bias(call, 2, data, filter, units)?;
    let mut operands = vec![data, filter, bias, call.padding(window.padding)?];
    operands.push(call.builder().int(window.stride.0));
    operands.push(call.builder().int(window.stride.1));
    if let Some(count) = count {
        operands.push(call.builder().int(count as i32));
    }
    operands.push(call.activation(window.activation)?);
    let dilated = window.dilation != (1, 1);
    if dilated || ty == OperationType::GROUPED_CONV_2D {
        operands.push(call.builder().boolean(false)); // NHWC
    }
    if dilated {
        operands.push(call.builder().int(window.dilation.0));
        operands.push(call.builder().int(window.dilation.1));
    }
    let output = call.output(0)?;
    call.emit(ty, &operands, &[output]);
    Ok(())
}

/// Inputs: output shape, filter, data and perhaps a bias.
pub fn transpose_conv(call: &mut Call) -> Mapped {
    let (padding, strides, activation) = options!(call, TransposeConv(o) =>
        (o.padding, [o.stride_w, o.stride_h], o.activation));
    let data = call.input(2)?;
    let filter = weights(call, 1, data)?;
    let units = dim(call, 1, 0)?;
    let bias = bias(call, 3, data, filter, units)?;
    let mut operands = vec![data, filter, bias];
    match padding {
        VALID => {
            call.check_told(0, &call.const_ints(0)?)?;
            let [right, bottom] = [cut_off(call, 2, strides[0])?, cut_off(call, 1, strides[1])?];
            operands.extend([0, right, 0, bottom].map(|count| call.builder().int(count)));
        }
        _ => operands.extend([call.ints(0)?, call.padding(padding)?]),
    }
    operands.extend(strides.map(|stride| call.builder().int(stride)));
    operands.extend([call.activation(activation)?, call.builder().boolean(false)]); // NHWC
    let output = call.output(0)?;
    call.emit(OperationType::TRANSPOSE_CONV_2D, &operands, &[output]);
    Ok(())
}

/// The code of the padding scheme without any.
const VALID: i8 = 1;

/// How many pixels of a transposed convolution lie beyond its output's end along an axis. Where the output is longer, which
/// NNAPI knows no name for, they are fewer than none.
fn cut_off(call: &Call, axis: usize, stride: i32) -> Result<i32, Refusal> {
    let [filter, data] = [dim(call, 1, axis)?, dim(call, 2, axis)?].map(i64::from);
    let output = dims(call.output_tensor(0)?)?;
    let output = *output.get(axis).ok_or("its output has not four dimensions")?;
    let whole = (data - 1) * i64::from(stride) + filter;
    i32::try_from(whole - i64::from(output)).map_err(|_| "its output is too large".into())
}

/// A filter of per-channel weights [units, depth] as one of a 1x1 convolution, [units, 1, 1, depth].
pub fn weights_as_filter<'a>(call: &mut Call<'_, 'a>, i: usize) -> Result<OperandIndex, Refusal> {
    let tensor = call.tensor(i)?;
    let flat = info(tensor)?;
    let data = tensor.data.as_ref().ok_or("per-channel weights must be constant")?;
    let data = bytes(tensor, &flat, data)?;
    match flat.dims[..] {
        [units, depth] if flat.channel_quant.as_ref().is_some_and(|quant| quant.dim == 0) => {
            let filter = TensorInfo { dims: smallvec![units, 1, 1, depth], ..flat };
            Ok(call.builder().constant(filter, data))
        }
        _ => Err(format!("weights of {:?} are not quantised per unit", flat.dims).into()),
    }
}
