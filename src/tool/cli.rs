//! The command line: subcommands, and the driver that they talk to.

use super::bench::{self, BenchArgs};
use super::cache::{self, CacheArgs};
use super::conformance::{self, ConformanceArgs};
use super::corpus::{self, CorpusArgs};
use super::driver::ServiceName;
use super::error::ToolError;
use super::info::{self, InfoArgs};
use super::inspect::{self, InspectArgs};
use super::run::{self, RunArgs};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Runs, measures and checks models on an Android Neural Networks driver.
#[derive(Debug, Parser)]
#[command(
    name = "nnhal",
    version,
    after_help = "\
Examples:
  nnhal run models/digits_int8.tflite --input tests/data/digits
  nnhal --service unix:/tmp/nnhal.sock info --live
  nnhal bench --help"
)]
pub struct Cli {
    /// The driver: embedded (one in this process), unix:PATH or binder:INSTANCE.
    #[arg(long, global = true, default_value = "embedded")]
    service: ServiceName,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
    Bench(BenchArgs),
    Conformance(ConformanceArgs),
    Corpus(CorpusArgs),
    Info(InfoArgs),
    Inspect(InspectArgs),
    Cache(CacheArgs),
}

impl Cli {
    /// What the command line asks for; else what is wrong with it, in a line.
    ///
    /// Ends the process where it asks for help or the version, which it prints.
    pub fn of_command_line() -> Result<Self, ToolError> {
        Cli::try_parse().map_err(|why| {
            match why.use_stderr() && why.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                true => ToolError::Usage(in_a_line(&why.to_string())),
                false => why.exit(),
            }
        })
    }

    /// What is logged unless RUST_LOG says otherwise.
    pub fn log_filter(&self) -> &'static str {
        match &self.command {
            // The corpus asks for refusals, so an embedded driver's warnings of them are of no use.
            Command::Conformance(_) => "warn,rsbinder=error,nnhal::service=error",
            _ => "warn,rsbinder=error",
        }
    }

    pub fn run(&self) -> Result<(), ToolError> {
        match &self.command {
            Command::Run(args) => run::run(&self.service, args),
            Command::Bench(args) => bench::run(&self.service, args),
            Command::Conformance(args) => conformance::run(&self.service, args),
            Command::Corpus(args) => corpus::run(args),
            Command::Info(args) => info::run(&self.service, args),
            Command::Inspect(args) => inspect::run(&self.service, args),
            Command::Cache(args) => cache::run(args),
        }
    }
}

/// What is said of a wrong command line in several paragraphs, with where to look for a right one.
fn in_a_line(error: &str) -> String {
    let paragraphs = error.trim_start_matches("error: ").split("\n\n");
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_fault = |paragraph: &String| !paragraph.is_empty() && !paragraph.starts_with("Usage:");
    let faults: Vec<String> = paragraphs.map(words).filter(is_fault).collect();
    faults.join("; ").replace("; For more information, try", ": for more information, try")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_takes_one_line_to_explain() {
        let told = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            in_a_line(&error.to_string())
        };
        let missing = told(&["nnhal", "run"]);
        assert_eq!(
            missing,
            "the following required arguments were not provided: <MODEL>: for more information, try '--help'."
        );
        let unknown = told(&["nnhal", "corpus", "--fom", "x"]);
        assert!(unknown.contains("'--fom'") && unknown.contains("'--from'"), "{unknown}");
        for line in
            [missing, unknown, told(&["nnhal", "bench", "m", "--seconds", "0"]), told(&["nnhal", "bnch"])]
        {
            assert!(
                !line.contains('\n') && !line.starts_with("error") && line.ends_with("'--help'."),
                "{line}"
            );
        }
    }
}
