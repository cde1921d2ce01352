//! What the backend's process counts of its answers, and which it refuses.

use super::*;
use crate::backend::{Arguments, Binding, Interface};
use crate::isolation::codec::to_bytes;
use crate::isolation::message::Reply;
use crate::memory::Budget;

const STEERS: usize = 1 << 20;

/// A model that is saved as so many bytes.
struct Steers(usize);

impl Executable for Steers {
    fn interface(&self) -> &Interface {
        unreachable!("it is only saved")
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("it is only saved")
    }

    fn artifact(&self, _: &Control) -> Result<Option<Artifact>, BackendError> {
        Ok(Some(Artifact { models: vec![vec![7; self.0]], data: vec![vec![]] }))
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
