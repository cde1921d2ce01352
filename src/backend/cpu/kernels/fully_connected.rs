//! FULLY_CONNECTED: rows of the input times the packed weights.

use super::conv::{pack_f32, pack_i8, QuantInput, PACKED_INPUTS};
use super::gemm_f32::PackedF32;
use super::gemm_i8::PackedI8;
use super::simd::Isa;
use super::{input, output, rows_per_task, Kernel, Source, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::{Args, OpError};
use crate::tensor::OperandType;

/// A kernel for this call of FULLY_CONNECTED.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let (input, weights) = (args.get(0).ok()?, args.get(1).ok()?);
    let activation = args.activation(3).ok()?;
    let (units, k) = (weights.dim(0) as usize, weights.dim(1) as usize);
    if units == 0 || k == 0 {
        return None;
    }
    match input.ty() {
        OperandType::TENSOR_FLOAT32 => {
            Some(Box::new(FullyConnectedF32(pack_f32(isa, args, (k, units), activation, source)?)))
        }
        ty if ty.is_quant8_asymm() => {
            let packed = pack_i8(isa, args, (k, units), activation, false, source)?;
            Some(Box::new(FullyConnectedI8 { packed, input: QuantInput::new(&input) }))
        }
        _ => None,
    }
}

struct FullyConnectedF32(PackedF32);

impl Kernel for FullyConnectedF32 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (n, k) = (self.0.n, self.0.k);
        let (input, out) = (input::<f32>(inputs, 0)?, output::<f32>(outputs, 0)?);
        let chunk = rows_per_task(out.len() / n, n * k, work.team.threads()) * n;
        work.for_each_chunk(out, chunk, |first, c| {
            self.0.multiply(input.part(first / n * k, c.len() / n * k), c);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.0.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

struct FullyConnectedI8 {
    packed: PackedI8,
    input: QuantInput,
}

impl Kernel for FullyConnectedI8 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (n, k, row_bytes) = (self.packed.n, self.packed.k, self.packed.row());
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let chunk = rows_per_task(out.len() / n, n * k / 4, work.team.threads()) * n;
        work.for_each_chunk(out, chunk, |first, c| {
            let mut rows = Vec::with_capacity(c.len() / n * row_bytes);
            for row in first / n..(first + c.len()) / n {
                input.part(row * k, k).append_to(&mut rows);
                rows.resize(rows.len() + row_bytes - k, 0);
            }
            self.input.unsign(&mut rows);
            self.packed.multiply(View::of(&rows), c);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}
