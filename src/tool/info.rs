//! `nnhal info`: what a driver says of itself, and the operations that this build knows.

use super::driver::{self, ServiceName, ServiceOptions};
use super::error::ToolError;
use super::facts::{Facts, Performance};
use super::{live, operations, print};
use crate::client::ConnectOptions;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Print what a driver says of itself, and the operations with the types they accept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nnhal --service unix:/tmp/nnhal.sock info --json")]
pub struct InfoArgs {
    /// Print the operations alone, as docs/OPERATIONS.md has them.
    #[arg(long)]
    markdown: bool,
    /// Print what the driver says of itself as one line of JSON.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the driver's state instead: its clients, their executions and how long these took, what is held of each
    /// limit, caches, and what was refused. docs/DIAGNOSTICS.md explains each figure.
    #[arg(long, conflicts_with = "markdown")]
    live: bool,
}

pub fn run(service: &ServiceName, args: &InfoArgs) -> Result<(), ToolError> {
    if args.markdown {
        return print::line(operations::markdown().trim_end());
    }
    let options = ServiceOptions {
        client: ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() },
        ..Default::default()
    };
    let driver = driver::connect(service, &options)?;
    if args.live {
        return live::tell(&driver, args.json);
    }
    let facts = Facts::ask(&driver)?;
    if args.json {
        return print::json(&facts);
    }
    describe(&facts)?;
    print::line("\noperations of this build:")?;
    print::line(operations::plain().trim_end())
}

fn describe(facts: &Facts) -> Result<(), ToolError> {
    print::line(format!("version: {}", facts.version))?;
    print::line(format!("interface: {} ({})", facts.interface, facts.interface_hash))?;
    print::line(format!("type: {}", facts.ty))?;
    print::line(format!("cache files: {}", facts.cache_files()))?;
    print::line(format!("extensions: {}", facts.extensions()))?;
    print::line("performance, relative to the processor (time, power; less is better):")?;
    facts.performance.iter().try_for_each(|Performance { what, time, power }| {
        print::line(format_args!("  {what}: {time}, {power}"))
    })
}
