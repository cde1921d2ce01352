//! The `nnhal` tool: it reaches a driver through binder as any client does, and never through the driver's internals.

pub mod bench;
pub mod builder;
mod cache;
pub mod caching;
pub mod cli;
pub mod client;
pub mod conformance;
pub mod error;
pub mod fmq;
pub mod info;
mod operations;
mod preparation;
pub mod print;
pub mod run;
pub mod shared;
pub mod tflite;
pub mod way;
