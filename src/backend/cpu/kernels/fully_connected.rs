//! FULLY_CONNECTED: rows of the input times the packed weights.

use super::conv::{pack_f32, pack_i8, QuantInput, PACKED_INPUTS};
use super::gemm_f32::PackedF32;
use super::gemm_i8::PackedI8;
use super::simd::Isa;
use super::{for_each_chunk, rows_per_task, Kernel, Source};
use crate::backend::cpu::pool::Team;
use crate::memory::Weights;
use crate::ops::{Args, OpError, Out};
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
    fn run(&self, args: &Args, outs: &mut [Out], team: Team) -> Result<(), OpError> {
        let (n, k) = (self.0.n, self.0.k);
        let input: &[f32] = args.get(0)?.elements()?;
        let out: &mut [f32] = outs[0].elements()?;
        let chunk = rows_per_task(out.len() / n, n * k, team.threads()) * n;
        for_each_chunk(team, args.interrupt, out, chunk, |first, c| {
            self.0.multiply(&input[first / n * k..][..c.len() / n * k], c);
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
    fn run(&self, args: &Args, outs: &mut [Out], team: Team) -> Result<(), OpError> {
        let (n, k, row_bytes) = (self.packed.n, self.packed.k, self.packed.row());
        let input = args.get(0)?.bytes()?;
        let out = &mut *outs[0].data;
        let chunk = rows_per_task(out.len() / n, n * k / 4, team.threads()) * n;
        for_each_chunk(team, args.interrupt, out, chunk, |first, c| {
            let mut rows = Vec::with_capacity(c.len() / n * row_bytes);
            for row in input[first / n * k..][..c.len() / n * k].chunks_exact(k) {
                rows.extend_from_slice(row);
                rows.resize(rows.len() + row_bytes - k, 0);
            }
            self.input.unsign(&mut rows);
            self.packed.multiply(&rows, c);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}
