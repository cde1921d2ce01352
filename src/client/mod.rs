//! A client of any NNAPI HAL driver: it connects, prepares models, and runs them in every way that the interface has.
//!
//! The tool, the delegate, tests and benches reach a driver through it. It must not know what a driver is made of:
//! everything goes over binder. Who wants a driver in its own process starts one and connects to its socket:
//!
//! ```
//! use nnhal::client::builder::Builder;
//! use nnhal::client::{shared::Shared, Address, ConnectOptions, Driver, Mode, PrepareOptions, Runner};
//! use nnhal::ops::OperationType;
//! use nnhal::tensor::{OperandType, TensorInfo};
//! use nnhal::{aidl, daemon::embedded};
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
//! // Input and output lie in one region of shared memory.
//! let memory = Shared::new(16)?;
//! memory.write(0, bytemuck::bytes_of(&[1.5f32, -0.5]))?;
//! let argument = |offset| aidl::RequestArgument {
//!     location: aidl::DataLocation { poolIndex: 0, offset, length: 8, padding: 0 },
//!     ..Default::default()
//! };
//! let request = aidl::Request {
//!     inputs: vec![argument(0)],
//!     outputs: vec![argument(8)],
//!     pools: vec![aidl::RequestMemoryPool::Pool(memory.memory()?)],
//! };
//! for mode in Mode::ALL {
//!     let mut runner = Runner::open(mode, &driver, &prepared, &request)?;
//!     assert_eq!(runner.run(&driver, &prepared, &request)?, aidl::ErrorStatus::NONE);
//!     let mut floored = [0f32; 2];
//!     memory.read(8, bytemuck::bytes_of_mut(&mut floored))?;
//!     assert_eq!(floored, [1.0, -1.0], "{}", mode.name());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `connect`: addresses, and how to get there; `driver`: a connection, and what becomes of it; `error`
//! - `builder`: models; `shared`: shared memory for them and for requests
//! - `prepare`: compilations; `cache_files`: the files that they are kept in
//! - `runner`: every way to execute; `fence`: waiting for one
//! - `fmq_burst`: bursts over fast message queues; `controller`: the client's end of their queues

#![warn(missing_docs)]

pub mod builder;
pub mod cache_files;
mod connect;
pub mod controller;
mod driver;
mod error;
pub mod fence;
pub mod fmq_burst;
mod prepare;
mod runner;
pub mod shared;

pub use connect::{Address, ConnectOptions};
pub use driver::Driver;
pub use error::{name, ClientError};
pub use prepare::{CacheFiles, PrepareOptions, Verdict, VerdictListener};
pub use runner::{burst_tokens, Mode, Runner};
