//! FULLY_CONNECTED and BATCH_MATMUL.

use super::call::{dims, is_quantised, options, Call, Mapped};
use super::convolution::{bias, weights, weights_as_filter};
use super::graph::Quantisation;
use super::schema::Options;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::element_count;

pub fn fully_connected(call: &mut Call) -> Mapped {
    let (activation, format) = options!(call, FullyConnected(o) => (o.activation, o.weights_format));
    if format != 0 {
        return Err("shuffled weights are not supported".into());
    }
    let weight_dims = dims(call.tensor(1)?)?;
    let [units, depth] = weight_dims[..] else {
        return Err(format!("weights of {weight_dims:?}, expected two dimensions").into());
    };
    let count = element_count(&dims(call.tensor(0)?)?).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    if !count.is_multiple_of(depth) {
        return Err(format!("{count} values for weights of {weight_dims:?}").into());
    }
    let layer = Layer { batch: count / depth, units, depth, activation };
    let data = call.input(0)?;
    let per_channel = matches!(call.tensor(1)?.quantisation, Quantisation::Channel { .. });
    if per_channel && is_quantised(call.tensor(0)?) {
        layer.as_convolution(call, data)
    } else {
        layer.plain(call, data)
    }
}

struct Layer {
    batch: u32,
    units: u32,
    depth: u32,
    activation: i8,
}

impl Layer {
    /// NNAPI's FULLY_CONNECTED, which gives [batch, units].
    fn plain(&self, call: &mut Call, data: OperandIndex) -> Mapped {
        let weights = weights(call, 1, data)?;
        let bias = bias(call, 2, data, weights, self.units)?;
        let own = call.builder().info(data).dims.clone();
        let whole_rows = (2..=4).contains(&own.len()) && own.last() == Some(&self.depth);
        let data = if whole_rows { data } else { call.reshaped(data, &[self.batch, self.depth]) };
        let activation = call.activation(self.activation)?;
        let operands = [data, weights, bias, activation];
        call.emit_reshaped(OperationType::FULLY_CONNECTED, &operands, &[self.batch, self.units])
    }

    /// NNAPI's FULLY_CONNECTED takes no per-channel weights, its CONV_2D does: the rows are images of one
    /// pixel under a filter of 1x1, which computes the very same sums.
    fn as_convolution(&self, call: &mut Call, data: OperandIndex) -> Mapped {
        let filter = weights_as_filter(call, 1)?;
        let bias = bias(call, 2, data, filter, self.units)?;
        let data = call.reshaped(data, &[self.batch, 1, 1, self.depth]);
        let operands = [
            data,
            filter,
            bias,
            call.padding(1)?,
            call.builder().int(1),
            call.builder().int(1),
            call.activation(self.activation)?,
        ];
        call.emit_reshaped(OperationType::CONV_2D, &operands, &[self.batch, 1, 1, self.units])
    }
}

pub fn batch_matmul(call: &mut Call) -> Mapped {
    let (adj_x, adj_y) = options!(call, BatchMatMul(o) => (o.adj_x, o.adj_y));
    let (lhs, rhs) = (dims(call.tensor(0)?)?, dims(call.tensor(1)?)?);
    let batches = |dims: &[u32]| dims[..dims.len().saturating_sub(2)].to_vec();
    if lhs.len() != rhs.len() || batches(&lhs) != batches(&rhs) {
        return Err(format!("NNAPI does not broadcast {lhs:?} and {rhs:?}").into());
    }
    let lhs = call.input(0)?;
    let rhs = weights(call, 1, lhs)?;
    let operands = [lhs, rhs, call.builder().boolean(adj_x), call.builder().boolean(adj_y)];
    let output = call.output(0)?;
    call.emit(OperationType::BATCH_MATMUL, &operands, &[output]);
    Ok(())
}
