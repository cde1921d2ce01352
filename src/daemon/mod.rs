//! What makes the library a process: flags, log, sockets and the kernel's binder.
//!
//! - `run`: the daemon's life, from its flags to the signal that ends it
//! - `serve`: the service on a socket or a kernel binder; `embedded`: the same inside of another process
//! - `connections`: who may connect, and how much each may send; `frames`: where messages begin and end
//! - `logger`: the log; `sandbox`: what the process gives up once it serves
//!
//! It decides nothing about models or requests.

mod connections;
pub mod embedded;
mod frames;
pub mod logger;
mod run;
pub mod sandbox;
pub mod serve;

pub use run::{main, run, state_directory, DaemonError, Endpoint, Flags, USAGE};
