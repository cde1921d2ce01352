//! What changed between two reports: of two drivers, or of two builds of one.

use crate::tool::error::ToolError;
use crate::tool::print;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What is read of a report; all else may be as it likes.
#[derive(Deserialize)]
struct Side {
    #[serde(default)]
    driver: Option<DriverName>,
    results: Vec<Entry>,
    #[serde(default)]
    losses: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct DriverName {
    version: String,
}

#[derive(Deserialize)]
struct Entry {
    suite: String,
    model: String,
    outcome: String,
    #[serde(default)]
    reason: Option<String>,
    ms: f64,
}

/// A model takes longer where it takes so many times as long, and so much longer: less is noise.
const SLOWER: f64 = 2.0;
const LEAST_MS: f64 = 50.0;

/// A model that fares otherwise than before.
#[derive(Serialize)]
struct Change {
    name: String,
    before: String,
    after: String,
}

/// What changed.
#[derive(Default, Serialize)]
pub struct Diff {
    drivers: [Option<String>; 2],
    losses: [usize; 2],
    newly_failing: Vec<Change>,
    newly_passing: Vec<Change>,
    /// Passed or failed before, and is skipped now.
    newly_skipped: Vec<Change>,
    /// Failed before and now, for another reason.
    failing_otherwise: Vec<Change>,
    slower: Vec<Change>,
    /// Only in the first.
    missing: Vec<String>,
    /// Only in the second.
    added: Vec<String>,
    unchanged: usize,
}

/// Compares the reports in two files.
pub fn run(before: &Path, after: &Path, json: Option<&Path>) -> Result<(), ToolError> {
    let diff = Diff::of(&read(before)?, &read(after)?);
    if let Some(path) = json {
        let bytes = serde_json::to_vec(&diff).map_err(|why| ToolError::Failed(why.to_string()))?;
        std::fs::write(path, bytes).map_err(|why| ToolError::File { path: path.into(), why })?;
    }
    diff.print()?;
    match (diff.newly_failing.len(), diff.losses[1] > diff.losses[0]) {
        (0, false) => Ok(()),
        (0, true) => Err(ToolError::Failed("the driver died or hung more often than before".into())),
        (count, _) => Err(ToolError::Failed(format!("{count} newly failing"))),
    }
}

fn read(path: &Path) -> Result<Side, ToolError> {
    let bytes = std::fs::read(path).map_err(|why| ToolError::File { path: path.into(), why })?;
    let fault = |why| {
        let why = format!("{}: not a report of `nnhal conformance --report`: {why}", path.display());
        ToolError::Usage(why)
    };
    serde_json::from_slice(&bytes).map_err(fault)
}

impl Diff {
    fn of(before: &Side, after: &Side) -> Diff {
        let mut now: BTreeMap<_, _> =
            after.results.iter().map(|result| ((&result.suite, &result.model), result)).collect();
        let version = |side: &Side| side.driver.as_ref().map(|driver| driver.version.clone());
        let mut diff = Diff {
            drivers: [version(before), version(after)],
            losses: [before.losses.len(), after.losses.len()],
            ..Default::default()
        };
        for was in &before.results {
            match now.remove(&(&was.suite, &was.model)) {
                None => diff.missing.push(was.name()),
                Some(is) => diff.compare(was, is),
            }
        }
        for is in now.into_values() {
            diff.added.push(is.name());
            // What fails and was not there before fails newly, too.
            if is.outcome == "failed" {
                diff.newly_failing.push(Change { before: "not there".into(), ..change(is, is) });
            }
        }
        diff
    }

    fn compare(&mut self, was: &Entry, is: &Entry) {
        match (was.outcome.as_str(), is.outcome.as_str()) {
            ("failed", "failed") if was.reason != is.reason => self.failing_otherwise.push(change(was, is)),
            ("failed", "failed") => self.unchanged += 1,
            (_, "failed") => self.newly_failing.push(change(was, is)),
            (before, "passed") if before != "passed" => self.newly_passing.push(change(was, is)),
            (before, "skipped") if before != "skipped" => self.newly_skipped.push(change(was, is)),
            ("passed", "passed") if is.ms > SLOWER * was.ms && is.ms - was.ms > LEAST_MS => {
                let ms = |result: &Entry| format!("{:.1} ms", result.ms);
                self.slower.push(Change { name: is.name(), before: ms(was), after: ms(is) });
            }
            _ => self.unchanged += 1,
        }
    }

    fn print(&self) -> Result<(), ToolError> {
        if let [Some(before), Some(after)] = &self.drivers {
            match before == after {
                true => print::line(format_args!("driver: {after}, both times"))?,
                false => print::line(format_args!("driver: {before} before, {after} after"))?,
            }
        }
        let changes = [
            ("NEWLY FAILING", &self.newly_failing),
            ("newly passing", &self.newly_passing),
            ("newly skipped", &self.newly_skipped),
            ("fails otherwise", &self.failing_otherwise),
            ("slower", &self.slower),
        ];
        for (what, changes) in changes {
            for Change { name, before, after } in changes {
                print::line(format_args!("{what} {name}: {before} -> {after}"))?;
            }
        }
        self.missing.iter().try_for_each(|name| print::line(format_args!("missing {name}")))?;
        self.added.iter().try_for_each(|name| print::line(format_args!("new {name}")))?;
        if self.losses != [0, 0] {
            let [before, after] = self.losses;
            print::line(format_args!("the driver died or hung {before} times before, {after} times after"))?;
        }
        print::line(format_args!(
            "{} newly failing, {} newly passing, {} newly skipped, {} missing, {} slower, {} unchanged",
            self.newly_failing.len(),
            self.newly_passing.len(),
            self.newly_skipped.len(),
            self.missing.len(),
            self.slower.len(),
            self.unchanged
        ))
    }
}

impl Entry {
    fn name(&self) -> String {
        format!("{}/{}", self.suite, self.model)
    }

    fn tell(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{} ({})", self.outcome, reason.replace('\n', " ")),
            None => self.outcome.clone(),
        }
    }
}

fn change(was: &Entry, is: &Entry) -> Change {
    Change { name: is.name(), before: was.tell(), after: is.tell() }
}
