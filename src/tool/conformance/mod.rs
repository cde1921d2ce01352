//! Running a corpus of conformance models against a driver.

mod account;
pub mod check;
pub mod compare;
mod context;
pub mod corpus;
mod evidence;
mod fenced;
mod hal_model;
mod hostile;
mod outcome;
mod paths;
mod prepare;
mod probe;
mod recovery;
mod report;
mod request;
mod runner;
mod session;
mod suites;
mod target;
mod validation;

use crate::client::ConnectOptions;
use crate::tool::driver::{ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use crate::tool::facts::Facts;
use account::Account;
use context::Context;
use corpus::CorpusFile;
use paths::ExecutionPath;
use recovery::Recovery;
use report::failures::Failures;
use runner::{Audience, Loss, Task, Work};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use suites::Suite;

/// Run a corpus of conformance models (.nnt files) against a driver, or compare two such runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nnhal --service unix:/tmp/nnhal.sock conformance corpus/ --report report/
  nnhal --service binder:vendor conformance corpus/ --restart 'start vendor-nn' --timeout 30 --report report/
  nnhal --service unix:/tmp/nnhal.sock conformance --suite hostile --report hostile/
  nnhal conformance --diff before/report.json after/report.json

Exit code: 0 if nothing failed, 1 if something did, 2 if the run could not be made or not be ended.")]
pub struct ConformanceArgs {
    /// Directory of .nnt files, or one file; not needed for the hostile suite alone.
    dir: Option<PathBuf>,
    /// Suites to run; all that the corpus has models for if none is named.
    #[arg(long, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// Run models whose name matches this regular expression only.
    #[arg(long)]
    filter: Option<regex::Regex>,
    /// Ways of execution to test; all that the driver has if none is named.
    #[arg(long, value_delimiter = ',')]
    paths: Vec<ExecutionPath>,
    /// Write all results to this file; with --diff, what changed.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave a report there: report.html, report.json, and a directory for each failure.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Tell what changed between two reports, and fail if something newly fails. Nothing is run.
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["dir", "report", "restart"])]
    diff: Vec<PathBuf>,
    /// Client threads; two for each processor if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Longest wait for any one answer of the driver, in seconds.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// What starts the driver, for the shell: run when it died or hung, and at first if nobody serves. It may be the driver
    /// itself, and is ended before it is run again.
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// How long a driver that died or hung may take to come back, in seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    wait: u32,
}

/// Runs the suites. An error if a model failed, if there was none to run, or if the driver was lost.
pub fn run(service: &ServiceName, args: &ConformanceArgs) -> Result<(), ToolError> {
    if let [before, after] = &args.diff[..] {
        return report::diff::run(before, after, args.json.as_deref());
    }
    let files = files(args)?;
    let tasks = tasks(&files, args);
    if tasks.is_empty() {
        return Err(ToolError::Usage("no model of the corpus matches what was asked for".into()));
    }
    let failures = match &args.report {
        Some(directory) => Some(Failures::new(directory, flags(service))?),
        None => None,
    };
    let jobs = args.jobs.map_or_else(client_threads, usize::from);
    let timeout = Some(Duration::from_secs(args.timeout.into()));
    let options =
        ServiceOptions { client: ConnectOptions { connections: jobs as u32, timeout }, ..Default::default() };
    let wait = Duration::from_secs(args.wait.into());
    let mut recovery = Recovery::new(service, options, args.restart.clone(), wait);
    let context = recovery.first(&args.paths)?;
    // A driver that does not tell of itself is tested all the same.
    let asked = context.clone();
    let facts =
        recovery::bounded(recovery.limit(), move || Facts::ask(&asked.driver)).and_then(|facts| facts);
    let facts = facts.map_err(|why| log::warn!("{why}")).ok();
    let available = context.available.clone();
    let work = Arc::new(Work { files, tasks });
    let account = Account::new(work.tasks.len(), jobs);
    let mut listener = Listener { work: work.clone(), account, failures, recovery };
    let ended = runner::run(&work, context, jobs, &mut listener);
    let mut account = listener.account;
    // Reports of two runs are the same, whatever thread was first.
    account.lines.sort_by(|a, b| (a.suite, &a.model).cmp(&(b.suite, &b.model)));
    let report =
        report::Report::new(&account, &available, facts.as_ref(), service.to_string(), work.tasks.len());
    // One that fails keeps none of the others from being had: there is nothing else left of the run.
    let printed = account.print(&available);
    let written = args.json.as_ref().map_or(Ok(()), |path| report.write_json(path));
    let laid_out = args.report.as_ref().map_or(Ok(()), |directory| report::write(&report, directory));
    ended.and(printed).and(written).and(laid_out)?;
    account.verdict()
}

/// Takes note of what happens, and brings the driver back.
struct Listener {
    work: Arc<Work>,
    account: Account,
    failures: Option<Failures>,
    recovery: Recovery,
}

impl Audience for Listener {
    fn ended(&mut self, report: runner::Report) -> Result<(), ToolError> {
        let directory = match &mut self.failures {
            Some(failures) => failures.keep(&self.work, &report)?,
            None => None,
        };
        self.account.add(&self.work, &report, directory)
    }

    fn lost(&mut self, loss: &Loss, context: &Arc<Context>) -> Result<Arc<Context>, ToolError> {
        let start = Instant::now();
        let back = self.recovery.back(context);
        self.account.lost(loss, back.is_ok().then(|| start.elapsed()))?;
        back.map_err(|why| self.recovery.gone(loss.why.to_string(), loss.doing.clone(), why))
    }
}

/// The flags by which the driver is reached again.
fn flags(service: &ServiceName) -> String {
    match service {
        ServiceName::Embedded => String::new(),
        service => format!("--service {service}"),
    }
}

/// The corpus, and the cases of suites that have none there.
fn files(args: &ConformanceArgs) -> Result<Vec<CorpusFile>, ToolError> {
    let mut files = match &args.dir {
        Some(dir) => {
            let found = corpus::find_files(dir)?;
            found.iter().map(|path| CorpusFile::read(path)).collect::<Result<Vec<_>, _>>()?
        }
        None if !args.suite.is_empty() && args.suite.iter().all(|suite| suite.is_built_in()) => Vec::new(),
        None => return Err(ToolError::Usage("name a directory of .nnt files, or --suite hostile".into())),
    };
    if args.suite.contains(&Suite::Hostile) {
        files.push(hostile::corpus());
    }
    Ok(files)
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
