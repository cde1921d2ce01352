//! A client of any NNAPI HAL driver: it connects, prepares models, and runs them in every way that the interface has.
//!
//! The tool, the delegate, tests and benches reach a driver through it. It must not know what a driver is made of:
//! everything goes over binder. To use a driver in its own process, a program starts one and connects to its socket:
//!
//! ```
//! use nnhal::client::builder::Builder;
//! use nnhal::client::{Address, ConnectOptions, Driver, Mode, PrepareOptions, Session};
//! use nnhal::ops::OperationType;
//! use nnhal::daemon::embedded;
//! use nnhal::tensor::{OperandType, TensorInfo};
//! use std::sync::Arc;
//!
//! let daemon = embedded::start(&embedded::Options::default())?;
//! let address = Address::Unix(daemon.socket().into());
//! let driver = Driver::connect(&address, &ConnectOptions::default())?.keeping(daemon);
//!
//! // A model of one operation: FLOOR of two floats.
//! let mut builder = Builder::default();
//! let floats = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[2]);
//! let (input, output) = (builder.input(floats.clone()), builder.output(floats));
//! builder.operation(OperationType::FLOOR, &[input], &[output]);
//! let model = builder.finish(vec![input], vec![output])?;
//! let prepared = driver.prepare(&model, &PrepareOptions::default())?;
//!
//! // Eight bytes in, eight bytes out, in shared memory; run in every way that there is.
//! let mut session = Session::new(Arc::new(driver), prepared, (&[8], &[8]), Mode::Sync)?;
//! for mode in Mode::ALL {
//!     session.set_mode(mode)?;
//!     session.memory().write(session.inputs()[0].start, bytemuck::bytes_of(&[1.5f32, -0.5]))?;
//!     session.run()?;
//!     let mut floored = [0f32; 2];
//!     session.memory().read(session.outputs()[0].start, bytemuck::bytes_of_mut(&mut floored))?;
//!     assert_eq!(floored, [1.0, -1.0], "{}", mode.name());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `connect`: addresses, and how to get there; `polled`: a connection whose answers are polled for; `driver`: what becomes of
//!   connections; `error`
//! - `builder`: models; `shared`: shared memory for them and for requests
//! - `prepare`: compilations; `cache_files`: the files that they are kept in
//! - `runner`: every way to execute; `session`: a prepared model with memory for its arguments; `fence`: waiting for one
//! - `diagnostics`: what our own driver tells of itself, and of prepared models; `recorder`: of their executions;
//!   `extension`: extension objects
//! - `fmq_burst`: bursts over fast message queues; `controller`: the client's end of their queues

#![warn(missing_docs)]

pub mod builder;
pub mod cache_files;
mod connect;
pub mod controller;
mod diagnostics;
mod driver;
mod error;
mod extension;
pub mod fence;
pub mod fmq_burst;
mod polled;
mod prepare;
mod recorder;
mod runner;
mod session;
pub mod shared;

pub use connect::{Address, ConnectOptions};
pub use diagnostics::Diagnostics;
pub use driver::Driver;
pub use error::{name, ClientError};
pub use polled::without_polling;
pub use prepare::{CacheFiles, PrepareOptions, PreparedModel, Verdict, VerdictListener};
pub use recorder::Recorder;
pub use runner::{burst_tokens, Mode, Runner};
pub use session::Session;
