//! LSH_PROJECTION: bits of locality-sensitive hashes of a tensor.

use super::fingerprint::fingerprint;
use crate::ops::pace::Pace;
use crate::ops::scratch::Values;
use crate::ops::signature::{int, var, Row, Slot, Ty};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::{self, *};
use smallvec::smallvec;

const HASHED: &[OperandType] = &[TENSOR_FLOAT32, TENSOR_INT32, TENSOR_QUANT8_ASYMM, TENSOR_FLOAT16];

pub static LSH_PROJECTION: Operation = Operation {
    ty: OperationType::LSH_PROJECTION,
    doc: "bits of locality-sensitive hashes, one by one (dense) or packed (sparse)",
    signatures: &[Signature::new(
        &[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
        &[
            var("hash", 0),
            Slot { name: "input", ty: Ty::Any(HASHED), rank: (1, u8::MAX), optional: false },
            var("weight", 0).optional(),
            int("type"),
        ],
        &[crate::ops::signature::is("output", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// LSHProjectionType of the interface.
#[derive(Clone, Copy, PartialEq)]
enum Projection {
    /// The bits of each hash packed into one number.
    SparseDeprecated,
    /// One element to each bit.
    Dense,
    /// As `SparseDeprecated`, plus the index of the hash times 2^bits.
    Sparse,
}

fn projection(args: &Args) -> Result<Projection, OpError> {
    match args.i32(3)? {
        1 => Ok(Projection::SparseDeprecated),
        2 => Ok(Projection::Dense),
        3 => Ok(Projection::Sparse),
        code => Err(OpError::failed(format!("input 3: {code} is not a projection type (1 to 3)"))),
    }
}

fn shapes(args: &Args) -> Shapes {
    let &[hashes, bits @ 0..=32] = args.get(0)?.dims() else {
        return Err(OpError::failed("the hash functions must be a matrix of at most 32 columns"));
    };
    let items = args.get(1)?.dim(0);
    if let Some(weight) = args.opt(2) {
        if weight.dims() != [items] {
            return Err(OpError::failed(format!("weights of {:?} do not fit {items} items", weight.dims())));
        }
    }
    let count = match projection(args)? {
        Projection::Dense => hashes.checked_mul(bits).ok_or_else(|| OpError::failed("too many bits"))?,
        Projection::Sparse | Projection::SparseDeprecated => hashes,
    };
    Ok(vec![smallvec![count]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (hash, projection) = (args.get(0)?, projection(args)?);
    let (seeds, bits) = (hash.floats()?, hash.dim(1) as usize);
    let hashes = Hashes::new(args)?;
    let mut pace = Pace::new(args);
    let out = outs[0].elements::<i32>()?;
    if projection == Projection::Dense {
        for (out, &seed) in out.iter_mut().zip(&*seeds) {
            pace.spend(1)?; // and more where there is anything to hash
            *out = hashes.sign(seed, &mut pace)?.into();
        }
        return Ok(());
    }
    for (i, out) in out.iter_mut().enumerate() {
        pace.spend(1 + bits)?;
        let mut signature = 0i32;
        for &seed in &seeds[i * bits..(i + 1) * bits] {
            signature = signature << 1 | i32::from(hashes.sign(seed, &mut pace)?);
        }
        // With all 32 bits in use there is no room for the index, which then shifts out.
        let base = if projection == Projection::Sparse { (i as i64) << bits } else { 0 };
        *out = signature.wrapping_add(base as i32);
    }
    Ok(())
}

/// What is hashed: the items of the input along its first dimension, each with its weight.
struct Hashes<'a> {
    input: &'a [u8],
    item_bytes: usize,
    weights: Option<Values<'a, f32>>,
}

impl<'a> Hashes<'a> {
    fn new(args: &Args<'a>) -> Result<Self, OpError> {
        let input = args.get(1)?;
        let bytes = input.bytes()?;
        let item_bytes = bytes.len().checked_div(input.dim(0) as usize).unwrap_or(0);
        let weights = args.opt(2).map(|weight| weight.floats()).transpose()?;
        Ok(Hashes { input: bytes, item_bytes, weights })
    }

    /// Whether the weighted sum of the hashes of all items is positive, by the hash function of this seed.
    fn sign(&self, seed: f32, pace: &mut Pace) -> Result<bool, OpError> {
        if self.item_bytes == 0 {
            return Ok(false);
        }
        let mut score = 0f64;
        for (i, item) in self.input.chunks_exact(self.item_bytes).enumerate() {
            let weight = self.weights.as_ref().map_or(1.0, |weights| f64::from(weights[i]));
            score += weight * fingerprint(seed.to_le_bytes(), item, pace)? as i64 as f64;
        }
        Ok(score > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, i32s, int, Tensor};
    use crate::tensor::TensorInfo;

    const SEEDS: [f32; 4] = [0.123, 0.456, -0.321, 1.234];

    fn project(weight: Option<Tensor>, ty: i32) -> Result<Vec<i32>, OpError> {
        let input = i32s(&[3, 2], &[12345, 54321, 67890, 9876, -12345678, -87654321]);
        let inputs = [Some(f32s(&[2, 2], &SEEDS)), Some(input), weight, Some(int(ty))];
        let out = call(&LSH_PROJECTION, &inputs, &[TensorInfo::new(TENSOR_INT32, &[])])?;
        Ok(bytemuck::cast_slice(&out[0].data).to_vec())
    }

    /// The empty hash is a constant of FarmHash; the other is what its ports document.
    #[test]
    fn fingerprints_are_farmhash() {
        assert_eq!(farmhash::fingerprint64(b""), 0x9ae1_6a3b_2f90_404f);
        assert_eq!(farmhash::fingerprint64(b"hello world"), 6_381_520_714_923_946_011);
    }

    #[test]
    fn fingerprints_of_all_lengths_work() {
        let bytes: Vec<u8> = (0..400u32).map(|i| (i * 37) as u8).collect();
        let all: std::collections::HashSet<u64> =
            (0..bytes.len()).map(|n| farmhash::fingerprint64(&bytes[..n])).collect();
        assert_eq!(all.len(), bytes.len());
    }

    #[test]
    fn sparse_packs_the_bits_of_dense() {
        let dense = project(None, 2).unwrap();
        assert_eq!(dense.len(), 4);
        let packed = [dense[0] << 1 | dense[1], dense[2] << 1 | dense[3]];
        assert_eq!(project(None, 1).unwrap(), packed);
        assert_eq!(project(None, 3).unwrap(), [packed[0], packed[1] + 4]);
    }

    #[test]
    fn weights_turn_signs() {
        let flipped: Vec<i32> = project(None, 2).unwrap().iter().map(|bit| 1 - bit).collect();
        assert_eq!(project(Some(f32s(&[3], &[-1.0; 3])), 2).unwrap(), flipped);
        assert_eq!(project(Some(f32s(&[3], &[0.0; 3])), 2).unwrap(), [0; 4]);
    }

    #[test]
    fn refuses_wrong_types_and_weights() {
        assert!(project(None, 0).is_err() && project(None, 4).is_err());
        assert!(project(Some(f32s(&[2], &[1.0; 2])), 2).is_err());
    }
}
