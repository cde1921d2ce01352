//! The binder objects, and the way to serve them.
//!
//! Handlers check what only they can see (who calls, raw arguments), hand the work down and turn errors into binder
//! status. They compute nothing themselves.
//!
//! - `device`: IDevice; `announce`: what a compilation's callback is told; `buffer`: device memory, IBuffer
//! - `prepared_model`: IPreparedModel; `execution`: IExecution; `burst`: IBurst; `fenced`: what runs behind a fence
//! - `fmq_burst`: the extension of every prepared model: bursts over fast message queues
//! - `run`: the one path that every way to execute takes; `fence`, `watcher`: fences, and the thread that waits for them
//! - `life`: whether client processes live; `arguments`: from request pools to tensors; `terms`: times, hints and the like
//! - `quotas`: how much of everything one client may have; `spare`: threads for tasks that may have to wait for a client
//! - `status`: the one place where errors become binder status
//! - `serve`, `embedded`: the service on a socket or a kernel binder, or in the tool's own process
//! - `daemon`, `logger`: the life of the process that is nothing but the service

#![allow(non_snake_case)] // the interface's methods are in camel case

mod announce;
mod arguments;
mod buffer;
mod burst;
pub mod daemon;
mod device;
pub mod embedded;
mod execution;
mod fence;
mod fenced;
mod fmq_burst;
mod life;
pub mod logger;
mod prepared_model;
mod quotas;
mod run;
pub mod serve;
mod spare;
mod status;
mod terms;
mod watcher;

pub use device::{new_driver, Driver, Options};
