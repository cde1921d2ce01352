//! SELECT: each element from one of two tensors, as a condition says.

use super::walk::STRETCH;
use crate::ops::pace::Pace;
use crate::ops::signature::{is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::rescale::Rescale;
use crate::tensor::OperandType::*;
use bytemuck::{AnyBitPattern, NoUninit};

pub static SELECT: Operation = Operation {
    ty: OperationType::SELECT,
    doc: "each element from the first tensor where the condition is true, else from the second",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(3, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[is("condition", TENSOR_BOOL8), var("a", 0), var("b", 0)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let (condition, a, b) = (args.get(0)?.dims(), args.get(1)?.dims(), args.get(2)?.dims());
    if condition != a || a != b {
        return Err(OpError::failed(format!("dimensions {condition:?}, {a:?} and {b:?} must be the same")));
    }
    Ok(vec![a.into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (a, b, out) = (args.get(1)?, args.get(2)?, args.output(0)?);
    match a.ty() {
        TENSOR_FLOAT16 => choose(args, outs, |x: u16| x, |x| x),
        ty if ty.is_quant8_asymm() => {
            let (from_a, from_b) = (Rescale::new(a.info, out), Rescale::new(b.info, out));
            // The low byte of a value in the type's range is its element, signed or not.
            choose(args, outs, |q: u8| from_a.apply(q.into()) as u8, |q| from_b.apply(q.into()) as u8)
        }
        _ => choose(args, outs, |x: u32| x, |x| x),
    }
}

/// `a` or `b` of the elements of inputs 1 or 2, whose bits are in `T`.
fn choose<T: AnyBitPattern + NoUninit>(
    args: &Args,
    outs: &mut [Out],
    a: impl Fn(T) -> T,
    b: impl Fn(T) -> T,
) -> Result<(), OpError> {
    let mut pace = Pace::new(args);
    let conditions = args.get(0)?.elements::<u8>()?.chunks(STRETCH);
    let (from_a, from_b) =
        (args.get(1)?.elements()?.chunks(STRETCH), args.get(2)?.elements()?.chunks(STRETCH));
    let to = outs[0].elements()?.chunks_mut(STRETCH);
    for ((to, conditions), (from_a, from_b)) in to.zip(conditions).zip(from_a.zip(from_b)) {
        pace.spend(to.len())?;
        for ((to, &condition), (&x, &y)) in to.iter_mut().zip(conditions).zip(from_a.iter().zip(from_b)) {
            *to = if condition != 0 { a(x) } else { b(y) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn condition() -> Tensor {
        tensor(TensorInfo::new(TENSOR_BOOL8, &[1, 3]), &[0u8, 1, 200])
    }

    #[test]
    fn chooses_by_condition() {
        let (a, b) = (f32s(&[1, 3], &[1.0, 2.0, 3.0]), f32s(&[1, 3], &[4.0, 5.0, 6.0]));
        let run = |b: Tensor| {
            let inputs = [Some(condition()), Some(a.clone()), Some(b)];
            call(&SELECT, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
        };
        let result = run(b).unwrap().remove(0);
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&result.data), [4.0, 2.0, 3.0]);
        assert!(run(f32s(&[1, 1], &[1.0])).is_err(), "SELECT does not broadcast");
    }

    #[test]
    fn quantised_inputs_are_rescaled() {
        let a = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 3], 0.5, 0), &[0i8, 7, -128]);
        let b = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 3], 2.0, 3), &[5i8, 0, 0]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 0.25, -100);
        let result = call(&SELECT, &[Some(condition()), Some(a), Some(b)], &[out]).unwrap().remove(0);
        assert_eq!(bytemuck::cast_slice::<u8, i8>(&result.data), [-84, -86, -128]);
    }
}
