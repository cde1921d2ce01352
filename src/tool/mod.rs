//! The `nnhal` tool: it reaches a driver through binder as any client does, and never through the driver's internals.

pub mod bench;
mod cache;
pub mod cli;
pub mod conformance;
mod corpus;
pub mod driver;
pub mod error;
mod facts;
pub mod info;
mod inspect;
mod live;
mod mode;
mod model_file;
mod naming;
mod operations;
mod preparation;
pub mod print;
mod profile;
mod progress;
pub mod run;
