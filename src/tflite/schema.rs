//! The file format as Rust types: what `build.rs` generates from `schema.fbs`. Reads are checked: a damaged file gives
//! errors.

// Only the readers and the plain structures of the generated code are used.
#![allow(dead_code, unused_imports, clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/tflite.rs"));
