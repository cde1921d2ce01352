//! The vendor's daemon: nnhald with the NPU in place of the CPU.

use nnhal::daemon;
use sample_npu::SampleNpu;

fn main() -> std::process::ExitCode {
    daemon::main(|_| SampleNpu::beside_this_program())
}
