//! The daemon's sandbox: what its process gives up once it serves.
//!
//! It is the process that is confined, so this is for who owns it: a daemon inside of another's process is not.
//!
//! - `calls`, `narrowed`: which system calls it may go on making; `processes`: whether that is to start others
//! - `filter`: how these become the kernel's, and what is refused is logged

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod calls;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod narrowed;
mod processes;

pub use processes::Processes;

use crate::memory::give_up_new_privileges;
use nix::sys::resource::{setrlimit, Resource};

/// Gives up what can be given up before anything is there: programs that this process starts gain no privileges, and a
/// crash leaves no copy of its memory, which is clients' data, in a file. Must be called by the process's only thread.
///
/// Android's tombstones are written by a handler of the crash's signal, and by no core dump.
pub fn give_up_privileges() {
    if let Err(why) = give_up_new_privileges() {
        log::warn!("not confined: new privileges can be had: {why}");
    }
    if let Err(why) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        log::warn!("not confined: a crash may leave a core dump: {why}");
    }
}

/// Has the kernel refuse all threads of this process, for the rest of its life, what is on no list: the call fails with
/// EPERM, and the log has a line about it. If the kernel or the architecture cannot do that, the log says so.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn confine(processes: Processes) {
    match filter::apply(processes) {
        Ok(count) => log::info!("confined to {count} system calls"),
        Err(why) => log::warn!("not confined: {why}"),
    }
}

/// Nobody has made a list of calls for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn confine(_: Processes) {
    log::warn!("not confined: there is no list of system calls for {}", std::env::consts::ARCH);
}
