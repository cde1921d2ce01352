//! The ways to execute, as values of `--mode`.

use crate::client::Mode;
use clap::builder::PossibleValue;

impl clap::ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &Mode::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Mode::Sync => "executeSynchronously",
            Mode::Fenced => "executeFenced, and a wait for its fence",
            Mode::Burst => "A burst, in which the driver knows the memory by tokens",
            Mode::Reusable => "A reusable execution, which knows its request",
            Mode::Fmq => "Over fast message queues, by the driver's extension",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}
