//! The account of a run: failures as they come, a summary at the end, and the same for a report.

use super::outcome::{Outcome, Skip};
use super::paths::Executions;
use super::probe::Available;
use super::runner::{Loss, Report, Work};
use super::suites::Suite;
use crate::tool::error::ToolError;
use crate::tool::{print, progress};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How models fared together.
#[derive(Clone, Default, Serialize)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// From the first model's start to the last one's end.
    pub seconds: f64,
    pub executions: Executions,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Skipped(_) => &mut self.skipped,
        } += 1;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// How a model fared in a suite.
#[derive(Clone, Serialize)]
pub struct Line {
    pub suite: &'static str,
    pub model: String,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub ms: f64,
    /// Where in the report the failure is laid out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// A time that the driver died or gave no answer.
#[derive(Clone, Serialize)]
pub struct Lost {
    pub why: String,
    pub doing: String,
    /// How long it took until it answered again; none if it did not.
    pub back_after_seconds: Option<f64>,
}

/// Collects reports.
pub struct Account {
    started: Instant,
    bar: ProgressBar,
    pub jobs: usize,
    pub total: Counts,
    pub suites: BTreeMap<Suite, Counts>,
    /// By tested operation and the type of its first input.
    pub operations: BTreeMap<(String, String), Counts>,
    /// When each suite's first model was started.
    starts: BTreeMap<Suite, f64>,
    /// How often each operation kept a model from being run.
    pub missing: BTreeMap<String, usize>,
    /// How often each other reason did.
    pub skips: BTreeMap<String, usize>,
    pub lines: Vec<Line>,
    pub losses: Vec<Lost>,
}

impl Account {
    /// The bar hides itself when standard error is no terminal.
    pub fn new(tasks: usize, jobs: usize) -> Self {
        let bar = progress::bar(tasks as u64);
        Account {
            started: Instant::now(),
            bar,
            jobs,
            total: Counts::default(),
            suites: BTreeMap::new(),
            operations: BTreeMap::new(),
            starts: BTreeMap::new(),
            missing: BTreeMap::new(),
            skips: BTreeMap::new(),
            lines: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Takes note of a report, and tells a failure at once. `directory` is where the failure is laid out.
    pub fn add(&mut self, work: &Work, report: &Report, directory: Option<String>) -> Result<(), ToolError> {
        let suite = report.task.suite;
        let now = self.started.elapsed().as_secs_f64();
        let counts = self.suites.entry(suite).or_default();
        let start = self.starts.entry(suite).or_insert(now - report.took.as_secs_f64());
        (counts.seconds, self.total.seconds) = (now - *start, now);
        for (&path, &count) in &report.executions {
            *counts.executions.entry(path).or_default() += count;
            *self.total.executions.entry(path).or_default() += count;
        }
        counts.add(&report.outcome);
        self.total.add(&report.outcome);
        let model = work.case(&report.task).model;
        for (operation, ty) in model.tested() {
            let counts = self.operations.entry((operation.into(), ty.into())).or_default();
            counts.add(&report.outcome);
            counts.seconds += report.took.as_secs_f64();
        }
        let (outcome, reason) = match &report.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Failed(why) => {
                self.tell(format!("FAILED {}: {}", work.name(&report.task), why.replace('\n', " ")))?;
                self.bar.set_message(format!("{} failed", self.total.failed));
                ("failed", Some(why.clone()))
            }
            Outcome::Skipped(skip) => {
                match skip {
                    Skip::Unsupported(operations) => {
                        for operation in operations {
                            *self.missing.entry(operation.clone()).or_default() += 1;
                        }
                    }
                    skip => *self.skips.entry(format!("{}: {skip}", suite.name())).or_default() += 1,
                }
                ("skipped", Some(skip.to_string()))
            }
        };
        let ms = report.took.as_secs_f64() * 1e3;
        let (suite, model) = (suite.name(), model.name.clone());
        self.lines.push(Line { suite, model, outcome, reason, ms, directory });
        self.bar.inc(1);
        Ok(())
    }

    /// Takes note that the driver was lost, and that it came back, if it did.
    pub fn lost(&mut self, loss: &Loss, back_after: Option<Duration>) -> Result<(), ToolError> {
        let (why, doing) = (loss.why.to_string(), loss.doing.clone());
        let back = match back_after {
            Some(time) => format!("it was back after {:.1} s", time.as_secs_f64()),
            None => "it did not come back".into(),
        };
        self.tell(format!("LOST {why} (while running {doing}); {back}"))?;
        let back_after_seconds = back_after.map(|time| time.as_secs_f64());
        self.losses.push(Lost { why, doing, back_after_seconds });
        Ok(())
    }

    /// Prints a line above the bar.
    fn tell(&self, line: String) -> Result<(), ToolError> {
        self.bar.suspend(|| print::line(line))
    }

    /// Prints the summary; its last line is the one that scripts read.
    pub fn print(&self, available: &Available) -> Result<(), ToolError> {
        self.bar.finish_and_clear();
        let paths: Vec<_> = available.paths.iter().map(|path| path.name()).collect();
        print::line(format!("executed by: {}", paths.join(", ")))?;
        for left_out in &available.left_out {
            print::line(format!("left out: {left_out}"))?;
        }
        for (reason, count) in &self.skips {
            print::line(format!("skipped {count} in {reason}"))?;
        }
        if !self.missing.is_empty() {
            let mut missing: Vec<_> = self.missing.iter().collect();
            missing.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let missing: Vec<_> = missing.iter().map(|(name, count)| format!("{name} {count}")).collect();
            print::line(format!("skipped for missing operations: {}", missing.join(", ")))?;
        }
        for (suite, counts) in &self.suites {
            print::line(format!("{}: {counts} in {:.1} s", suite.name(), counts.seconds))?;
            let executions: Vec<_> =
                counts.executions.iter().map(|(path, count)| format!("{path} {count}")).collect();
            print::line(format!("  {} executed: {}", suite.name(), executions.join(", ")))?;
        }
        print::line(format!("all in {:.1} s with {} client threads", self.total.seconds, self.jobs))?;
        print::line(&self.total)
    }

    /// The verdict on the driver.
    pub fn verdict(&self) -> Result<(), ToolError> {
        match (self.total.failed, self.losses.len()) {
            (0, 0) => Ok(()),
            (0, times) => Err(ToolError::Failed(format!("the driver died or hung {times} times"))),
            (count, 0) => Err(ToolError::Failed(format!("{count} models failed"))),
            (count, times) => Err(ToolError::Failed(format!(
                "{count} models failed; the driver died or hung {times} times"
            ))),
        }
    }
}
