//! The daemon: serves the CPU backend on a Unix socket or the kernel's binder until it is told to end.

use nnhal::backend::cpu::CpuBackend;
use nnhal::daemon;
use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::main(|flags| match flags.threads {
        Some(threads) => CpuBackend::new(threads),
        None => CpuBackend::on_all_cores(),
    })
}
