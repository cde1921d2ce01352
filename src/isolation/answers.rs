//! What the backend's process answers at length: saved models, descriptions, why operations are not taken. What the service
//! would not read is an error of the call that it answers.

use super::codec::Blob;
use super::constants::{constant_file, not_copied, Part};
use super::message::{Answer, LONGEST_REPLY};
use crate::backend::{Artifact, BackendError, Control, Description, Executable, MOST_DESCRIBED};
use crate::memory::{Counted, Weights};
use crate::scheduler::{CallTurns, Copier};
use std::fs::File;
use std::sync::Arc;

/// Bytes of reasons in one answer.
const MOST_OF_REASONS: usize = 1 << 20;
/// Bytes of a reply that says how a model was saved, besides the model's, at the most.
const OF_SAVED: usize = 4 << 10;

/// An answer with the files that go with it.
pub type Answered = Result<(Answer, Vec<File>), BackendError>;

/// Of each operation whether it is taken, or why not.
type Verdicts = Vec<Result<(), String>>;

/// What the executable says of itself, by turns; `counted` for as long as it is here.
pub fn describe(
    executable: Option<Arc<dyn Executable>>,
    turns: &CallTurns,
    control: &Control,
    counted: &mut Option<Counted>,
) -> Answered {
    let Some(executable) = executable else { return Ok((Answer::Described(None), Vec::new())) };
    let _account = control.on_account();
    let len = executable.described();
    if len > MOST_DESCRIBED {
        return Err(BackendError::Failed("the description is too long for an answer".into()));
    }
    let bytes = Description::footprint(len);
    *counted = Some(Counted::take(bytes).ok_or(BackendError::OutOfMemory(bytes))?);
    Ok((Answer::Described(executable.describe(&turns.check(control))?), Vec::new()))
}

/// The executable as bytes. Data are copied by turns and counted meanwhile; what steers is `counted` for as long as it is here.
pub fn save(
    executable: Option<Arc<dyn Executable>>,
    turns: &CallTurns,
    control: &Control,
    counted: &mut Option<Counted>,
) -> Answered {
    let _account = control.on_account();
    let artifact = executable.map_or(Ok(None), |executable| executable.artifact(control))?;
    let Some(Artifact { models, data }) = artifact else {
        return Ok((Answer::Saved(None), Vec::new()));
    };
    let steers = models.iter().map(Vec::len).fold(0, usize::saturating_add);
    if steers > LONGEST_REPLY - OF_SAVED {
        return Err(too_long(steers));
    }
    // As it is, and in the message that it is said in.
    let bytes = steers.saturating_mul(2);
    *counted = Some(Counted::take(bytes).ok_or(BackendError::OutOfMemory(bytes))?);
    let check = turns.check(control);
    let mut copier = Copier::new(&check);
    let (mut files, mut lens) = (Vec::new(), Vec::new());
    for parts in data {
        let place = |(start, part): (u64, Weights)| {
            let part = match part {
                Weights::Private(bytes) => Part::Private(bytes),
                Weights::Shared(slice) => Part::Client(slice),
            };
            (usize::try_from(start).unwrap_or(usize::MAX), part)
        };
        let parts: Vec<_> = parts.into_iter().map(place).collect();
        let len = parts.last().map_or(0, |(start, part)| start.saturating_add(part.len()));
        let _counted = Counted::take(len).ok_or(BackendError::OutOfMemory(len))?;
        files.push(constant_file(&mut copier, len, &parts).map_err(not_copied("a saved model"))?);
        lens.push(len);
    }
    Ok((Answer::Saved(Some((models.into_iter().map(Blob).collect(), lens))), files))
}

pub fn too_long(len: usize) -> BackendError {
    BackendError::Failed(format!("an answer of {len} bytes is too long for the backend's process"))
}

/// The verdicts with so many bytes of reasons as are told.
pub fn cut(verdicts: Verdicts) -> Verdicts {
    cut_to(verdicts, MOST_OF_REASONS)
}

/// The verdicts with no more than `most` bytes of reasons: of those that are left out nothing is said.
fn cut_to(mut verdicts: Vec<Result<(), String>>, most: usize) -> Vec<Result<(), String>> {
    let mut left = most;
    for why in verdicts.iter_mut().filter_map(|verdict| verdict.as_mut().err()) {
        match left.checked_sub(why.len()) {
            Some(rest) => left = rest,
            None => *why = String::new(),
        }
    }
    verdicts
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
