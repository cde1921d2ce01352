//! What a hostile case is.

use super::bench::Bench;
use crate::tool::conformance::outcome::Step;

/// A case.
pub struct Case {
    pub name: &'static str,
    /// What is sent.
    pub sent: &'static str,
    /// What must come, and the rule that says so.
    pub rule: &'static str,
    pub run: fn(&Bench) -> Step,
}
