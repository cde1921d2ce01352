//! Running a corpus of conformance models against a driver.

pub mod check;
pub mod compare;
mod context;
pub mod corpus;
mod fenced;
mod hal_model;
mod outcome;
mod paths;
mod prepare;
mod probe;
mod report;
mod request;
mod runner;
mod session;
mod suites;
mod target;
mod validation;

use crate::client::ConnectOptions;
use crate::tool::driver::{self, ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use context::Context;
use corpus::CorpusFile;
use paths::ExecutionPath;
use probe::Available;
use report::Account;
use runner::{Task, Work};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use suites::Suite;

/// Longest wait for any one answer of the driver.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Run a corpus of conformance models (.nnt files) against a driver.
#[derive(Debug, clap::Args)]
pub struct ConformanceArgs {
    /// Directory of .nnt files, or one file.
    dir: PathBuf,
    /// Suites to run; all if none is named.
    #[arg(long, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// Run models whose name matches this regular expression only.
    #[arg(long)]
    filter: Option<regex::Regex>,
    /// Ways of execution to test; all that the driver has if none is named.
    #[arg(long, value_delimiter = ',')]
    paths: Vec<ExecutionPath>,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Client threads; two for each processor if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
}

/// Runs the suites. An error if a model failed, if there was none to run, or if the driver was lost.
pub fn run(service: &ServiceName, args: &ConformanceArgs) -> Result<(), ToolError> {
    let files = corpus::find_files(&args.dir)?;
    let files = files.iter().map(|path| CorpusFile::read(path)).collect::<Result<Vec<_>, _>>()?;
    let tasks = tasks(&files, args);
    if tasks.is_empty() {
        return Err(ToolError::Failed("no model of the corpus matches what was asked for".into()));
    }
    let jobs = args.jobs.map_or_else(client_threads, usize::from);
    let options = ServiceOptions {
        client: ConnectOptions { connections: jobs as u32, timeout: Some(TIMEOUT) },
        ..Default::default()
    };
    let driver = driver::connect(service, &options)?;
    let available = Available::probe(&driver, &args.paths)?;
    let mut account = Account::new(tasks.len(), jobs);
    let work = Arc::new(Work { context: Context { driver, available }, files, tasks });
    let lost = runner::run(&work, jobs, &mut |report| account.add(&work, report));
    let available = &work.context.available;
    if let Some(path) = &args.json {
        account.write_json(path, available)?;
    }
    account.print(available)?;
    lost?;
    match account.failed() {
        0 => Ok(()),
        count => Err(ToolError::Failed(format!("{count} models failed"))),
    }
}

/// Every model that is asked for, in every suite that is.
fn tasks(files: &[CorpusFile], args: &ConformanceArgs) -> Vec<Task> {
    let wanted = |suite: &&Suite| args.suite.is_empty() || args.suite.contains(suite);
    let mut tasks = Vec::new();
    for &suite in Suite::ALL.iter().filter(wanted) {
        for (file, corpus) in files.iter().enumerate() {
            for (model, facts) in corpus.models.iter().enumerate() {
                let matched = args.filter.as_ref().is_none_or(|filter| filter.is_match(&facts.name));
                if matched && suite.has(facts) {
                    tasks.push(Task { suite, file, model });
                }
            }
        }
    }
    tasks
}

/// More than there are processors: of each and the driver's thread that serves it, one waits for the other.
fn client_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}
