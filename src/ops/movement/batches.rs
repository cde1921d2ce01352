//! SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: blocks of pixels become batches, and back.

use super::image::Image;
use super::pad::pad;
use super::steer::{block, divided, ints, padded, paddings, times};
use super::walk::{make, Move, Moves, Walk};
use crate::memory::AlignedBuf;
use crate::ops::signature::{boolean, is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static BATCH_TO_SPACE_ND: Operation = Operation {
    ty: OperationType::BATCH_TO_SPACE_ND,
    doc: "moves batches into blocks of pixels",
    signatures: &[Signature::new(
        ROWS,
        &[var("input", 0), is("block sizes", TENSOR_INT32), boolean("NCHW")],
        &[var("output", 0)],
    )
    .input_counts(&[2, 3])],
    check: no_check,
    run: Run::Shaped { shapes: batch_to_space_shapes, eval: batch_to_space },
};

pub static SPACE_TO_BATCH_ND: Operation = Operation {
    ty: OperationType::SPACE_TO_BATCH_ND,
    doc: "pads images with zero and moves blocks of pixels into batches",
    signatures: &[Signature::new(
        ROWS,
        &[var("input", 0), is("block sizes", TENSOR_INT32), is("paddings", TENSOR_INT32), boolean("NCHW")],
        &[var("output", 0)],
    )
    .input_counts(&[3, 4])],
    check: no_check,
    run: Run::Shaped { shapes: space_to_batch_shapes, eval: space_to_batch },
};

static ROWS: &[Row] = &[
    Row(2, &[TENSOR_FLOAT32]),
    Row(3, &[TENSOR_FLOAT16]),
    Row(2, &[TENSOR_QUANT8_ASYMM]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
];

/// Height and width of a block.
fn blocks(args: &Args) -> Result<(u32, u32), OpError> {
    let sizes = ints(args, 1, &[2])?;
    Ok((block(sizes[0])?, block(sizes[1])?))
}

fn batch_to_space_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let nchw = args.bool_or(2, false)?;
    let input = Image::of(args.get(0)?.dims(), nchw)?;
    let (bh, bw) = blocks(args)?;
    let output = Image {
        n: divided(input.n, times(bh, bw)?, "batch")?,
        h: times(input.h, bh)?,
        w: times(input.w, bw)?,
        c: input.c,
    };
    Ok(vec![output.dims(nchw)])
}

/// The input of SPACE_TO_BATCH_ND once it is padded.
fn padded_image(args: &Args, nchw: bool) -> Result<Image<u32>, OpError> {
    let input = Image::of(args.get(0)?.dims(), nchw)?;
    let pads = paddings(args, 2, 2)?;
    Ok(Image { h: padded(input.h, pads[0])?, w: padded(input.w, pads[1])?, ..input })
}

fn space_to_batch_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let nchw = args.bool_or(3, false)?;
    let (bh, bw) = blocks(args)?;
    let padded = padded_image(args, nchw)?;
    let output = Image {
        n: times(padded.n, times(bh, bw)?)?,
        h: divided(padded.h, bh, "padded height")?,
        w: divided(padded.w, bw, "padded width")?,
        c: padded.c,
    };
    Ok(vec![output.dims(nchw)])
}

fn batch_to_space(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, batch_to_space_moves)
}

pub(super) fn batch_to_space_moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let nchw = args.bool_or(2, false)?;
    let (deep, wide) = (Image::of(args.get(0)?.dims(), nchw)?, Image::of(&outs[0].dims, nchw)?);
    Move::only(batches_to_pixels(deep, wide, blocks(args)?, nchw))
}

/// Pixels of a block that SPACE_TO_BATCH_ND is done in moves for: a client chooses how many it has.
const MOST_MOVES: u64 = 1024;

/// The moves of SPACE_TO_BATCH_ND into an output that is padding already: one for each pixel of a block, if they are not very many.
pub(super) fn space_to_batch_moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let nchw = args.bool_or(3, false)?;
    let (input, output) = (Image::of(args.get(0)?.dims(), nchw)?, Image::of(&outs[0].dims, nchw)?);
    let (pads, (bh, bw)) = (paddings(args, 2, 2)?, blocks(args)?);
    if u64::from(bh) * u64::from(bw) > MOST_MOVES {
        return Err(OpError::failed("blocks of too many pixels to be moved one by one"));
    }
    let (from, to) = (input.steps(nchw), output.steps(nchw));
    // First output along a dimension that has input, how many have, and the first one's input.
    let range = |dim: u32, outputs: u32, pad: u32, block: u32, at: u32| {
        let [dim, outputs, pad, block, at] = [dim, outputs, pad, block, at].map(i64::from);
        let first = (pad - at).max(0).unsigned_abs().div_ceil(block.unsigned_abs()) as i64;
        let end = (dim + pad - at).max(0).unsigned_abs().div_ceil(block.unsigned_abs()) as i64;
        (first, end.min(outputs) - first, first * block + at - pad)
    };
    let mut moves = Vec::new();
    for (i, j) in (0..bh).flat_map(|i| (0..bw).map(move |j| (i, j))) {
        let (y, rows, input_y) = range(input.h, output.h, pads[0].0, bh, i);
        let (x, columns, input_x) = range(input.w, output.w, pads[1].0, bw, j);
        let batch = (i64::from(i) * i64::from(bw) + i64::from(j)) * i64::from(input.n);
        let walk = Walk::new([
            (input.n.into(), from.n, to.n),
            (rows, from.h * i64::from(bh), to.h),
            (columns, from.w * i64::from(bw), to.w),
            (input.c.into(), from.c, to.c),
        ])
        .start(input_y * from.h + input_x * from.w, batch * to.n + y * to.h + x * to.w);
        moves.push(Move { input: 0, output: 0, walk });
    }
    Ok(moves)
}

fn space_to_batch(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (nchw, input, out) = (args.bool_or(3, false)?, args.get(0)?, &mut outs[0]);
    if out.data.is_empty() {
        return Ok(());
    }
    let wide = padded_image(args, nchw)?;
    let pads = paddings(args, 2, 2)?;
    let before = Image { n: 0, h: pads[0].0, w: pads[1].0, c: 0 }.dims(nchw);
    // Blocks only move elements, so the padded image is as large as the output.
    let size = out.data.len();
    let mut image = AlignedBuf::zeroed(size).ok_or(OpError::OutOfMemory(size))?;
    pad(args, &input, &before, &input.zero_point().to_le_bytes(), &wide.dims(nchw), &mut image)?;
    let deep = Image::of(out.dims(), nchw)?;
    let walk = batches_to_pixels(deep, wide, blocks(args)?, nchw).reversed();
    walk.run(args, out.info.ty, &image, out.data)
}

/// Batches are ordered by row in the block, column in the block, batch of the wide image.
fn batches_to_pixels(deep: Image<u32>, wide: Image<u32>, (bh, bw): (u32, u32), nchw: bool) -> Walk {
    let (from, to) = (deep.steps(nchw), wide.steps(nchw));
    let (bh, bw, batches) = (i64::from(bh), i64::from(bw), i64::from(wide.n));
    Walk::new([
        (batches, from.n, to.n),
        (deep.h.into(), from.h, to.h * bh),
        (bh, from.n * batches * bw, to.h),
        (deep.w.into(), from.w, to.w * bw),
        (bw, from.n * batches, to.w),
        (deep.c.into(), from.c, to.c),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, i32s, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn pads_with_the_zero_point_and_splits_pixels() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 1, 3, 1], 1.0, 9);
        let image = tensor(info, &[1u8, 2, 3]);
        let pads = i32s(&[2, 2], &[0, 1, 1, 0]);
        let out = call_simple::<u8>(&SPACE_TO_BATCH_ND, &[image, i32s(&[2], &[2, 2]), pads]);
        // Padded: [9 1 2 3] over [9 9 9 9].
        assert_eq!(out, Ok((vec![4, 1, 2, 1], vec![9, 2, 1, 3, 9, 9, 9, 9])));
    }

    #[test]
    fn batch_to_space_is_the_way_back() {
        let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
        for nchw in [false, true] {
            let dims = if nchw { [2, 2, 4, 3] } else { [2, 4, 3, 2] };
            let sizes = || i32s(&[2], &[2, 3]);
            let pads = i32s(&[2, 2], &[0; 4]);
            let inputs = [f32s(&dims, &values), sizes(), pads, boolean(nchw)];
            let (deep, moved) = call_simple::<f32>(&SPACE_TO_BATCH_ND, &inputs).unwrap();
            assert_eq!(deep, if nchw { [12, 2, 2, 1] } else { [12, 2, 1, 2] });
            let back = call_simple::<f32>(&BATCH_TO_SPACE_ND, &[f32s(&deep, &moved), sizes(), boolean(nchw)]);
            assert_eq!(back, Ok((dims.to_vec(), values.clone())));
        }
    }

    #[test]
    fn refuses_hostile_sizes() {
        let image = || f32s(&[4, 2, 2, 1], &[0.0; 16]);
        let huge = i32::MAX;
        for sizes in [[0, 1], [-2, -2], [3, 1], [huge, huge], [65536, 65536]] {
            let out = call_simple::<f32>(&BATCH_TO_SPACE_ND, &[image(), i32s(&[2], &sizes)]);
            assert!(out.is_err(), "{sizes:?}");
        }
        for pads in [[-1, 1, 0, 0], [1, 0, 0, 0], [huge, huge, huge, huge]] {
            let inputs = [image(), i32s(&[2], &[2, 2]), i32s(&[2, 2], &pads)];
            assert!(call_simple::<f32>(&SPACE_TO_BATCH_ND, &inputs).is_err(), "{pads:?}");
        }
    }
}
