//! The device, as a process. Its standard input is the socket to the driver.

fn main() -> std::process::ExitCode {
    match sample_npu::device::run(std::io::stdin()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sample_npu_device: {why}");
            std::process::ExitCode::FAILURE
        }
    }
}
