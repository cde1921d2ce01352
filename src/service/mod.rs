//! The binder objects.
//!
//! Handlers check what only they can see (who calls, raw arguments), hand the work down and turn errors into binder
//! status. They compute nothing themselves.
//!
//! - `driver`: how a driver is made; `core`: what its objects share; `prepared`: a prepared model as the driver has it
//! - `device`: IDevice; `announce`: what a compilation's callback is told; `buffer`: device memory, IBuffer
//! - `prepared_model`: IPreparedModel; `execution`: IExecution; `burst`: IBurst; `fenced`: what runs behind a fence,
//!   `times`: when, and how long it took
//! - `death`: watches on the death of a client's object
//! - `diagnostics`: the extension of the device, and what `dumpsys` prints: what the driver tells of itself; `report`: the
//!   telling; `profile`: what it tells of a prepared model, and what is recorded of that one's executions
//! - `fmq_burst`: the extension of every prepared model: bursts over fast message queues
//! - `run`: the one path that every way to execute takes; `fence`: fences
//! - `arguments`: from request pools to tensors; `terms`: times, hints and the like
//! - `call`: the wrapper that every handler runs in; `status`: the one place where errors become binder status

#![allow(non_snake_case)] // the interface's methods are in camel case

mod announce;
mod arguments;
mod buffer;
mod burst;
mod busy;
mod call;
mod core;
mod death;
mod device;
mod diagnostics;
mod driver;
mod execution;
mod fence;
mod fenced;
mod fmq_burst;
mod prepared;
mod prepared_model;
mod profile;
mod report;
mod run;
mod status;
mod terms;
mod times;

pub use driver::{Driver, DriverBuilder};
