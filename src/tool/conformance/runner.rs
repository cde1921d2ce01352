//! Runs suites over models on a few threads, one model at a time each, and notices when the driver dies or hangs.
//!
//! What was under way then is run again, each model alone, once the driver is back: the one that takes it down a second
//! time has failed. It must not know how a driver is brought back.

use super::context::{Context, SLACK};
use super::corpus::CorpusFile;
use super::evidence::{self, Evidence};
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

/// How often the watch looks.
const PULSE: Duration = Duration::from_secs(1);
/// A driver that was lost as often as this is not worth the wait for it any more.
const MOST_LOSSES: usize = 200;

/// One model in one suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Wrong outputs.
    pub evidence: Evidence,
}

/// What the workers share.
pub struct Work {
    pub files: Vec<CorpusFile>,
    pub tasks: Vec<Task>,
}

impl Work {
    pub fn case(&self, task: &Task) -> Case<'_> {
        let file = &self.files[task.file];
        Case { file, model: &file.models[task.model] }
    }

    /// A task's name in messages.
    pub fn name(&self, task: &Task) -> String {
        format!("{}/{}", task.suite.name(), self.case(task).model.name)
    }
}

/// The driver died, or gave no answer in time.
pub struct Loss {
    pub why: ToolError,
    /// What was under way, in words.
    pub doing: String,
    /// What was under way: any of it may have been the driver's end.
    suspects: Vec<Task>,
    /// What was not begun.
    rest: Vec<Task>,
}

/// Hears what happens in a run.
pub trait Audience {
    /// A task has ended; an error ends the run.
    fn ended(&mut self, report: Report) -> Result<(), ToolError>;
    /// The driver was lost, and is to be brought back; an error if it cannot be.
    fn lost(&mut self, loss: &Loss, context: &Arc<Context>) -> Result<Arc<Context>, ToolError>;
}

/// Runs all tasks on `jobs` threads. An error when the driver is lost for good.
pub fn run(
    work: &Arc<Work>,
    mut context: Arc<Context>,
    jobs: usize,
    audience: &mut dyn Audience,
) -> Result<(), ToolError> {
    let mut losses = 0;
    let (alone, mut tasks): (Vec<_>, Vec<_>) = work.tasks.iter().partition(|task| task.suite.is_built_in());
    while let Some(loss) = Crew::run(work, &context, tasks, jobs, audience)? {
        context = bring_back(&loss, &context, &mut losses, audience)?;
        let Loss { suspects, rest, .. } = loss;
        for suspect in suspects {
            let start = Instant::now();
            let Some(again) = Crew::run(work, &context, vec![suspect], 1, audience)? else { continue };
            audience.ended(failed(suspect, &again, start))?;
            context = bring_back(&again, &context, &mut losses, audience)?;
        }
        tasks = rest;
    }
    // If nothing else ran, this took the driver down without doubt.
    for task in alone {
        let start = Instant::now();
        let Some(loss) = Crew::run(work, &context, vec![task], 1, audience)? else { continue };
        audience.ended(failed(task, &loss, start))?;
        context = bring_back(&loss, &context, &mut losses, audience)?;
    }
    Ok(())
}

/// The report on a task that took the driver down.
fn failed(task: Task, loss: &Loss, start: Instant) -> Report {
    Report {
        task,
        outcome: Outcome::Failed(loss.why.to_string()),
        took: start.elapsed(),
        executions: Executions::new(),
        evidence: Evidence::new(),
    }
}

fn bring_back(
    loss: &Loss,
    context: &Arc<Context>,
    losses: &mut usize,
    audience: &mut dyn Audience,
) -> Result<Arc<Context>, ToolError> {
    *losses += 1;
    if *losses > MOST_LOSSES {
        return Err(ToolError::Failed(format!("the driver was lost {losses} times: the rest is not tried")));
    }
    audience.lost(loss, context)
}

/// The task of each worker, and since when it works at it.
type Doing = Mutex<Option<(Task, Instant)>>;

/// Threads at work on a list of tasks.
struct Crew {
    work: Arc<Work>,
    context: Arc<Context>,
    tasks: Vec<Task>,
    next: AtomicUsize,
    stopped: AtomicBool,
    doing: Vec<Doing>,
}

type Message = Result<Report, (Task, ToolError)>;

impl Crew {
    /// Runs the tasks; gives what is left of them where the driver was lost.
    fn run(
        work: &Arc<Work>,
        context: &Arc<Context>,
        tasks: Vec<Task>,
        jobs: usize,
        audience: &mut dyn Audience,
    ) -> Result<Option<Loss>, ToolError> {
        let jobs = jobs.min(tasks.len());
        let crew = Arc::new(Crew {
            work: work.clone(),
            context: context.clone(),
            tasks,
            next: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            doing: (0..jobs).map(|_| Mutex::new(None)).collect(),
        });
        let (sender, reports) = std::sync::mpsc::channel();
        for worker in 0..jobs {
            let (crew, sender) = (crew.clone(), sender.clone());
            // Not joined: it has sent all when it ends, or else never comes back from its call.
            std::thread::spawn(move || crew.labour(worker, &sender));
        }
        drop(sender);
        let ended = crew.watch(&reports, audience);
        crew.stopped.store(true, Ordering::Relaxed);
        ended
    }

    fn doing(&self, worker: usize) -> std::sync::MutexGuard<'_, Option<(Task, Instant)>> {
        self.doing[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn labour(&self, worker: usize, reports: &Sender<Message>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(&task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let start = Instant::now();
            *self.doing(worker) = Some((task, start));
            let run = || task.suite.run(&self.context, &self.work.case(&task));
            let outcome = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| Ok(Outcome::Failed("this tool panicked; please report it".into())));
            let (executions, evidence) = (paths::take_executions(), evidence::take());
            let message = match outcome {
                Ok(outcome) => Ok(Report { task, outcome, took: start.elapsed(), executions, evidence }),
                Err(error) => Err((task, error)),
            };
            let over = message.is_err();
            // Nobody listens any more once the watch has ended.
            if reports.send(message).is_err() || over {
                break;
            }
        }
    }

    /// Takes note that a task has been heard of: only now is nobody at it any more.
    fn done(&self, task: &Task) {
        for worker in 0..self.doing.len() {
            let mut doing = self.doing(worker);
            if doing.is_some_and(|(at, _)| at == *task) {
                *doing = None;
            }
        }
    }

    fn watch(
        &self,
        reports: &Receiver<Message>,
        audience: &mut dyn Audience,
    ) -> Result<Option<Loss>, ToolError> {
        loop {
            let first = match reports.recv_timeout(PULSE) {
                Ok(Ok(report)) => {
                    self.done(&report.task);
                    audience.ended(report)?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => match self.overdue() {
                    Some((task, limit)) => (task, ToolError::Hung(limit.as_secs())),
                    None => continue,
                },
                Ok(Err(loss)) => loss,
            };
            return self.wind_up(first, reports, audience).map(Some);
        }
    }

    /// Lets the others finish what they are at, where the driver still answers them.
    fn wind_up(
        &self,
        (task, why): (Task, ToolError),
        reports: &Receiver<Message>,
        audience: &mut dyn Audience,
    ) -> Result<Loss, ToolError> {
        self.stopped.store(true, Ordering::Relaxed);
        let doing = self.account(&task);
        let start = Instant::now();
        let mut suspects = vec![task];
        self.done(&task);
        while let Some(left) = self.limit().checked_sub(start.elapsed()) {
            if (0..self.doing.len()).all(|worker| self.doing(worker).is_none()) {
                break;
            }
            match reports.recv_timeout(left) {
                Ok(Ok(report)) => {
                    self.done(&report.task);
                    audience.ended(report)?;
                }
                Ok(Err((task, _))) => {
                    self.done(&task);
                    suspects.push(task);
                }
                Err(_) => break,
            }
        }
        // These have not come back from their calls.
        suspects.extend((0..self.doing.len()).filter_map(|worker| Some((*self.doing(worker))?.0)));
        let next = self.next.load(Ordering::Relaxed).min(self.tasks.len());
        Ok(Loss { why, doing, suspects, rest: self.tasks[next..].to_vec() })
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

    /// Longest that a model may take.
    fn limit(&self) -> Duration {
        self.context.driver.timeout().unwrap_or_default() + SLACK
    }

    fn overdue(&self) -> Option<(Task, Duration)> {
        let limit = self.limit();
        let doing = (0..self.doing.len()).filter_map(|worker| *self.doing(worker));
        let mut overdue = doing.filter(|(_, since)| since.elapsed() > limit);
        overdue.next().map(|(task, _)| (task, limit))
    }
}
