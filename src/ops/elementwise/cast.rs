//! CAST: each element as another type, without regard to scale and zero point.

use super::walk::{fill, STRETCH};
use crate::ops::pace::Pace;
use crate::ops::signature::{var, Row, Slot, Ty};
use crate::ops::{same_as_first, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::{self, *};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Types that are cast among each other.
const CASTABLE: &[OperandType] = &[TENSOR_FLOAT16, TENSOR_FLOAT32, TENSOR_INT32, TENSOR_QUANT8_ASYMM];

pub static CAST: Operation = Operation {
    ty: OperationType::CAST,
    doc: "each element as another type, without regard to scale and zero point",
    signatures: &[
        Signature::new(
            &[Row(3, &[])],
            &[Slot { ty: Ty::Any(CASTABLE), ..var("input", 0) }],
            &[Slot { ty: Ty::Any(CASTABLE), ..var("output", 0) }],
        ),
        // Other types are cast to themselves only.
        Signature::new(
            &[
                Row(4, &[TENSOR_BOOL8]),
                Row(4, &[TENSOR_QUANT16_ASYMM]),
                Row(4, &[TENSOR_QUANT16_SYMM]),
                Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
                Row(4, &[TENSOR_QUANT8_SYMM]),
            ],
            &[var("input", 0)],
            &[var("output", 0)],
        ),
    ],
    check,
    run: Run::Shaped { shapes: same_as_first, eval },
};

/// Where both are known, input and output have the same dimensions.
fn check(args: &Args) -> Result<(), OpError> {
    let (input, output) = (args.get(0)?.dims(), &args.output(0)?.dims);
    let unknown = input.is_empty() || output.is_empty();
    let known_agree = || input.iter().zip(output).all(|(&i, &o)| i == o || i == 0 || o == 0);
    if unknown || (input.len() == output.len() && known_agree()) {
        return Ok(());
    }
    Err(OpError::failed(format!("input of dimensions {input:?} cannot become an output of {output:?}")))
}

/// Floats lose their fraction and saturate (NaN becomes 0) on the way to integers; integers saturate.
fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let input = args.get(0)?;
    if (input.ty(), outs[0].info.ty) == (TENSOR_FLOAT16, TENSOR_FLOAT32) {
        return widen(args, input.elements()?, outs[0].elements()?);
    }
    if input.ty().is_float() {
        return convert(args, &input.floats()?, &mut outs[0], |x| x, |x| x as i32);
    }
    convert(args, &input.integers()?, &mut outs[0], |x| x as f32, |x| x)
}

/// Weights of half floats come this way: many at once, by an instruction where there is one.
fn widen(args: &Args, from: &[f16], to: &mut [f32]) -> Result<(), OpError> {
    if from.len() != to.len() {
        return Err(OpError::failed(format!("{} elements for an output of {}", from.len(), to.len())));
    }
    let mut pace = Pace::new(args);
    for (from, to) in from.chunks(STRETCH).zip(to.chunks_mut(STRETCH)) {
        pace.spend(to.len())?;
        from.convert_to_f32_slice(to);
    }
    Ok(())
}

fn convert<S: Copy>(
    args: &Args,
    from: &[S],
    out: &mut Out,
    to_f32: impl Fn(S) -> f32,
    to_i32: impl Fn(S) -> i32,
) -> Result<(), OpError> {
    match out.info.ty {
        TENSOR_FLOAT32 => fill(args, from, out.elements()?, to_f32),
        TENSOR_FLOAT16 => fill(args, from, out.elements()?, |x| f16::from_f32(to_f32(x))),
        TENSOR_INT32 => fill(args, from, out.elements()?, to_i32),
        TENSOR_QUANT8_ASYMM => fill(args, from, out.elements()?, |x| to_i32(x).clamp(0, 255) as u8),
        TENSOR_BOOL8 => fill(args, from, out.elements()?, |x| u8::from(to_i32(x) != 0)),
        TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM => {
            fill(args, from, out.elements()?, |x| to_i32(x) as i8)
        }
        // Both 16-bit types keep their low half, whatever its sign.
        _ => fill(args, from, out.elements()?, |x| to_i32(x) as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, i32s, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn cast<T: bytemuck::AnyBitPattern>(input: &Tensor, ty: OperandType) -> Result<Vec<T>, OpError> {
        let out = call(&CAST, &[Some(input.clone())], &[TensorInfo::new(ty, &[])])?.remove(0);
        Ok(bytemuck::cast_slice(&out.data).to_vec())
    }

    #[test]
    fn truncates_and_saturates() {
        let floats = f32s(&[5], &[-1.9, 2.9, 300.0, 1e20, f32::NAN]);
        assert_eq!(cast::<i32>(&floats, TENSOR_INT32), Ok(vec![-1, 2, 300, i32::MAX, 0]));
        assert_eq!(cast::<u8>(&floats, TENSOR_QUANT8_ASYMM), Ok(vec![0, 2, 255, 255, 0]));
        assert_eq!(
            cast::<f16>(&floats, TENSOR_FLOAT16).unwrap()[2..4],
            [f16::from_f32(300.0), f16::INFINITY]
        );
        assert_eq!(cast::<u8>(&i32s(&[3], &[-1, 256, 7]), TENSOR_QUANT8_ASYMM), Ok(vec![0, 255, 7]));
    }

    #[test]
    fn half_floats_of_all_kinds_are_widened_exactly() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let input = tensor(TensorInfo::new(TENSOR_FLOAT16, &[1 << 16]), &halves);
        for (half, wide) in halves.iter().zip(cast::<f32>(&input, TENSOR_FLOAT32).unwrap()) {
            let same = half.is_nan() && wide.is_nan() || half.to_f64() == f64::from(wide);
            assert!(same && half.is_sign_negative() == wide.is_sign_negative(), "{half:?} {wide}");
        }
    }

    #[test]
    fn ignores_quantisation() {
        let quantised = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[2], 0.25, 100), &[0u8, 200]);
        assert_eq!(cast::<f32>(&quantised, TENSOR_FLOAT32), Ok(vec![0.0, 200.0]));
    }

    #[test]
    fn other_types_are_cast_to_themselves_only() {
        let q16 = tensor(TensorInfo::quantised(TENSOR_QUANT16_SYMM, &[2], 1.0, 0), &[-5i16, i16::MIN]);
        assert_eq!(cast::<i16>(&q16, TENSOR_QUANT16_SYMM), Ok(vec![-5, i16::MIN]));
        assert!(cast::<f32>(&q16, TENSOR_FLOAT32).is_err());
        let u16s = tensor(TensorInfo::quantised(TENSOR_QUANT16_ASYMM, &[1], 1.0, 0), &[u16::MAX]);
        assert_eq!(cast::<u16>(&u16s, TENSOR_QUANT16_ASYMM), Ok(vec![u16::MAX]));
        assert!(cast::<u8>(&i32s(&[1], &[1]), TENSOR_BOOL8).is_err());
    }

    #[test]
    fn known_dimensions_must_agree() {
        let to =
            |dims| call(&CAST, &[Some(f32s(&[1, 2], &[1.0; 2]))], &[TensorInfo::new(TENSOR_INT32, dims)]);
        assert!(to(&[2]).is_err() && to(&[2, 2]).is_err());
        assert!(to(&[0, 2]).is_ok() && to(&[]).is_ok());
    }
}
