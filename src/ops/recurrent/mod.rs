//! Recurrent layers: LSTM, RNN and SVDF, for one step or over a sequence, float and quantised.

mod linear;
mod lstm;
mod lstm_cell;
mod lstm_layout;
mod operands;
mod sequence;
mod unidirectional_sequence_lstm;

pub use lstm::LSTM;
pub use unidirectional_sequence_lstm::UNIDIRECTIONAL_SEQUENCE_LSTM;
