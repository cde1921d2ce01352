//! What a hostile client can do to the others. Each test has a daemon of its own, in a process that can be looked at.

mod attackers;
mod campaign;
#[path = "../common/mod.rs"]
mod common;
mod compiling;
mod daemon;
mod decoding;
mod disk;
mod drivers;
mod floods;
mod innocent;
mod limits;
mod memory;
mod peaks;
mod socket;
mod storage;
mod structures;
