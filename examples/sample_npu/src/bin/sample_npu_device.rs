//! The device, as a process. Its standard input is the socket to the driver.

fn main() -> std::io::Result<()> {
    sample_npu::device::run(std::io::stdin())
}
