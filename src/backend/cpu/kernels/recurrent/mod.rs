//! Recurrent layers of floats. They have one shape: the inputs of many steps are multiplied at once, states step by step, all
//! gates side by side in one product (`layer`), of whose sums `cell` makes the next state. `svdf` has no product of states.

mod cell;
mod layer;
mod svdf;
#[cfg(test)]
mod tests;

use super::gemm::Packed;
use super::isa::Isa;
use super::kernel::output;
use super::{Kernel, Source, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::pace::Pace;
use crate::ops::recurrent::RecurrentCall;
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType;
use layer::PackedLayer;

/// A kernel for this call, if it is one of a recurrent operation.
pub(super) fn select(
    isa: Isa,
    ty: OperationType,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let call = match ty {
        OperationType::LSTM => RecurrentCall::of_lstm(args),
        OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => RecurrentCall::of_lstm_sequence(args),
        OperationType::BIDIRECTIONAL_SEQUENCE_LSTM => RecurrentCall::of_two_lstms(args),
        OperationType::RNN => RecurrentCall::of_rnn(args),
        OperationType::UNIDIRECTIONAL_SEQUENCE_RNN => RecurrentCall::of_rnn_sequence(args),
        OperationType::BIDIRECTIONAL_SEQUENCE_RNN => RecurrentCall::of_two_rnns(args),
        OperationType::SVDF => return svdf::select(isa, args, source),
        _ => return None,
    };
    let RecurrentCall { layers, scratch } = call.ok()?;
    if args.get(0).ok()?.ty() != OperandType::TENSOR_FLOAT32 {
        return None;
    }
    let packed_inputs = layers.iter().flat_map(layer::weights).collect();
    let pack = |layer| PackedLayer::pack(isa, layer, args, source);
    let layers = layers.into_iter().map(pack).collect::<Option<_>>()?;
    Some(Box::new(Recurrent { layers, scratch, packed_inputs }))
}

struct Recurrent {
    layers: Vec<PackedLayer>,
    /// An output to be zeroed.
    scratch: Option<usize>,
    packed_inputs: Vec<usize>,
}

impl Kernel for Recurrent {
    fn name(&self) -> String {
        let name = self.layers.first().map(PackedLayer::name).unwrap_or_default();
        if self.layers.len() > 1 {
            format!("{name}, both ways")
        } else {
            name
        }
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        if let Some(i) = self.scratch {
            let mut scratch = output::<f32>(outputs, i)?;
            Pace::of(work.interrupt).each(0..scratch.len(), 1, |at| scratch.set(at, 0.0))?;
        }
        self.layers.iter().try_for_each(|layer| layer.run(inputs, outputs, work))
    }

    fn weights(&self) -> Vec<&Weights> {
        self.layers.iter().flat_map(PackedLayer::products).flat_map(Packed::weights).collect()
    }

    fn packed_inputs(&self) -> &[usize] {
        &self.packed_inputs
    }
}
