//! DEPTH_TO_SPACE and SPACE_TO_DEPTH: channels become blocks of pixels, and back.

use super::image::Image;
use super::steer::{block, divided, times};
use super::walk::{make, Move, Moves, Walk};
use crate::ops::signature::{boolean, int, var, Row, Slot};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static DEPTH_TO_SPACE: Operation = Operation {
    ty: OperationType::DEPTH_TO_SPACE,
    doc: "moves channels into square blocks of pixels",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped { shapes: depth_to_space_shapes, eval: depth_to_space },
};

pub static SPACE_TO_DEPTH: Operation = Operation {
    ty: OperationType::SPACE_TO_DEPTH,
    doc: "moves square blocks of pixels into channels",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped { shapes: space_to_depth_shapes, eval: space_to_depth },
};

static SIGNATURES: &[Signature] = &[Signature::new(
    &[
        Row(1, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_FLOAT16]),
        Row(1, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    INPUTS,
    &[var("output", 0)],
)
.input_counts(&[2, 3])];

static INPUTS: &[Slot] = &[var("input", 0), int("block size"), boolean("NCHW")];

fn depth_to_space_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let nchw = args.bool_or(2, false)?;
    let input = Image::of(args.get(0)?.dims(), nchw)?;
    let block = block(args.i32(1)?)?;
    let output = Image {
        n: input.n,
        h: times(input.h, block)?,
        w: times(input.w, block)?,
        c: divided(input.c, times(block, block)?, "depth")?,
    };
    Ok(vec![output.dims(nchw)])
}

fn space_to_depth_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let nchw = args.bool_or(2, false)?;
    let input = Image::of(args.get(0)?.dims(), nchw)?;
    let block = block(args.i32(1)?)?;
    let output = Image {
        n: input.n,
        h: divided(input.h, block, "height")?,
        w: divided(input.w, block, "width")?,
        c: times(input.c, times(block, block)?)?,
    };
    Ok(vec![output.dims(nchw)])
}

fn depth_to_space(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, depth_to_space_moves)
}

fn space_to_depth(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, space_to_depth_moves)
}

pub(super) fn depth_to_space_moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let nchw = args.bool_or(2, false)?;
    let (deep, wide) = (Image::of(args.get(0)?.dims(), nchw)?, Image::of(&outs[0].dims, nchw)?);
    Move::only(deep_to_wide(deep, wide, block(args.i32(1)?)?.into(), nchw))
}

pub(super) fn space_to_depth_moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let nchw = args.bool_or(2, false)?;
    let (wide, deep) = (Image::of(args.get(0)?.dims(), nchw)?, Image::of(&outs[0].dims, nchw)?);
    Move::only(deep_to_wide(deep, wide, block(args.i32(1)?)?.into(), nchw).reversed())
}

/// The deep image's channels are ordered by row in the block, column in the block, channel of the wide image.
fn deep_to_wide(deep: Image<u32>, wide: Image<u32>, block: i64, nchw: bool) -> Walk {
    let (from, to) = (deep.steps(nchw), wide.steps(nchw));
    let channels = i64::from(wide.c);
    Walk::new([
        (deep.n.into(), from.n, to.n),
        (deep.h.into(), from.h, to.h * block),
        (block, from.c * block * channels, to.h),
        (deep.w.into(), from.w, to.w * block),
        (block, from.c * channels, to.w),
        (channels, from.c, to.c),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn blocks_are_ordered_row_column_depth() {
        let deep = f32s(&[1, 1, 1, 8], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let wide = call_simple::<f32>(&DEPTH_TO_SPACE, &[deep, int(2)]).unwrap();
        assert_eq!(wide, (vec![1, 2, 2, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        let planes: Vec<u8> = (0..8).collect();
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 8, 1, 1], 1.0, 0);
        let wide =
            call_simple::<u8>(&DEPTH_TO_SPACE, &[tensor(info, &planes), int(2), boolean(true)]).unwrap();
        assert_eq!(wide, (vec![1, 2, 2, 2], vec![0, 2, 4, 6, 1, 3, 5, 7]));
    }

    #[test]
    fn space_to_depth_is_the_way_back() {
        let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
        for nchw in [false, true] {
            let dims = if nchw { [1, 3, 4, 4] } else { [1, 4, 4, 3] };
            let wide = f32s(&dims, &values);
            let (deep, moved) = call_simple::<f32>(&SPACE_TO_DEPTH, &[wide, int(2), boolean(nchw)]).unwrap();
            assert_eq!(deep, if nchw { [1, 12, 2, 2] } else { [1, 2, 2, 12] });
            assert_ne!(moved, values);
            let back = call_simple::<f32>(&DEPTH_TO_SPACE, &[f32s(&deep, &moved), int(2), boolean(nchw)]);
            assert_eq!(back, Ok((dims.to_vec(), values.clone())));
        }
    }

    #[test]
    fn refuses_what_does_not_divide() {
        let image = || f32s(&[1, 2, 2, 1], &[0.0; 4]);
        for block in [0, -1, 2, 65536, i32::MIN, i32::MAX] {
            assert!(call_simple::<f32>(&DEPTH_TO_SPACE, &[image(), int(block)]).is_err(), "{block}");
        }
        assert!(call_simple::<f32>(&SPACE_TO_DEPTH, &[image(), int(3)]).is_err());
        assert!(call_simple::<f32>(&SPACE_TO_DEPTH, &[f32s(&[2, 2], &[0.0; 4]), int(1)]).is_err());
    }
}
