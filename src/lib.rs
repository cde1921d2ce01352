//! nnhal: an Android Neural Networks HAL driver.
//!
//! The crate is laid out in floors; an import goes down, never up:
//!
//! | floor | module | what it holds |
//! |---|---|---|
//! | 1 | `service`, `tool` | the binder objects; the command-line tool, which reaches a driver through binder only |
//! | 2 | `compiler`, `fmq` | a compilation from request to prepared model; fast message queues |
//! | 3 | `cache`, `backend` | compilation caches; the `Backend` and `Executable` traits and the CPU backend |
//! | 4 | `model` | models and requests, checked: once you hold one, it is valid |
//! | 5 | `ops` | the operation table: signatures, shape rules, plain evaluation |
//! | 6 | `tensor` | operand types, shapes, quantisation |
//! | 7 | `memory` | client memory, which is hostile |
//!
//! `aidl` holds the generated interface stubs; any floor that talks to clients may name its types.

// The generated stubs name the binder crate by its own name.
extern crate binder as rsbinder;

pub mod aidl;
pub mod backend;
pub mod cache;
pub mod compiler;
pub mod fmq;
pub mod memory;
pub mod model;
pub mod ops;
pub mod service;
pub mod tensor;
#[cfg(feature = "tool")]
pub mod tool;
