//! The rules that every backend must keep to, and what was found of one.

use std::fmt;

/// What a backend must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It says the same of itself whenever it is asked: it has a version, and its queue has room for something.
    Info,
    /// It answers for each operation, twice the same, and says why it refuses one.
    Support,
    /// It compiles what it promised.
    Promise,
    /// Results are those of the plain evaluation, byte for byte (floats: the same numbers), each time anew.
    Bytes,
    /// Where an output's memory is too small it writes to none, and says how large the output is.
    SmallOutput,
    /// A model that was saved loads, and gives the same results.
    Saved,
    /// Data bytes that changed since change values at most.
    ChangedData,
    /// An execution or compilation beyond its deadline ends, as done or as "the deadline has passed".
    Deadline,
    /// A cancelled execution ends, as done or as cancelled, and the next is as right as any.
    Cancellation,
    /// Bindings on many threads give the same results, never more at once than the queue is deep.
    Concurrency,
    /// Device buffers keep what is written to them, and executions compute with them.
    DeviceBuffers,
    /// Once its device is lost, executions end, and say so; the next compilation works.
    LostDevice,
    /// Rounds of everything leave no descriptors, threads or mappings behind.
    Leak,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Info => "info() must always be the same and make sense",
            Rule::Support => "support() must answer for each operation, always the same, with reasons",
            Rule::Promise => "what support() promised must compile",
            Rule::Bytes => "results must be those of the plain evaluation",
            Rule::SmallOutput => {
                "where an output is too small, nothing may be written, and the shapes must say so"
            }
            Rule::Saved => "a saved model must load and give the same results",
            Rule::ChangedData => "changed data bytes may change values, and nothing else",
            Rule::Deadline => "work must end soon after its deadline, as done or DeadlinePassed",
            Rule::Cancellation => "a cancelled execution must end, as done or Cancelled",
            Rule::Concurrency => "bindings on many threads must give the same results",
            Rule::DeviceBuffers => "device buffers must keep a value and serve as arguments",
            Rule::LostDevice => {
                "once the device is lost, executions must end as DeviceLost and compilations work"
            }
            Rule::Leak => "nothing may stay behind",
        })
    }
}

/// A rule that the backend broke, and how.
#[derive(Clone, Debug)]
pub struct Fault {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}): {}", self.rule, self.rule, self.what)
    }
}

/// What was tried, and what is wrong.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Names of the samples that the backend takes.
    pub taken: Vec<String>,
    /// Names of those that it refuses, and why.
    pub refused: Vec<(String, String)>,
    /// Rules that could not be tried, and why.
    pub untried: Vec<(Rule, String)>,
    pub faults: Vec<Fault>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, refused) = (self.taken.len(), self.refused.len());
        writeln!(f, "{taken} samples taken, {refused} refused, {} faults", self.faults.len())?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "FAULT {fault}"))?;
        self.refused.iter().try_for_each(|(name, why)| writeln!(f, "refused {name}: {why}"))?;
        self.untried.iter().try_for_each(|(rule, why)| writeln!(f, "untried {rule:?}: {why}"))
    }
}

impl Report {
    /// Itself, if there are no faults and something was tried. Panics with the report otherwise.
    pub fn passed(self) -> Self {
        assert!(self.faults.is_empty() && !self.taken.is_empty(), "{self}");
        self
    }
}
