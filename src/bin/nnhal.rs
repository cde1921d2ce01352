//! The command-line tool; its subcommands live in the library's `tool` module.

use nnhal::tool::cli::Cli;
use nnhal::tool::error::ToolError;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::of_command_line() {
        Ok(cli) => cli,
        Err(error) => return ended(&error),
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(cli.log_filter())).init();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(&error),
    }
}

fn ended(error: &ToolError) -> ExitCode {
    if !matches!(error, ToolError::Unread) {
        eprintln!("nnhal: {error}");
    }
    ExitCode::from(error.exit_code())
}
