//! The options of `load_delegate`, as keys and values.

use nnhal::aidl::{ExecutionPreference, Priority};
use nnhal::client::{Address, Mode};
use std::path::PathBuf;

/// The driver that the delegate talks to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// In this process; kept by the directory that holds what must survive it.
    Embedded(Option<PathBuf>),
    /// In a process of its own.
    At(String),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver's address; `None` for one in this process.
    pub address: Option<Address>,
    pub mode: Mode,
    /// Where compilations are kept.
    pub cache: Option<PathBuf>,
    pub priority: Priority,
    pub preference: ExecutionPreference,
    pub allow_fp16: bool,
    /// Whether inputs beside weights of bytes stay as they are, where LiteRT rounds each row of them to bytes.
    pub exact_inputs: bool,
    pub max_partitions: usize,
    pub min_nodes_per_partition: usize,
    /// 0 tells what went wrong or stayed behind, 1 what was done as well, 2 also the graph as it was found.
    pub verbose: u8,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: None,
            mode: Mode::Burst,
            cache: None,
            priority: Priority::MEDIUM,
            preference: ExecutionPreference::FAST_SINGLE_ANSWER,
            allow_fp16: false,
            exact_inputs: false,
            max_partitions: usize::MAX,
            min_nodes_per_partition: 1,
            verbose: 0,
        }
    }
}

/// The keys, and what values they take.
const KNOWN: &[(&str, &str)] = &[
    ("service", "embedded, unix:PATH or binder:INSTANCE"),
    ("mode", "sync, fenced, burst, reusable or fmq"),
    ("cache", "a directory"),
    ("priority", "low, medium or high"),
    ("preference", "low_power, fast_single_answer or sustained_speed"),
    ("allow_fp16", "true or false"),
    ("exact_inputs", "true or false"),
    ("max_partitions", "a number from 1 on"),
    ("min_nodes_per_partition", "a number from 1 on"),
    ("verbose", "0, 1 or 2"),
];

impl Options {
    /// The options that these keys and values say; else a line on what is wrong and what there is.
    pub fn parse<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut options = Options::default();
        for (key, value) in pairs {
            let Some((_, values)) = KNOWN.iter().find(|(known, _)| *known == key) else {
                let known: Vec<&str> = KNOWN.iter().map(|(known, _)| *known).collect();
                return Err(format!(
                    "{key:?} is not an option of this delegate; there are {}",
                    known.join(", ")
                ));
            };
            options
                .set(key, value)
                .ok_or_else(|| format!("{value:?} is not a value of the option {key}: it takes {values}"))?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let count = || value.parse().ok().filter(|&n: &usize| n > 0);
        match key {
            "service" if value == "embedded" => self.address = None,
            "service" => self.address = Some(value.parse().ok()?),
            "mode" => self.mode = Mode::ALL.into_iter().find(|mode| mode.name() == value)?,
            "cache" if !value.is_empty() => self.cache = Some(value.into()),
            "priority" => {
                self.priority = match value {
                    "low" => Priority::LOW,
                    "medium" => Priority::MEDIUM,
                    "high" => Priority::HIGH,
                    _ => return None,
                }
            }
            "preference" => {
                self.preference = match value {
                    "low_power" => ExecutionPreference::LOW_POWER,
                    "fast_single_answer" => ExecutionPreference::FAST_SINGLE_ANSWER,
                    "sustained_speed" => ExecutionPreference::SUSTAINED_SPEED,
                    _ => return None,
                }
            }
            "allow_fp16" => self.allow_fp16 = truth(value)?,
            "exact_inputs" => self.exact_inputs = truth(value)?,
            "max_partitions" => self.max_partitions = count()?,
            "min_nodes_per_partition" => self.min_nodes_per_partition = count()?,
            "verbose" => self.verbose = value.parse().ok().filter(|&level| level <= 2)?,
            _ => return None,
        }
        Some(())
    }

    /// What tells one driver from another.
    pub fn service(&self) -> Service {
        match &self.address {
            Some(address) => Service::At(address.to_string()),
            // As the tool does: an embedded driver keeps its registry of cache files beside those.
            None => Service::Embedded(self.cache.as_ref().map(|cache| cache.join("driver"))),
        }
    }
}

/// Whether a value is a yes, as Python writes it, too.
fn truth(value: &str) -> Option<bool> {
    match value {
        "true" | "True" | "1" => Some(true),
        "false" | "False" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Options, String> {
        Options::parse(pairs.iter().copied())
    }

    #[test]
    fn every_option_has_good_and_bad_values() {
        for (key, good, bad) in [
            ("service", "unix:/run/nn.sock", "nowhere"),
            ("service", "embedded", "unix:"),
            ("mode", "fmq", "quick"),
            ("cache", "/tmp/x", ""),
            ("priority", "high", "HIGH"),
            ("preference", "low_power", "1"),
            ("allow_fp16", "True", "maybe"),
            ("max_partitions", "3", "0"),
            ("min_nodes_per_partition", "2", "-1"),
            ("verbose", "2", "3"),
        ] {
            parse(&[(key, good)]).unwrap_or_else(|why| panic!("{why}"));
            let why = parse(&[(key, bad)]).err().unwrap_or_else(|| panic!("{key}={bad} was taken"));
            let (_, values) = KNOWN.iter().find(|(known, _)| *known == key).expect("known");
            assert!(why.contains(values) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_known_ones() {
        let why = parse(&[("modus", "burst")]).expect_err("refused");
        assert!(KNOWN.iter().all(|(known, _)| why.contains(known)), "{why}");
    }

    #[test]
    fn drivers_in_this_process_are_told_apart_by_their_directories() {
        let [plain, cached] = [&[][..], &[("cache", "/tmp/x")]].map(|pairs| parse(pairs).unwrap().service());
        assert_ne!(plain, cached);
        assert_eq!(parse(&[("service", "binder:x")]).unwrap().service(), Service::At("binder:x".into()));
    }
}
