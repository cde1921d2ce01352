//! Runs suites over models on a few threads, one model at a time each, and notices when the driver dies or hangs.

use super::context::Context;
use super::corpus::CorpusFile;
use super::hal_model::Case;
use super::outcome::Outcome;
use super::paths::{self, Executions};
use super::suites::Suite;
use crate::tool::error::ToolError;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No model takes as long as this, on any machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How often the watch looks.
const PULSE: Duration = Duration::from_secs(1);

/// One model in one suite.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub suite: Suite,
    /// Into the files, and into the file's models.
    pub file: usize,
    pub model: usize,
}

/// What became of a task.
pub struct Report {
    pub task: Task,
    pub outcome: Outcome,
    pub took: Duration,
    pub executions: Executions,
}

/// What the workers share.
pub struct Work {
    pub context: Context,
    pub files: Vec<CorpusFile>,
    pub tasks: Vec<Task>,
}

impl Work {
    fn case(&self, task: &Task) -> Case<'_> {
        let file = &self.files[task.file];
        Case { file, model: &file.models[task.model] }
    }

    /// A task's name in messages.
    pub fn name(&self, task: &Task) -> String {
        format!("{}/{}", task.suite.name(), self.case(task).model.name)
    }
}

/// What each worker is at, since when.
type Doing = Mutex<Option<(Task, Instant)>>;

struct Crew {
    work: Arc<Work>,
    next: AtomicUsize,
    stopped: AtomicBool,
    doing: Vec<Doing>,
}

/// Hears of every task as it ends; an error ends the run.
type Each<'a> = &'a mut dyn FnMut(Report) -> Result<(), ToolError>;

/// Runs all tasks on `jobs` threads. An error when the driver is lost.
pub fn run(work: &Arc<Work>, jobs: usize, each: Each) -> Result<(), ToolError> {
    let crew = Arc::new(Crew {
        work: work.clone(),
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        doing: (0..jobs).map(|_| Mutex::new(None)).collect(),
    });
    let (sender, reports) = std::sync::mpsc::channel();
    let mut workers = Vec::new();
    for worker in 0..jobs {
        let (crew, sender) = (crew.clone(), sender.clone());
        workers.push(std::thread::spawn(move || crew.labour(worker, &sender)));
    }
    drop(sender);
    let ended = crew.watch(&reports, each);
    crew.stopped.store(true, Ordering::Relaxed);
    // Where the driver is lost the workers are left behind: one of them may never come back from its call.
    if matches!(ended, Ok(()) | Err(ToolError::Unread)) {
        for worker in workers {
            // A panic has been reported as the model's failure.
            let _ = worker.join();
        }
    }
    ended
}

type Message = Result<Report, (Task, ToolError)>;

impl Crew {
    fn doing(&self, worker: usize) -> std::sync::MutexGuard<'_, Option<(Task, Instant)>> {
        self.doing[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn labour(&self, worker: usize, reports: &Sender<Message>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(&task) = self.work.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let start = Instant::now();
            *self.doing(worker) = Some((task, start));
            let run = || task.suite.run(&self.work.context, &self.work.case(&task));
            let outcome = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| Ok(Outcome::Failed("this tool panicked; please report it".into())));
            let message = match outcome {
                Ok(outcome) => {
                    let executions = paths::take_executions();
                    Ok(Report { task, outcome, took: start.elapsed(), executions })
                }
                Err(error) => Err((task, error)),
            };
            let over = message.is_err();
            // Nobody listens any more once the watch has ended.
            if reports.send(message).is_err() || over {
                break;
            }
            *self.doing(worker) = None;
        }
    }

    fn watch(&self, reports: &Receiver<Message>, each: Each) -> Result<(), ToolError> {
        loop {
            match reports.recv_timeout(PULSE) {
                Ok(Ok(report)) => each(report)?,
                Ok(Err((task, error))) => {
                    return Err(ToolError::Lost { error: Box::new(error), doing: self.account(&task) })
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => self.check_time()?,
            }
        }
    }

    /// The task that met an error, and what else ran at the time: any of them may have been the driver's end.
    fn account(&self, task: &Task) -> String {
        let first = self.work.name(task);
        let busy = (0..self.doing.len()).filter_map(|worker| *self.doing(worker));
        let others: Vec<_> =
            busy.map(|(task, _)| self.work.name(&task)).filter(|name| *name != first).collect();
        match others.is_empty() {
            true => first,
            false => format!("{first}, beside {}", others.join(", ")),
        }
    }

    fn check_time(&self) -> Result<(), ToolError> {
        for worker in 0..self.doing.len() {
            let Some((task, since)) = *self.doing(worker) else { continue };
            if since.elapsed() > LIMIT {
                let error = ToolError::Hung(LIMIT.as_secs());
                return Err(ToolError::Lost { error: Box::new(error), doing: self.work.name(&task) });
            }
        }
        Ok(())
    }
}
