//! The daemon as a process: its socket, its errors, its end, and what kills at any moment leave behind.

#[path = "../common/mod.rs"]
mod common;

mod kills;
mod serving;
