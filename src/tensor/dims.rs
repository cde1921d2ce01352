//! Arithmetic on dimensions, all of it checked: dimensions come from clients.

use super::OperandType;
use smallvec::SmallVec;

/// Dimensions of a tensor, outermost first. Up to four, which nearly all tensors have, need no allocation: there are many
/// tensors in a model, and each is described again and again on its way to a kernel.
pub type Dims = SmallVec<[u32; 4]>;

/// Largest size of one tensor in bytes: NNAPI counts tensor sizes in 32 bits.
pub const MAX_TENSOR_BYTES: usize = u32::MAX as usize;

/// Number of elements; 1 for a scalar. `None` if it does not fit 32 bits.
pub fn element_count(dims: &[u32]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, however large the other dimensions are.
    if dims.contains(&0) {
        return Some(0);
    }
    let n = dims
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(u64::from(d)).filter(|&n| n <= u64::from(u32::MAX)))?;
    usize::try_from(n).ok()
}

/// Size in bytes of a value of type `ty` and dimensions `dims`; `None` if it does not fit 32 bits or `ty` has no values.
pub fn byte_size(ty: OperandType, dims: &[u32]) -> Option<usize> {
    element_count(dims)?.checked_mul(ty.element_size()?).filter(|&n| n <= MAX_TENSOR_BYTES)
}

/// What two partial descriptions say together: a 0 is unknown, and so is the rank where there are no dimensions. `None` if
/// they contradict each other.
pub fn combine_dims(a: &[u32], b: &[u32]) -> Option<Dims> {
    match (a, b) {
        (known, []) | ([], known) => Some(known.into()),
        _ if a.len() != b.len() => None,
        _ => a
            .iter()
            .zip(b)
            .map(|(&a, &b)| match (a, b) {
                (known, 0) | (0, known) => Some(known),
                _ => (a == b).then_some(a),
            })
            .collect(),
    }
}

/// Row-major strides in elements. The caller has checked that the element count fits.
pub fn strides(dims: &[u32]) -> Vec<usize> {
    let mut strides = vec![1usize; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(dims[i] as usize);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn sizes_are_checked() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[2, 3]), Some(6));
        assert_eq!(element_count(&[u32::MAX, u32::MAX, 0]), Some(0));
        assert_eq!(element_count(&[u32::MAX, 2]), None);
        assert_eq!(byte_size(OperandType::TENSOR_FLOAT32, &[u32::MAX]), None);
        assert_eq!(byte_size(OperandType::TENSOR_FLOAT16, &[3, 5]), Some(30));
        assert_eq!(byte_size(OperandType::SUBGRAPH, &[]), None);
    }

    #[test]
    fn dimensions_complete_each_other() {
        assert_eq!(combine_dims(&[], &[0, 2]), Some(smallvec![0, 2]));
        assert_eq!(combine_dims(&[3, 0, 0], &[0, 2, 0]), Some(smallvec![3, 2, 0]));
        assert_eq!(combine_dims(&[3, 2], &[3, 1]), None);
        assert_eq!(combine_dims(&[3], &[3, 1]), None);
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(strides(&[]), Vec::<usize>::new());
    }
}
