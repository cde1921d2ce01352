//! How much there is to do in a call, by its dimensions alone: what a profile divides by the time.

use super::OperationType::{self, *};
use crate::tensor::TensorInfo;

/// Multiply-adds of a call with these operands, all of whose dimensions are known: padding counts as if it were there.
/// `None` for operations that are made of something else, and where operands are missing.
pub fn multiply_adds(
    ty: OperationType,
    inputs: &[Option<&TensorInfo>],
    outputs: &[&TensorInfo],
) -> Option<u64> {
    let input = |i: usize| inputs.get(i).copied().flatten().map(|info| &info.dims[..]);
    let output = &outputs.first()?.dims[..];
    match ty {
        // A filter is [channels, height, width, depth].
        CONV_2D | GROUPED_CONV_2D => count(output)?.checked_mul(count(input(1)?.get(1..)?)?),
        DEPTHWISE_CONV_2D => count(output)?.checked_mul(count(input(1)?.get(1..3)?)?),
        TRANSPOSE_CONV_2D => count(input(0)?)?.checked_mul(count(input(1)?.get(..3)?)?),
        FULLY_CONNECTED => count(output)?.checked_mul(count(input(1)?.get(1..)?)?),
        BATCH_MATMUL => {
            let (left, rows) = (input(0)?, count(output.get(output.len().checked_sub(2)?..)?)?);
            // Either of the left matrix's sides is the result's height, the other is summed over.
            let matrix = count(left.get(left.len().checked_sub(2)?..)?)?;
            let width = u64::from(*output.last()?);
            count(output)?.checked_mul(matrix.checked_mul(width)?.checked_div(rows)?)
        }
        LSTM | UNIDIRECTIONAL_SEQUENCE_LSTM => recurrent(inputs, (1..=8).chain([16])),
        RNN | UNIDIRECTIONAL_SEQUENCE_RNN => recurrent(inputs, 1..=2),
        _ => None,
    }
}

/// Each of the weights once for every vector of input 0.
fn recurrent(inputs: &[Option<&TensorInfo>], weights: impl Iterator<Item = usize>) -> Option<u64> {
    let input = inputs.first().copied().flatten()?;
    let vectors = count(input.dims.split_last()?.1)?;
    let present = weights.filter_map(|i| inputs.get(i).copied().flatten());
    let all = present.map(|info| count(&info.dims)).try_fold(0u64, |sum, n| sum.checked_add(n?))?;
    vectors.checked_mul(all)
}

fn count(dims: &[u32]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::OperandType::TENSOR_FLOAT32;

    fn of(ty: OperationType, inputs: &[&[u32]], output: &[u32]) -> Option<u64> {
        let infos: Vec<_> = inputs.iter().map(|dims| TensorInfo::new(TENSOR_FLOAT32, dims)).collect();
        let output = TensorInfo::new(TENSOR_FLOAT32, output);
        multiply_adds(ty, &infos.iter().map(Some).collect::<Vec<_>>(), &[&output])
    }

    #[test]
    fn products_are_counted_by_dimensions() {
        assert_eq!(of(CONV_2D, &[&[1, 8, 8, 3], &[16, 3, 3, 3]], &[1, 4, 4, 16]), Some(256 * 27));
        assert_eq!(of(GROUPED_CONV_2D, &[&[1, 8, 8, 4], &[16, 3, 3, 2]], &[1, 4, 4, 16]), Some(256 * 18));
        assert_eq!(of(DEPTHWISE_CONV_2D, &[&[1, 8, 8, 3], &[1, 5, 3, 6]], &[1, 4, 4, 6]), Some(96 * 15));
        assert_eq!(of(TRANSPOSE_CONV_2D, &[&[1, 4, 4, 3], &[2, 3, 3, 3]], &[1, 8, 8, 2]), Some(48 * 18));
        assert_eq!(of(FULLY_CONNECTED, &[&[2, 5], &[7, 5]], &[2, 7]), Some(70));
        assert_eq!(of(BATCH_MATMUL, &[&[2, 3, 4], &[2, 4, 5]], &[2, 3, 5]), Some(120));
        assert_eq!(of(BATCH_MATMUL, &[&[2, 4, 3], &[2, 4, 5]], &[2, 3, 5]), Some(120), "turned");
        assert_eq!(of(RNN, &[&[3, 4], &[6, 4], &[6, 6], &[6]], &[3, 6]), Some(3 * 60));
        assert_eq!(of(ADD, &[&[3], &[3]], &[3]), None);
    }

    #[test]
    fn what_cannot_be_counted_is_not() {
        assert_eq!(of(CONV_2D, &[&[1, 8, 8, 3]], &[1, 4, 4, 16]), None);
        assert_eq!(of(CONV_2D, &[&[1], &[]], &[1]), None);
        assert_eq!(of(BATCH_MATMUL, &[&[4], &[4]], &[1]), None);
        assert_eq!(of(BATCH_MATMUL, &[&[0, 4], &[4, 0]], &[0, 0]), None);
        let large = [u32::MAX; 4];
        assert_eq!(of(CONV_2D, &[&large, &large], &large), None, "beyond 64 bits");
    }
}
