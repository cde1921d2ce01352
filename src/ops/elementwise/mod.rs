//! Operations that treat each element by itself.

mod activation;
mod arithmetic;
mod cast;
mod comparison;
mod extremes;
mod floor;
mod logical;
mod pow;
mod prelu;
mod quantize;
mod select;
mod unary;
mod walk;

pub use activation::{hard_swish, ELU, HARD_SWISH, LOGISTIC, RELU, RELU1, RELU6, TANH};
pub use arithmetic::{ADD, DIV, MUL, SUB};
pub use cast::CAST;
pub use comparison::{EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, NOT_EQUAL};
pub use extremes::{MAXIMUM, MINIMUM};
pub use floor::FLOOR;
pub use logical::{LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR};
pub use pow::POW;
pub use prelu::PRELU;
pub use quantize::{DEQUANTIZE, QUANTIZE};
pub use select::SELECT;
pub use unary::{ABS, EXP, LOG, NEG, RSQRT, SIN, SQRT};
