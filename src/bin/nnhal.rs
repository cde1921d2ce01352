//! The command-line tool; its subcommands live in the library's `tool` module.

use clap::Parser;
use nnhal::tool::cli::Cli;
use nnhal::tool::error::ToolError;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(cli.log_filter())).init();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, ToolError::Unread) {
                eprintln!("nnhal: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
