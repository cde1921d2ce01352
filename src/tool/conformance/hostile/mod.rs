//! `hostile`: what no honest client sends. A driver may refuse it in the ways that the interface has; it may not die, hang,
//! give one client what is another's, or leave the next client unserved.
//!
//! Each case stands in a table with what is sent, what must come, and why. After each, a client that comes new must be
//! served. Only this directory knows the cases; they share no state.
//!
//! - `case`: what a case is; `bench`: what it works with; `models`: what it sends
//! - `memory`: descriptors and memory that are not what they seem; `cache`: cache files that are not what was saved
//! - `fences`: fences, deadlines and loops that do not end; `requests`: requests and values that steer out of bounds
//! - `floods`: too much of everything, with a second client watched

mod bench;
mod cache;
mod case;
mod fences;
mod floods;
mod memory;
mod models;
mod requests;

use super::context::Context;
use super::corpus::{CorpusFile, Model};
use super::outcome::{Outcome, Stop};
use crate::tool::error::ToolError;
use bench::Bench;
use case::Case;

/// The kind that the cases have in place of a suite of the corpus.
pub const KIND: &str = "hostile";

fn cases() -> impl Iterator<Item = &'static Case> {
    [memory::CASES, cache::CASES, fences::CASES, requests::CASES, floods::CASES].into_iter().flatten()
}

/// The cases as the runner takes models: with names, and nothing in them.
pub fn corpus() -> CorpusFile {
    let models = cases().map(|case| Model::without_graph(case.name, KIND));
    CorpusFile::without_bytes(models.collect())
}

/// Runs the case of this name. An error when no client is served any more.
pub fn run(context: &Context, name: &str) -> Result<Outcome, ToolError> {
    let Some(case) = cases().find(|case| case.name == name) else {
        return Ok(Outcome::Failed(format!("there is no case {name}")));
    };
    let told = |what: String| format!("{what}; sent: {}; must be: {}", case.sent, case.rule);
    let step = Bench::new(context).and_then(|bench| (case.run)(&bench));
    let outcome = match step {
        Ok(()) => Outcome::Passed,
        Err(Stop::Skip(skip)) => Outcome::Skipped(skip),
        Err(Stop::Fail(why)) => Outcome::Failed(told(why)),
        // Whether the driver is lost, a new client finds out.
        Err(Stop::Fatal(why)) => Outcome::Failed(told(why.to_string())),
    };
    match (bench::is_alive(context), outcome) {
        (Ok(()), outcome) => Ok(outcome),
        (Err(stop), outcome) => {
            let after = match stop {
                Stop::Fail(why) => why,
                Stop::Fatal(why) => why.to_string(),
                Stop::Skip(skip) => skip.to_string(),
            };
            let before = match outcome {
                Outcome::Failed(why) => why,
                _ => told("what came was right".into()),
            };
            Err(ToolError::Failed(format!(
                "a new client is not served any more: {after}; before that: {before}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_told_apart_and_tell_what_they_are() {
        let mut names: Vec<_> = cases().map(|case| case.name).collect();
        assert!(cases().all(|case| !case.sent.is_empty() && !case.rule.is_empty()));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count >= 25), (count, true));
    }
}
