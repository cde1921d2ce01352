//! The suites: each judges one model at a time, by its rules in FORMAT.md section 5.

mod burst;
mod deadline;
mod dynamic_shape;
mod expect_failure;
mod general;
mod infinite_loop;
mod memory_domain;
mod quant_coupling;

use super::context::Context;
use super::hal_model::Case;
use super::outcome::{Outcome, Skip, Stop};
use super::{corpus, hostile, validation};
use crate::tool::error::ToolError;

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Suite {
    General,
    DynamicShape,
    Fenced,
    Burst,
    MemoryDomain,
    QuantCoupling,
    Validation,
    InfiniteLoop,
    Deadline,
    Cts,
    CtsExpectFailure,
    /// What no honest client sends; run only where it is named.
    Hostile,
}

impl Suite {
    pub const ALL: [Suite; 12] = [
        Suite::General,
        Suite::DynamicShape,
        Suite::Fenced,
        Suite::Burst,
        Suite::MemoryDomain,
        Suite::QuantCoupling,
        Suite::Validation,
        Suite::InfiniteLoop,
        Suite::Deadline,
        Suite::Cts,
        Suite::CtsExpectFailure,
        Suite::Hostile,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            // Reuse of a burst is this tool's own suite, over the models of the general one.
            Suite::Burst => "burst",
            suite => suite.kind(),
        }
    }

    /// The corpus's name for the models of the suite.
    fn kind(self) -> &'static str {
        match self {
            Suite::General | Suite::Burst => "general",
            Suite::DynamicShape => "dynamic_shape",
            Suite::Fenced => "fenced",
            Suite::MemoryDomain => "memory_domain",
            Suite::QuantCoupling => "quant_coupling",
            Suite::Validation => "validation",
            Suite::InfiniteLoop => "infinite_loop",
            Suite::Deadline => "deadline",
            Suite::Cts => "cts",
            Suite::CtsExpectFailure => "cts_expect_failure",
            Suite::Hostile => hostile::KIND,
        }
    }

    /// Whether the suite runs this model.
    pub fn has(self, model: &corpus::Model) -> bool {
        model.kinds.iter().any(|kind| kind == self.kind())
    }

    /// Whether its cases are in this program, each to be run alone, and not in a corpus.
    pub fn is_built_in(self) -> bool {
        self == Suite::Hostile
    }

    /// Runs one model; an error only when the run cannot go on.
    pub fn run(self, context: &Context, case: &Case) -> Result<Outcome, ToolError> {
        let needed = case.model.aidl_version;
        if context.available.interface_version < needed {
            return Ok(Outcome::Skipped(Skip::Version(needed)));
        }
        let step = match self {
            Suite::General | Suite::Cts => general::general(context, case),
            Suite::Fenced => general::fenced(context, case),
            Suite::DynamicShape => dynamic_shape::run(context, case),
            Suite::Burst => burst::run(context, case),
            Suite::MemoryDomain => memory_domain::run(context, case),
            Suite::QuantCoupling => quant_coupling::run(context, case),
            Suite::Validation => validation::run(context, case),
            Suite::InfiniteLoop => infinite_loop::run(context, case),
            Suite::Deadline => deadline::run(context, case),
            Suite::CtsExpectFailure => expect_failure::run(context, case),
            Suite::Hostile => return hostile::run(context, &case.model.name),
        };
        match step {
            Ok(()) => Ok(Outcome::Passed),
            Err(Stop::Fail(why)) => Ok(Outcome::Failed(why)),
            Err(Stop::Skip(skip)) => Ok(Outcome::Skipped(skip)),
            Err(Stop::Fatal(error)) => Err(error),
        }
    }
}
