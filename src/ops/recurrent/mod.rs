//! Recurrent layers: LSTM, RNN and SVDF, for one step or over a sequence, float and quantised.

mod bidirectional;
mod bidirectional_sequence_lstm;
mod bidirectional_sequence_rnn;
#[cfg(test)]
mod hostile_tests;
mod layer;
mod linear;
mod lstm;
mod lstm_cell;
mod lstm_layout;
mod operands;
mod quantized_16bit_lstm;
mod quantized_lstm;
mod quantized_lstm_cell;
mod rnn;
mod rnn_cell;
mod sequence;
mod svdf;
mod unidirectional_sequence_lstm;

pub use bidirectional_sequence_lstm::BIDIRECTIONAL_SEQUENCE_LSTM;
pub use bidirectional_sequence_rnn::BIDIRECTIONAL_SEQUENCE_RNN;
pub use layer::{Cell, GateOperands, Layer, RecurrentCall};
pub use linear::CellActivation;
pub use lstm::LSTM;
pub use lstm_cell::{normalise, LstmParams};
pub use quantized_16bit_lstm::QUANTIZED_16BIT_LSTM;
pub use quantized_lstm::QUANTIZED_LSTM;
pub use rnn::{RNN, UNIDIRECTIONAL_SEQUENCE_RNN};
pub use svdf::{SvdfCall, SVDF};
pub use unidirectional_sequence_lstm::UNIDIRECTIONAL_SEQUENCE_LSTM;
