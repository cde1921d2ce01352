//! FULLY_CONNECTED and BATCH_MATMUL.

use super::call::{dims, is_quantised, options, Call, Mapped};
use super::convolution::{bias, weights, weights_as_filter};
use super::graph::Quantisation;
use super::schema::Options;
use super::shape::{self, product};
use super::wide;
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
    let size = dims(call.output_tensor(0)?)?;
    let (Some((left_batch, left)), Some((right_batch, right)), Some((batch, result))) =
        (lhs.split_last_chunk::<2>(), rhs.split_last_chunk::<2>(), size.split_last_chunk::<2>())
    else {
        return Err(format!("{lhs:?} and {rhs:?} are no matrices").into());
    };
    let x = call.input(0)?;
    let y = weights(call, 1, x)?;
    let adjoint = [adj_x, adj_y].map(|adjoint| call.builder().boolean(adjoint));
    // NNAPI does not broadcast. One matrix for all on the right is one for all of their rows together.
    if right_batch.iter().all(|&dim| dim == 1)
        && !adj_x
        && (left_batch != right_batch || lhs.len() > shape::MOST)
    {
        let (rows, [_, depth]) = (product(&lhs[..lhs.len() - 1])?, *left);
        let operands = [call.reshaped(x, &[rows, depth]), call.reshaped(y, right), adjoint[0], adjoint[1]];
        return call.emit_reshaped(OperationType::BATCH_MATMUL, &operands, &[rows, result[1]]);
    }
    let batches = product(batch)?;
    let is_joined = size.len() > shape::MOST || left_batch != right_batch;
    let joined = |matrix: &[u32; 2]| vec![batches, matrix[0], matrix[1]];
    let mut operands = vec![x, y];
    for (operand, own, matrix) in [(0, left_batch, left), (1, right_batch, right)] {
        if own != batch {
            let whole = call.temporary_like(operands[operand], &joined(matrix));
            let (from, to) = ([own, matrix].concat(), [batch, matrix].concat());
            wide::repeat_to(call, operands[operand], &from, (&to, whole))?;
            operands[operand] = whole;
        } else if is_joined {
            operands[operand] = call.reshaped(operands[operand], &joined(matrix));
        }
    }
    operands.extend(adjoint);
    let size = if is_joined { joined(result) } else { size.clone() };
    call.emit_reshaped(OperationType::BATCH_MATMUL, &operands, &size)
}
