//! The account of a run: failures as they come, a summary at the end, and the same as JSON.

use super::outcome::{Outcome, Skip};
use super::probe::Available;
use super::runner::{Report, Work};
use super::suites::Suite;
use crate::tool::error::ToolError;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Copy, Default, Serialize)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
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
    bar: ProgressBar,
    total: Counts,
    suites: BTreeMap<Suite, Counts>,
    /// How often each operation kept a model from being run.
    missing: BTreeMap<String, usize>,
    /// How often each other reason did.
    skips: BTreeMap<String, usize>,
    lines: Vec<Line>,
}

impl Account {
    /// The bar hides itself when standard error is no terminal.
    pub fn new(tasks: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}");
        let bar = ProgressBar::new(tasks as u64);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Account {
            bar,
            total: Counts::default(),
            suites: BTreeMap::new(),
            missing: BTreeMap::new(),
            skips: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// Takes note of a report, and tells a failure at once.
    pub fn add(&mut self, work: &Work, report: Report) {
        let suite = report.task.suite;
        let counts = self.suites.entry(suite).or_default();
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
                self.bar.suspend(|| println!("{line}"));
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
    }

    /// Prints the summary; its last line is the one that scripts read.
    pub fn print(&self, available: &Available) {
        self.bar.finish_and_clear();
        let paths: Vec<_> = available.paths.iter().map(|path| path.name()).collect();
        println!("executed by: {}", paths.join(", "));
        for left_out in &available.left_out {
            println!("left out: {left_out}");
        }
        for (reason, count) in &self.skips {
            println!("skipped {count} in {reason}");
        }
        if !self.missing.is_empty() {
            let mut missing: Vec<_> = self.missing.iter().collect();
            missing.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let missing: Vec<_> = missing.iter().map(|(name, count)| format!("{name} {count}")).collect();
            println!("skipped for missing operations: {}", missing.join(", "));
        }
        for (suite, Counts { passed, failed, skipped }) in &self.suites {
            println!("{}: {passed} passed, {failed} failed, {skipped} skipped", suite.name());
        }
        let Counts { passed, failed, skipped } = self.total;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }

    /// Writes the whole account as one JSON object.
    pub fn write_json(&self, path: &Path, available: &Available) -> Result<(), ToolError> {
        let paths: Vec<_> = available.paths.iter().map(|path| path.name()).collect();
        let suites: BTreeMap<_, _> =
            self.suites.iter().map(|(suite, counts)| (suite.name(), counts)).collect();
        let json = serde_json::json!({
            "passed": self.total.passed,
            "failed": self.total.failed,
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
