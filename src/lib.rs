//! nnhal: an Android Neural Networks HAL driver.
//!
//! The crate is laid out in floors; an import goes down, never up:
//!
//! | floor | module | what it holds |
//! |---|---|---|
//! | 10 | `tool` | the command-line tool, which reaches a driver through binder only |
//! | 9 | `daemon`, `tflite` | what makes the library a process; the importer of .tflite models |
//! | 8 | `client`, `service` | a client of any driver; the binder objects |
//! | 7 | `compiler`, `isolation`, `testing` | a compilation from request to prepared model; a backend in a process of its own; the kit that tests a backend |
//! | 6 | `cache`, `buffer`, `backend`, `fmq` | caches; device buffers; the seam and the CPU backend; fast message queues |
//! | 5 | `model` | models and requests, checked: once you hold one, it is valid |
//! | 4 | `scheduler` | who computes when, and how much one client may hold |
//! | 3 | `ops` | the operation table: signatures, shape rules, plain evaluation |
//! | 2 | `tensor` | operand types, shapes, quantisation |
//! | 1 | `memory` | client memory, which is hostile |
//! | 0 | `ipc`, `points`, `quota`, `statistics`, `sync`, `waits` | the binder library; what is done amid the reading of a message; limits on what can be counted, and how they are shared out; what a driver has done, counted; locks and atomics; what threads wait for |
//!
//! `aidl` holds the generated interface stubs; any floor that talks to clients may name its types.

// A panic ends the process in Android's build, for all clients: what can fail is an error. Only tests may panic.
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented, clippy::unwrap_used)
)]

// The generated stubs name the binder crate by its own name.
#[cfg(not(feature = "platform_binder"))]
extern crate binder as rsbinder;

pub mod aidl;
pub mod backend;
pub mod buffer;
pub mod cache;
// It speaks to drivers over sockets, too, which libbinder_rs does not.
#[cfg(not(feature = "platform_binder"))]
pub mod client;
pub mod compiler;
pub mod daemon;
pub mod fmq;
pub mod ipc;
pub mod isolation;
pub mod memory;
pub mod model;
pub mod ops;
pub mod points;
pub mod quota;
pub mod scheduler;
pub mod service;
pub mod statistics;
mod sync;
pub mod tensor;
pub mod testing;
#[cfg(feature = "tflite")]
pub mod tflite;
#[cfg(feature = "tool")]
pub mod tool;
mod waits;
