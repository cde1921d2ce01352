//! The command-line tool; its subcommands live in the library's `tool` module.

use nnhal::tool::cli::Cli;
use nnhal::tool::error::ToolError;
use std::io::Write;
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
        // Where that cannot be written, the exit code is all that tells: eprintln! would panic, with a code of its own.
        let _ = writeln!(std::io::stderr(), "nnhal: {error}");
    }
    ExitCode::from(error.exit_code())
}
