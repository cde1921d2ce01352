//! What was refused or failed: how often, and the last few reasons.
//!
//! Reasons are kept for people who look after the driver, and those must not learn what clients compute. So only plain
//! words of them are kept: numbers, names and whatever is quoted are left out, wherever a message comes from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Reasons that are kept, and bytes of each.
const MOST: usize = 16;
const MOST_BYTES: usize = 160;
/// What stands for what was left out.
const LEFT_OUT: &str = "_";

/// Errors of one driver.
#[derive(Debug, Default)]
pub struct Errors {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<&'static str, u64>,
    /// The newest last.
    last: VecDeque<Noted>,
}

/// An error of which the reason is kept.
#[derive(Clone, Debug)]
pub struct Noted {
    /// What failed, and by what name.
    pub call: &'static str,
    pub status: &'static str,
    pub reason: String,
    /// How often it came, as long as it was among the last, and when it came last.
    pub count: u64,
    pub at: Instant,
}

impl Errors {
    /// Notes that `call` failed with `status`; both are of the interface, so that there are few.
    pub fn note(&self, call: &'static str, status: &'static str, message: &str) {
        let (reason, at) = (plain_words(message), Instant::now());
        let mut state = self.lock();
        *state.counts.entry(status).or_default() += 1;
        let same = |noted: &Noted| (noted.call, noted.status, &noted.reason) == (call, status, &reason);
        let known = state.last.iter().position(same);
        let before = known.and_then(|i| state.last.remove(i)).map_or(0, |noted| noted.count);
        if state.last.len() == MOST {
            state.last.pop_front();
        }
        state.last.push_back(Noted { call, status, reason, count: before + 1, at });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there were by status.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }

    /// The last of them, the newest first.
    pub fn last(&self) -> Vec<Noted> {
        self.lock().last.iter().rev().cloned().collect()
    }
}

/// The words of lower case in `message` with the marks between them; all else is left out, and whatever is quoted.
fn plain_words(message: &str) -> String {
    let unquoted = match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) => [&message[..first], " 0 ", &message[last + 1..]].concat(),
        _ => message.to_string(),
    };
    let mut words = String::new();
    for word in unquoted.split_whitespace() {
        let inner = word.trim_matches(|c| matches!(c, ',' | ':' | ';' | '(' | ')' | '.'));
        let is_plain = inner.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '\''));
        let word = if is_plain { word } else { LEFT_OUT };
        let is_again = word == LEFT_OUT && words.ends_with(LEFT_OUT);
        if is_again {
            continue;
        }
        if words.len() + 1 + word.len() > MOST_BYTES {
            break;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_data_of_a_client_is_kept() {
        for (message, kept) in [
            ("operand 17: dimension -3 is too large", "operand _ dimension _ is too large"),
            ("operation 3 (CONV_2D): input 1: a scale of 0.0012", "operation _ input _ a scale of _"),
            ("extension \"my secret\" and \"other\\\" secret\" is unknown", "extension _ is unknown"),
            ("a quote \" that does not end", "a quote _ that does not end"),
            ("/data/user/0/com.app/file: Permission denied", "_ denied"),
            ("token=abcd, tensor[2x3], naïve", "_"),
            ("it doesn't fit; try again (later).", "it doesn't fit; try again (later)."),
            ("", ""),
        ] {
            assert_eq!(plain_words(message), kept);
        }
        assert!(plain_words(&"word ".repeat(1000)).len() <= MOST_BYTES);
        assert_eq!(plain_words(&"a".repeat(1000)), "");
    }

    #[test]
    fn the_same_reason_is_kept_once_and_the_last_few_in_all() {
        let errors = Errors::default();
        for i in 0..100_000 {
            let letters: String = format!("{i:06}").bytes().map(|digit| (digit + 49) as char).collect();
            errors.note("a call", "FAILED", &format!("reason {letters}"));
            errors.note("a call", "REFUSED", &format!("number {i}"));
        }
        assert_eq!(errors.counts(), BTreeMap::from([("FAILED", 100_000), ("REFUSED", 100_000)]));
        let last = errors.last();
        assert_eq!((last.len(), last[0].count, last[1].count), (MOST, 100_000, 1));
        assert_eq!((last[0].reason.as_str(), last[1].reason.as_str()), ("number _", "reason ajjjjj"));
    }
}
