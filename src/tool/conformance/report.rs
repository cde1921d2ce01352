//! The account of a run: failures as they come, a summary at the end, and the same as JSON.

use super::outcome::{Outcome, Skip};
use super::paths::Executions;
use super::probe::Available;
use super::runner::{Report, Work};
use super::suites::Suite;
use crate::tool::error::ToolError;
use crate::tool::print;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

#[derive(Default, Serialize)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// From the first model's start to the last one's end.
    seconds: f64,
    executions: Executions,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// A line of the JSON report.
#[derive(Serialize)]
struct Line {
    suite: &'static str,
    model: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    ms: f64,
}

/// Collects reports.
pub struct Account {
    started: Instant,
    bar: ProgressBar,
    jobs: usize,
    total: Counts,
    suites: BTreeMap<Suite, Counts>,
    /// When each suite's first model was started.
    starts: BTreeMap<Suite, f64>,
    /// How often each operation kept a model from being run.
    missing: BTreeMap<String, usize>,
    /// How often each other reason did.
    skips: BTreeMap<String, usize>,
    lines: Vec<Line>,
}

impl Account {
    /// The bar hides itself when standard error is no terminal.
    pub fn new(tasks: usize, jobs: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}");
        let bar = ProgressBar::new(tasks as u64);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Account {
            started: Instant::now(),
            bar,
            jobs,
            total: Counts::default(),
            suites: BTreeMap::new(),
            starts: BTreeMap::new(),
            missing: BTreeMap::new(),
            skips: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// Takes note of a report, and tells a failure at once.
    pub fn add(&mut self, work: &Work, report: Report) -> Result<(), ToolError> {
        let suite = report.task.suite;
        let now = self.started.elapsed().as_secs_f64();
        let counts = self.suites.entry(suite).or_default();
        let start = self.starts.entry(suite).or_insert(now - report.took.as_secs_f64());
        (counts.seconds, self.total.seconds) = (now - *start, now);
        for (&path, &count) in &report.executions {
            *counts.executions.entry(path).or_default() += count;
            *self.total.executions.entry(path).or_default() += count;
        }
        let (outcome, reason) = match &report.outcome {
            Outcome::Passed => {
                counts.passed += 1;
                self.total.passed += 1;
                ("passed", None)
            }
            Outcome::Failed(why) => {
                counts.failed += 1;
                self.total.failed += 1;
                let line = format!("FAILED {}: {}", work.name(&report.task), why.replace('\n', " "));
                self.bar.suspend(|| print::line(&line))?;
                self.bar.set_message(format!("{} failed", self.total.failed));
                ("failed", Some(why.clone()))
            }
            Outcome::Skipped(skip) => {
                counts.skipped += 1;
                self.total.skipped += 1;
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
        let model = work.files[report.task.file].models[report.task.model].name.clone();
        let ms = report.took.as_secs_f64() * 1e3;
        self.lines.push(Line { suite: suite.name(), model, outcome, reason, ms });
        self.bar.inc(1);
        Ok(())
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

    /// Writes the whole account as one JSON object.
    pub fn write_json(&self, path: &Path, available: &Available) -> Result<(), ToolError> {
        let paths: Vec<_> = available.paths.iter().map(|path| path.name()).collect();
        let suites: BTreeMap<_, _> =
            self.suites.iter().map(|(suite, counts)| (suite.name(), counts)).collect();
        let json = serde_json::json!({
            "passed": self.total.passed,
            "failed": self.total.failed,
            "seconds": self.total.seconds,
            "executions": self.total.executions,
            "client_threads": self.jobs,
            "skipped": self.total.skipped,
            "suites": suites,
            "interface_version": available.interface_version,
            "paths": paths,
            "left_out": available.left_out,
            "missing_operations": self.missing,
            "results": self.lines,
        });
        std::fs::write(path, json.to_string()).map_err(|why| ToolError::File { path: path.into(), why })
    }

    pub fn failed(&self) -> usize {
        self.total.failed
    }
}
