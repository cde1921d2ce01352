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
use clap::{Parser, Subcommand};

/// Runs, measures and checks models on an Android Neural Networks driver.
#[derive(Debug, Parser)]
#[command(name = "nnhal", version)]
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
    /// What is logged unless RUST_LOG says otherwise.
    pub fn log_filter(&self) -> &'static str {
        match &self.command {
            // What an embedded driver warns of there is what it was asked for: to refuse.
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
