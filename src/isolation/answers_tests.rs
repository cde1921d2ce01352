//! What the backend's process counts of its answers, and which it refuses.

use super::*;
use crate::backend::{Arguments, Binding, Interface};
use crate::isolation::codec::to_bytes;
use crate::isolation::message::Reply;
use crate::memory::Budget;

const STEERS: usize = 1 << 20;

/// A model that is saved as so many bytes, and says of itself that it has so much to tell.
struct Steers(usize);

impl Executable for Steers {
    fn interface(&self) -> &Interface {
        unreachable!("it is only saved and described")
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("it is only saved and described")
    }

    fn artifact(&self, _: &Control) -> Result<Option<Artifact>, BackendError> {
        Ok(Some(Artifact { models: vec![vec![7; self.0]], data: vec![vec![]] }))
    }

    fn described(&self) -> usize {
        self.0
    }

    fn describe(&self, control: &Control) -> Result<Option<Description>, BackendError> {
        assert!(control.turn.is_some(), "it would take a turn");
        Ok(Some(Description::default()))
    }
}

#[test]
fn what_steers_is_on_the_clients_account_until_it_is_said() {
    let executable: Arc<dyn Executable> = Arc::new(Steers(STEERS));
    for (share, fits) in [(STEERS, false), (4 * STEERS, true)] {
        let budget = Budget::new(2 * share as u64);
        let control = Control { client: 1, budget: Some(budget.clone()), ..Control::default() };
        let mut counted = None;
        let saved = save(Some(executable.clone()), &CallTurns::new(1), &control, &mut counted);
        match saved.map(|(answer, files)| (matches!(answer, Answer::Saved(Some(_))), files.len())) {
            Ok(saved) => assert_eq!((saved, fits), ((true, 1), true)),
            Err(why) => assert!(!fits && matches!(why, BackendError::OutOfMemory(_)), "{why}"),
        }
        assert_eq!(budget.private().held(), if fits { 2 * STEERS as u64 } else { 0 });
        drop(counted);
        assert_eq!(budget.private().held(), 0);
    }
}

#[test]
fn a_description_is_counted_until_it_is_said_and_none_is_made_that_is_too_long() {
    let (budget, turns) = (Budget::new(1 << 30), CallTurns::new(1));
    let control = Control { client: 1, budget: Some(budget.clone()), ..Control::default() };
    for (len, fits) in [(MOST_DESCRIBED, true), (MOST_DESCRIBED + 1, false)] {
        let mut counted = None;
        let told = describe(Some(Arc::new(Steers(len))), &turns, &control, &mut counted);
        assert_eq!(matches!(told, Ok((Answer::Described(Some(_)), _))), fits);
        let bytes = if fits { Description::footprint(len) } else { 0 };
        assert_eq!(budget.private().held(), bytes as u64);
    }
}

#[test]
fn what_may_be_saved_fits_a_reply_and_what_is_larger_is_refused() {
    let control = Control { client: 1, budget: Some(Budget::new(1 << 40)), ..Control::default() };
    let saved = |len| save(Some(Arc::new(Steers(len))), &CallTurns::new(1), &control, &mut None);
    assert!(matches!(saved(LONGEST_REPLY), Err(BackendError::Failed(why)) if why.contains("too long")));
    // As many files as there may be.
    let models: Vec<_> = vec![Blob(vec![0; (LONGEST_REPLY - OF_SAVED) / 32]); 32];
    let answer = Answer::Saved(Some((models, vec![0; 32])));
    assert!(to_bytes(&Reply { call: u64::MAX, answer }).len() <= LONGEST_REPLY);
}

#[test]
fn reasons_are_cut_where_all_of_them_are_long() {
    let verdicts =
        vec![Err("x".repeat(40)), Ok(()), Err("y".repeat(70)), Err("z".repeat(60)), Err("w".into())];
    let expected = [Err("x".repeat(40)), Ok(()), Err(String::new()), Err("z".repeat(60)), Err(String::new())];
    assert_eq!(cut_to(verdicts, 100), expected);
}
