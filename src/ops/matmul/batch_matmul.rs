//! BATCH_MATMUL: products of the matrices in two tensors, pair by pair.

use crate::ops::conv::{accumulate_rows, ChannelRequant, Number};
use crate::ops::image::{exactly, Pixels};
use crate::ops::pace::Pace;
use crate::ops::scratch::{by_parts, filled, reserved, Scratch};
use crate::ops::signature::{boolean, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::requant::Activation;
use crate::tensor::{Dims, OperandType::*};

pub static BATCH_MATMUL: Operation = Operation {
    ty: OperationType::BATCH_MATMUL,
    doc: "products of the matrices in two tensors, pair by pair",
    signatures: &[Signature::new(
        &[
            Row(6, &[TENSOR_FLOAT32]),
            Row(6, &[TENSOR_FLOAT16]),
            Row(6, &[TENSOR_INT32]),
            Row(6, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("left", 0), var("right", 0), boolean("transpose left"), boolean("transpose right")],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// Products of `rows * inner` matrices and `inner * columns` ones. Any size may be 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchMatmulGeometry {
    /// All dimensions of the left operand but the last two; the output has them too.
    pub batch_dims: Dims,
    /// The same of the right operand: as many, each the left's or 1.
    pub right_batch_dims: Dims,
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
    /// The left matrices lie as `[inner, rows]`.
    pub transpose_left: bool,
    /// The right matrices lie as `[columns, inner]`.
    pub transpose_right: bool,
}

impl BatchMatmulGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (left, right) = (args.get(0)?, args.get(1)?);
        let (transpose_left, transpose_right) = (args.bool(2)?, args.bool(3)?);
        let wrong = || {
            let (left, right) = (left.dims(), right.dims());
            OpError::failed(format!(
                "no matrix product of {left:?} (transposed: {transpose_left}) and {right:?} ({transpose_right})"
            ))
        };
        let rank = left.dims().len();
        if rank != right.dims().len() || !(2..=4).contains(&rank) {
            return Err(wrong());
        }
        let (left_batch, left_matrix) = left.dims().split_at(rank - 2);
        let (right_batch, right_matrix) = right.dims().split_at(rank - 2);
        let oriented = |matrix: &[u32], transposed: bool| {
            let (a, b) = (matrix[0] as usize, matrix[1] as usize);
            if transposed {
                (b, a)
            } else {
                (a, b)
            }
        };
        let (rows, inner) = oriented(left_matrix, transpose_left);
        let (right_inner, columns) = oriented(right_matrix, transpose_right);
        let batches_fit = left_batch.iter().zip(right_batch).all(|(&l, &r)| l == r || r == 1);
        if inner != right_inner || !batches_fit {
            return Err(wrong());
        }
        Ok(BatchMatmulGeometry {
            batch_dims: left_batch.into(),
            right_batch_dims: right_batch.into(),
            rows,
            inner,
            columns,
            transpose_left,
            transpose_right,
        })
    }

    /// Which matrix of the right operand matrix `left` of the left one is multiplied with.
    pub fn right_matrix(&self, mut left: usize) -> usize {
        let (mut right, mut step) = (0, 1);
        for (&l, &r) in self.batch_dims.iter().zip(&self.right_batch_dims).rev() {
            let (l, r) = (l as usize, r as usize);
            right += if r == 1 { 0 } else { left % l * step };
            step *= r;
            left /= l;
        }
        right
    }

    pub fn output_dims(&self) -> Dims {
        // Both were dimensions of an input.
        let matrix = [self.rows as u32, self.columns as u32];
        self.batch_dims.iter().copied().chain(matrix).collect()
    }

    /// Calls `emit(row, products)` for every row of the output, counted through all matrices.
    fn products<T: Number>(
        &self,
        left: &[T],
        right: &[T],
        pace: &mut Pace,
        mut emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let turned;
        let right = if self.transpose_right {
            turned = transposed(right, self.columns, self.inner, pace)?;
            &turned
        } else {
            right
        };
        let mut products = filled(pace.interrupt(), T::default(), self.columns)?;
        let lefts = left.chunks_exact(self.rows * self.inner);
        for (batch, left) in lefts.enumerate() {
            let right = &right[self.right_matrix(batch) * self.inner * self.columns..];
            for row in 0..self.rows {
                pace.in_stretches(self.columns, 1, |part| products[part].fill(T::default()))?;
                let (first, step) =
                    if self.transpose_left { (row, self.rows) } else { (row * self.inner, 1) };
                let xs = left.iter().skip(first).step_by(step).take(self.inner).copied();
                accumulate_rows(&mut products, xs, right, |weight| weight, pace)?;
                emit(batch * self.rows + row, &products, pace)?;
            }
        }
        Ok(())
    }
}

/// Matrices `[rows, columns]` turned to `[columns, rows]`.
fn transposed<T: Copy>(
    matrices: &[T],
    rows: usize,
    columns: usize,
    pace: &mut Pace,
) -> Result<Scratch<T>, OpError> {
    let mut turned = reserved(matrices.len())?;
    for matrix in matrices.chunks_exact(rows * columns) {
        for column in 0..columns {
            let mut elements = matrix.iter().skip(column).step_by(columns);
            pace.in_stretches(rows, 1, |part| turned.extend(elements.by_ref().take(part.len())))?;
        }
    }
    Ok(turned)
}

fn shapes(args: &Args) -> Shapes {
    Ok(vec![BatchMatmulGeometry::from_args(args)?.output_dims()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let product = BatchMatmulGeometry::from_args(args)?;
    let (left, right, out) = (args.get(0)?, args.get(1)?, &mut outs[0]);
    let mut pace = Pace::new(args);
    if left.count()? == 0 || right.count()? == 0 {
        return fill_empty_sums(args, out);
    }
    match left.ty() {
        TENSOR_INT32 => {
            let (l, r) = (exactly(&left, left.integers()?)?, exactly(&right, right.integers()?)?);
            let mut rows = Pixels::rows(out);
            product.products(&l, &r, &mut pace, |row, sums, pace| rows.put_integers(row, sums, pace))
        }
        TENSOR_QUANT8_ASYMM_SIGNED => {
            let requant =
                ChannelRequant::new(left.info, right.info, out.info, 1, Activation::None, args.interrupt)?;
            let (l, r) = (exactly(&left, left.centred()?.into())?, exactly(&right, right.centred()?.into())?);
            let mut scaled = filled(args.interrupt, 0, product.columns)?;
            let mut rows = Pixels::rows(out);
            product.products(&l, &r, &mut pace, |row, sums, pace| {
                pace.in_stretches(sums.len(), 1, |part| {
                    let sums = &sums[part.clone()];
                    scaled[part].iter_mut().zip(sums).for_each(|(to, &sum)| *to = requant.apply(sum, 0));
                })?;
                rows.put_integers(row, &scaled, pace)
            })
        }
        _ => {
            let (l, r) = (exactly(&left, left.floats()?)?, exactly(&right, right.floats()?)?);
            let mut rows = Pixels::rows(out);
            product.products(&l, &r, &mut pace, |row, sums, pace| rows.put_floats(row, sums, pace))
        }
    }
}

/// Sums of no products at all are 0: the zero point of a quantised output, which is zeroed already otherwise.
fn fill_empty_sums(args: &Args, out: &mut Out) -> Result<(), OpError> {
    match out.info.ty {
        TENSOR_QUANT8_ASYMM_SIGNED => {
            let zero = out.info.zero_point.clamp(-128, 127) as u8;
            by_parts(args.interrupt, out.data.len(), |part| {
                out.data[part].fill(zero);
                Ok(())
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, i32s, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn product<T: bytemuck::AnyBitPattern>(
        left: Tensor,
        right: Tensor,
        transposed: [bool; 2],
    ) -> Result<(Vec<u32>, Vec<T>), OpError> {
        call_simple(&BATCH_MATMUL, &[left, right, boolean(transposed[0]), boolean(transposed[1])])
    }

    #[test]
    fn every_orientation_gives_the_same() {
        let expected = Ok((vec![2, 2], vec![5f32, 7.0, 11.0, 15.0]));
        let left = [[1.0, 2.0, 0.0, 3.0, 4.0, 1.0], [1.0, 3.0, 2.0, 4.0, 0.0, 1.0]];
        let right = [[1.0, 1.0, 2.0, 3.0, 0.0, 0.0], [1.0, 2.0, 0.0, 1.0, 3.0, 0.0]];
        for (l, r) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let left = f32s([&[2, 3], &[3, 2]][l], &left[l]);
            let right = f32s([&[3, 2], &[2, 3]][r], &right[r]);
            assert_eq!(product(left, right, [l == 1, r == 1]), expected, "{l} {r}");
        }
    }

    #[test]
    fn integers_wrap_and_the_right_side_broadcasts() {
        let left = i32s(&[2, 1, 2], &[i32::MAX, 1, 2, 3]);
        let right = i32s(&[1, 2, 1], &[2, 5]);
        // 2 * i32::MAX + 5 wraps to 3.
        assert_eq!(product(left, right, [false; 2]), Ok((vec![2, 1, 1], vec![3, 19])));
    }

    #[test]
    fn quantised_products() {
        let info = |dims: &[u32]| TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, dims, 0.5, -10);
        let left = tensor(info(&[1, 2]), &[-8i8, -6]);
        let right = tensor(info(&[2, 1]), &[-9i8, -11]);
        // (2 * 1 - 4 * 1) * 0.25 = -0.5: one step below the zero point.
        assert_eq!(product(left, right, [false; 2]), Ok((vec![1, 1], vec![-11i8])));
    }

    #[test]
    fn empty_and_unfit_operands() {
        let zeros = |dims: &[u32]| f32s(dims, &vec![0.0; dims.iter().product::<u32>() as usize]);
        let shape = |left: &[u32], right: &[u32]| {
            product::<f32>(zeros(left), zeros(right), [false; 2]).map(|(dims, _)| dims)
        };
        assert_eq!(shape(&[0, 1, 2], &[0, 2, 3]), Ok(vec![0, 1, 3]));
        assert_eq!(shape(&[2, 1, 0], &[2, 0, 3]), Ok(vec![2, 1, 3]));
        assert!(shape(&[1, 2], &[3, 1]).is_err());
        assert!(shape(&[2, 2], &[1, 2, 2]).is_err());
        assert!(shape(&[1, 2, 2], &[2, 2, 2]).is_err());
        assert!(shape(&[2], &[2]).is_err());
        assert!(shape(&[1, 1, 1, 1, 1], &[1, 1, 1, 1, 1]).is_err());
    }
}
