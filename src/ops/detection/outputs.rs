//! Outputs whose number is known only once they are computed.

use crate::ops::evaluate::{allocate, with_dims};
use crate::ops::{Args, Computed, OpError, Out};
use crate::tensor::{Dims, TensorInfo};

/// An output of real numbers, in the type and quantisation that `info` declares.
pub fn reals(args: &Args, info: &TensorInfo, dims: Dims, values: &[f32]) -> Result<Computed, OpError> {
    output(info, dims, |out| out.store_reals(args.interrupt, values))
}

/// An output of integers.
pub fn integers(args: &Args, info: &TensorInfo, dims: Dims, values: &[i32]) -> Result<Computed, OpError> {
    output(info, dims, |out| out.store_integers(args.interrupt, values))
}

fn output(
    info: &TensorInfo,
    dims: Dims,
    store: impl FnOnce(&mut Out) -> Result<(), OpError>,
) -> Result<Computed, OpError> {
    let info = with_dims(info, &dims);
    let mut data = allocate(&info)?;
    store(&mut Out { info: &info, data: &mut data })?;
    Ok(Computed { dims, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::evaluate::LARGEST_OUTPUT;
    use crate::ops::NeverInterrupted;
    use crate::tensor::OperandType;
    use smallvec::smallvec;

    #[test]
    fn an_output_too_large_is_refused_before_it_is_made() {
        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[]);
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &NeverInterrupted };
        let one_too_many = (LARGEST_OUTPUT / 16) as u32 + 1;
        // The values, which are missing, are looked at only once there is memory for them.
        let why = reals(&args, &info, smallvec![one_too_many, 4], &[]).unwrap_err().to_string();
        assert_eq!(why, format!("dimensions [{one_too_many}, 4] take more than {LARGEST_OUTPUT} bytes"));
        assert!(integers(&args, &info, smallvec![u32::MAX, u32::MAX], &[]).is_err());
        let two = reals(&args, &info, smallvec![2], &[1.0, 2.0]).unwrap();
        assert_eq!((two.dims.to_vec(), two.data.len()), (vec![2], 8));
    }
}
