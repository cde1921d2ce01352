//! What makes the library a process: flags, log, sockets and the kernel's binder.
//!
//! - `run`: the daemon's life, from its flags to the signal that ends it
//! - `serve`: the service on a kernel binder; `unix`: the same on a socket; `embedded`: that inside of another process
//! - `connections`: who may connect; `guarded`: how much each may send; `crowding`: which of them go where there is no room;
//!   `frames`: where messages begin and end; `line`: how they take turns to be served
//! - `no_sockets`: what stands in for `unix` where the binder library serves none
//! - `logger`: the log; `sandbox`: what the process gives up once it serves
//!
//! It decides nothing about models or requests.

#[cfg(not(feature = "platform_binder"))]
mod connections;
#[cfg(not(feature = "platform_binder"))]
mod crowding;
#[cfg(not(feature = "platform_binder"))]
pub mod embedded;
#[cfg(not(feature = "platform_binder"))]
mod floods;
#[cfg(not(feature = "platform_binder"))]
mod frames;
#[cfg(not(feature = "platform_binder"))]
mod guarded;
#[cfg(not(feature = "platform_binder"))]
mod line;
pub mod logger;
mod run;
pub mod sandbox;
pub mod serve;
#[cfg(feature = "platform_binder")]
#[path = "no_sockets.rs"]
mod unix;
#[cfg(not(feature = "platform_binder"))]
pub mod unix;

pub use run::{main, run, state_directory, DaemonError, Endpoint, Flags, USAGE};
