//! What an execution gave where it was not what was expected, kept for the report.

use std::cell::RefCell;

/// An output's index among the model's outputs, and the bytes found there.
pub type Evidence = Vec<(usize, Vec<u8>)>;

thread_local! {
    static EVIDENCE: RefCell<Evidence> = const { RefCell::new(Vec::new()) };
}

/// Keeps an output of the model that this thread is at; the last execution's counts.
pub fn keep(output: usize, bytes: &[u8]) {
    EVIDENCE.with_borrow_mut(|kept| {
        kept.retain(|(index, _)| *index != output);
        kept.push((output, bytes.to_vec()));
    });
}

/// What this thread kept since it last asked.
pub fn take() -> Evidence {
    EVIDENCE.take()
}
