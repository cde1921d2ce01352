//! The daemon as a process: its socket, its errors, its end, its sandbox, and what kills at any moment leave behind.

#[path = "../common/mod.rs"]
mod common;

mod kills;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod sandbox;
mod serving;
