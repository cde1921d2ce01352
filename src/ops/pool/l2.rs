//! L2_POOL_2D: the root of each window's mean square, padding left out.

use super::geometry::shapes;
use super::{signatures, PoolGeometry};
use crate::ops::image::{channels_last, Pixels};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::Row;
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run};
use crate::tensor::OperandType::*;

pub static L2_POOL_2D: Operation = Operation {
    ty: OperationType::L2_POOL_2D,
    doc: "the root of each window's mean square, padding left out",
    signatures: &signatures(&[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])]),
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let pool = PoolGeometry::from_args(args)?;
    let input = args.get(0)?;
    if outs[0].data.is_empty() {
        return Ok(());
    }
    let mut pace = Pace::new(args);
    let values = channels_last(&input, input.floats()?, pool.nchw, &mut pace)?;
    let mut roots = filled(0.0, pool.input.channels)?;
    let mut pixels = Pixels::image(&mut outs[0], pool.nchw);
    pool.reduce(
        &values,
        &mut pace,
        0.0,
        |sum: f32, x| sum + x * x,
        |pixel, sums, cells| {
            for (root, &sum) in roots.iter_mut().zip(sums) {
                *root = pool.activation.apply((sum / cells as f32).sqrt());
            }
            pixels.put_floats(pixel, &roots)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int};

    #[test]
    fn root_of_the_mean_square() {
        let mut inputs = vec![f32s(&[1, 2, 1, 2], &[1.0, 7.0, -3.0, 3.0])];
        inputs.extend([2, 1, 1, 2, 1, 0].map(int));
        inputs.push(boolean(true));
        let out = call_simple::<f32>(&L2_POOL_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 2, 1, 1], vec![5.0, 3.0])));
    }
}
