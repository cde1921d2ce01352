//! Corpora (`.nnt` files): conformance models with their inputs and expected outputs.
//!
//! - `model`: what a model is there; `file`: the files, which are a header of 64 bytes, one JSON object for each model, and
//!   operand bytes

mod file;
mod model;

pub use file::{find_files, to_bytes, Blob, CorpusError, CorpusFile};
pub use model::{ChannelQuant, Lifetime, Model, Operand, Operation, Subgraph};
