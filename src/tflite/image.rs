//! Pools, resizing, and moving pixels between batch, space and depth.

use super::call::{dims, options, Call, Domain, Mapped};
use super::error::Refusal;
use super::schema::Options;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;

pub fn pool(call: &mut Call, ty: OperationType) -> Mapped {
    let (padding, sizes, activation) = options!(call, Pool2D(o) =>
        (o.padding, [o.stride_w, o.stride_h, o.filter_w, o.filter_h], o.activation));
    let mut operands = vec![call.padding(padding)?];
    operands.extend(sizes.map(|size| call.builder().int(size)));
    operands.push(call.activation(activation)?);
    call.emit_in(Domain::Own, ty, 1, &operands)
}

/// Both resizes.
pub fn resize(call: &mut Call, ty: OperationType) -> Mapped {
    let (align_corners, half_pixel_centers) = options!(call,
        ResizeBilinear(o) => (o.align_corners, o.half_pixel_centers),
        ResizeNearest(o) => (o.align_corners, o.half_pixel_centers));
    let [height, width] = call.const_ints(1)?[..] else {
        return Err("its size has not two numbers".into());
    };
    // That the output is as large is looked at with the operation.
    let operands = [
        call.builder().int(width),
        call.builder().int(height),
        call.builder().boolean(false), // NHWC
        call.builder().boolean(align_corners),
        call.builder().boolean(half_pixel_centers),
    ];
    call.emit_in(Domain::Own, ty, 1, &operands)
}

/// SPACE_TO_DEPTH and DEPTH_TO_SPACE.
pub fn blocks(call: &mut Call, ty: OperationType) -> Mapped {
    let size = options!(call, SpaceToDepth | DepthToSpace(o) => o.block_size);
    let size = call.builder().int(size);
    call.emit_in(Domain::Own, ty, 1, &[size])
}

pub fn space_to_batch(call: &mut Call) -> Mapped {
    let (data, blocks) = pixels(call)?;
    let paddings = match dims(call.tensor(2)?)?[..] {
        [1, 2] => {
            let amounts = around_pixels(call.const_ints(2)?);
            call.builder().ints(&[2, 2], &amounts)
        }
        _ => call.ints(2)?,
    };
    let size = wide(dims(call.output_tensor(0)?)?);
    call.emit_reshaped(OperationType::SPACE_TO_BATCH_ND, &[data, blocks, paddings], &size)
}

/// NNAPI does not crop: what is to be cropped is sliced off.
pub fn batch_to_space(call: &mut Call) -> Mapped {
    let (data, blocks) = pixels(call)?;
    let crops = around_pixels(call.const_ints(2)?);
    let size = wide(dims(call.output_tensor(0)?)?);
    if crops.iter().all(|&crop| crop == 0) {
        return call.emit_reshaped(OperationType::BATCH_TO_SPACE_ND, &[data, blocks], &size);
    }
    let ([top, bottom, left, right], [batch, height, width, depth]) = (&crops[..], &size[..]) else {
        return Err(format!("crops {crops:?} for {size:?}").into());
    };
    let grown = |size: u32, before: i32, after: i32| {
        let before = u32::try_from(before).map_err(|_| "a crop is negative")?;
        let after = u32::try_from(after).map_err(|_| "a crop is negative")?;
        size.checked_add(before).and_then(|n| n.checked_add(after)).ok_or("the crops are too large")
    };
    let whole = [*batch, grown(*height, *top, *bottom)?, grown(*width, *left, *right)?, *depth];
    let uncropped = call.temporary_like(data, &whole);
    call.emit(OperationType::BATCH_TO_SPACE_ND, &[data, blocks], &[uncropped]);
    let counts: Vec<i32> = size.iter().map(|&d| d as i32).collect();
    let begin = call.builder().ints(&[4], &[0, *top, *left, 0]);
    let counts = call.builder().ints(&[4], &counts);
    call.emit_reshaped(OperationType::SLICE, &[uncropped, begin, counts], &size)
}

/// NNAPI's images have two dimensions of pixels: a row of them is an image one pixel wide.
fn wide(size: Vec<u32>) -> Vec<u32> {
    match size[..] {
        [batch, length, depth] => vec![batch, length, 1, depth],
        _ => size,
    }
}

/// Input 0 as images, and input 1 as the sizes of a block of their pixels.
fn pixels(call: &mut Call) -> Result<(OperandIndex, OperandIndex), Refusal> {
    let (data, size) = (call.input(0)?, dims(call.tensor(0)?)?);
    if size.len() != 3 {
        return Ok((data, call.ints(1)?));
    }
    let blocks = [call.const_int(1)?, 1];
    Ok((call.reshaped(data, &wide(size)), call.builder().ints(&[2], &blocks)))
}

/// Paddings or crops of both dimensions of pixels: those of a row have none across it.
fn around_pixels(mut amounts: Vec<i32>) -> Vec<i32> {
    if amounts.len() == 2 {
        amounts.extend([0, 0]);
    }
    amounts
}
