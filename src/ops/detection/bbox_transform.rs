//! AXIS_ALIGNED_BBOX_TRANSFORM: proposed boxes refined by predicted deltas.

use super::boxes::{ensure, ensure_eighths, ensure_ordered, fours, indices, transform};
use crate::ops::pace::Pace;
use crate::ops::scratch::reserved;
use crate::ops::signature::{is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static AXIS_ALIGNED_BBOX_TRANSFORM: Operation = Operation {
    ty: OperationType::AXIS_ALIGNED_BBOX_TRANSFORM,
    doc: "boxes moved and scaled by deltas to each class, cut to their image",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT16_ASYMM, TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT16_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("roi", 0), var("deltas", 1), is("batches", TENSOR_INT32), var("image_info", 0)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let (roi, deltas, batches, images) = (args.get(0)?, args.get(1)?, args.get(2)?, args.get(3)?);
    let rois = roi.dim(0);
    ensure(roi.dims() == [rois, 4], "the boxes must be a matrix of 4 columns")?;
    let columns = deltas.dim(1);
    ensure(deltas.dims() == [rois, columns], "the deltas must be a matrix with a row to each box")?;
    ensure(columns > 0 && columns % 4 == 0, "the deltas must have 4 columns to each class")?;
    ensure(batches.dims() == [rois], "input 2 must have a batch to each box")?;
    ensure(
        images.dim(0) > 0 && images.dims() == [images.dim(0), 2],
        "input 3 must be image heights and widths",
    )?;
    ensure_eighths("boxes", roi.info)?;
    ensure_eighths("image sizes", images.info)?;
    ensure_eighths("the output", args.output(0)?)?;
    Ok(vec![smallvec![rois, columns]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (rois, deltas, images) = (args.get(0)?.reals()?, args.get(1)?.reals()?, args.get(3)?.reals()?);
    let (images, _) = images.as_chunks::<2>();
    let mut pace = Pace::new(args);
    let batches = indices(&args.arg(2)?, images.len(), &mut pace)?;
    let columns = args.get(1)?.dim(1) as usize;
    let mut output = reserved(deltas.len())?;
    for ((roi, deltas), &batch) in fours(&rois).iter().zip(deltas.chunks_exact(columns)).zip(&*batches) {
        ensure_ordered(roi)?;
        pace.each(fours(deltas), 32, |delta| output.extend(transform(roi, delta, images[batch])))?;
    }
    outs[0].store_reals(args.interrupt, &output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, i32s, Tensor};

    fn inputs(rois: u32, roi: &[f32], batches: &[i32]) -> [Tensor; 4] {
        let deltas = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0].repeat(rois as usize);
        let images = f32s(&[2, 2], &[100.0, 100.0, 10.0, 7.0]);
        [f32s(&[rois, 4], roi), f32s(&[rois, 8], &deltas), i32s(&[rois], batches), images]
    }

    #[test]
    fn each_box_is_cut_to_its_own_image() {
        let roi = [2.0, 2.0, 6.0, 4.0].repeat(2);
        let (dims, y) = call_simple::<f32>(&AXIS_ALIGNED_BBOX_TRANSFORM, &inputs(2, &roi, &[0, 1])).unwrap();
        assert_eq!(dims, [2, 8]);
        assert_eq!(y[..8], [2.0, 2.0, 6.0, 4.0, 6.0, 4.0, 10.0, 6.0]);
        assert_eq!(y[8..], [2.0, 2.0, 6.0, 4.0, 6.0, 4.0, 7.0, 6.0]);
        let empty = call_simple::<f32>(&AXIS_ALIGNED_BBOX_TRANSFORM, &inputs(0, &[], &[]));
        assert_eq!(empty, Ok((vec![0, 8], vec![])));
    }

    #[test]
    fn refuses_batches_out_of_range_and_inside_out_boxes() {
        let roi = [2.0, 2.0, 6.0, 4.0];
        for batch in [-1, 2, i32::MIN] {
            assert!(call_simple::<f32>(&AXIS_ALIGNED_BBOX_TRANSFORM, &inputs(1, &roi, &[batch])).is_err());
        }
        let inside_out = inputs(1, &[6.0, 2.0, 2.0, 4.0], &[0]);
        assert!(call_simple::<f32>(&AXIS_ALIGNED_BBOX_TRANSFORM, &inside_out).is_err());
    }
}
