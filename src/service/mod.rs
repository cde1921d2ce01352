//! The binder objects.
//!
//! Handlers check what only they can see (who calls, raw arguments), hand the work down and turn errors into binder
//! status. They compute nothing themselves.
//!
//! - `driver`: a driver, and what its objects share
//! - `device`: IDevice; `announce`: what a compilation's callback is told; `buffer`: device memory, IBuffer
//! - `prepared_model`: IPreparedModel; `execution`: IExecution; `burst`: IBurst; `fenced`: what runs behind a fence
//! - `death`: watches on the death of a client's object
//! - `diagnostics`: the extension of the device, and what `dumpsys` prints: what the driver tells of itself; `report`: the
//!   telling; `profile`: what it tells of a prepared model, and what is recorded of that one's executions
//! - `fmq_burst`: the extension of every prepared model: bursts over fast message queues
//! - `run`: the one path that every way to execute takes; `fence`: fences
//! - `arguments`: from request pools to tensors; `terms`: times, hints and the like
//! - `status`: the one place where errors become binder status

#![allow(non_snake_case)] // the interface's methods are in camel case

mod announce;
mod arguments;
mod buffer;
mod burst;
mod death;
mod device;
mod diagnostics;
mod driver;
mod execution;
mod fence;
mod fenced;
mod fmq_burst;
mod prepared_model;
mod profile;
mod report;
mod run;
mod status;
mod terms;

pub use driver::{Driver, DriverBuilder};
