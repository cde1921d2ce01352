//! The daemon: serves the driver on a Unix socket or the kernel's binder until it is told to end.

use nnhal::daemon::{self, logger};
use std::process::ExitCode;

fn main() -> ExitCode {
    logger::start();
    let flags = match daemon::Flags::parse(std::env::args().skip(1)) {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            println!("{}", daemon::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            logger::failed(format_args!("{why}; {}", daemon::USAGE));
            return ExitCode::from(2);
        }
    };
    match daemon::run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            logger::failed(format_args!("{why}"));
            ExitCode::FAILURE
        }
    }
}
