//! The terms a client attaches to a call: deadlines, time limits, preference, priority and hints, checked.

use super::status::ServiceError;
use crate::aidl;
use crate::backend::{boottime_ns, Preference, Priority};
use crate::model::check_extension_names;
use std::collections::HashSet;
use std::time::Duration;

/// The terms of an execution, without its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub measure: bool,
    pub loop_timeout: Duration,
}

impl Terms {
    pub fn new(measure: bool, loop_timeout_ns: i64) -> Result<Self, ServiceError> {
        Ok(Terms { measure, loop_timeout: loop_timeout(loop_timeout_ns)? })
    }

    pub fn from_config(config: &aidl::ExecutionConfig) -> Result<Self, ServiceError> {
        hints(&config.executionHints, &config.extensionNameToPrefix)?;
        Self::new(config.measureTiming, config.loopTimeoutDurationNs)
    }
}

/// A deadline in nanoseconds of CLOCK_BOOTTIME; `None` for -1.
pub(super) fn deadline(ns: i64) -> Result<Option<u64>, ServiceError> {
    optional(ns).ok_or_else(|| {
        ServiceError::argument(format!(
            "deadline {ns}: expected nanoseconds of CLOCK_BOOTTIME, or -1 for none"
        ))
    })
}

/// Checks that a deadline has not passed yet.
pub(super) fn check_deadline(deadline: Option<u64>) -> Result<(), ServiceError> {
    match deadline {
        Some(deadline) if boottime_ns() >= deadline => Err(ServiceError::Expired),
        _ => Ok(()),
    }
}

/// How long a fenced execution may take from when its fences are signalled; `None` for -1.
pub(super) fn duration(ns: i64) -> Result<Option<Duration>, ServiceError> {
    let ns = optional(ns).ok_or_else(|| {
        ServiceError::argument(format!("duration {ns}: expected nanoseconds, or -1 for no limit"))
    })?;
    Ok(ns.map(Duration::from_nanos))
}

fn loop_timeout(ns: i64) -> Result<Duration, ServiceError> {
    match ns {
        -1 => Ok(Duration::from_nanos(aidl::DEFAULT_LOOP_TIMEOUT_DURATION_NS.unsigned_abs())),
        0..=aidl::MAXIMUM_LOOP_TIMEOUT_DURATION_NS => Ok(Duration::from_nanos(ns.unsigned_abs())),
        _ => Err(ServiceError::argument(format!(
            "loop timeout {ns}: expected 0 to {} nanoseconds, or -1 for the default",
            aidl::MAXIMUM_LOOP_TIMEOUT_DURATION_NS
        ))),
    }
}

/// `Some(None)` for -1, `None` for what is below.
fn optional(ns: i64) -> Option<Option<u64>> {
    match ns {
        -1 => Some(None),
        _ => u64::try_from(ns).ok().map(Some),
    }
}

pub(super) fn preference(preference: aidl::ExecutionPreference) -> Result<Preference, ServiceError> {
    match preference {
        aidl::ExecutionPreference::LOW_POWER => Ok(Preference::LowPower),
        aidl::ExecutionPreference::FAST_SINGLE_ANSWER => Ok(Preference::FastSingleAnswer),
        aidl::ExecutionPreference::SUSTAINED_SPEED => Ok(Preference::SustainedSpeed),
        other => Err(ServiceError::argument(format!("execution preference {} does not exist", other.0))),
    }
}

pub(super) fn priority(priority: aidl::Priority) -> Result<Priority, ServiceError> {
    match priority {
        aidl::Priority::LOW => Ok(Priority::Low),
        aidl::Priority::MEDIUM => Ok(Priority::Medium),
        aidl::Priority::HIGH => Ok(Priority::High),
        other => Err(ServiceError::argument(format!("priority {} does not exist", other.0))),
    }
}

/// Hints of one call: far more than any extension has. They are looked through before the call has a turn or a place, and what
/// that takes is not counted.
const MAX_HINTS: usize = 1024;

/// Checks hints: each token once, extensions properly named. What a hint says is not looked at here.
pub(super) fn hints(
    hints: &[aidl::TokenValuePair],
    extensions: &[aidl::ExtensionNameAndPrefix],
) -> Result<(), ServiceError> {
    if hints.len() > MAX_HINTS {
        return Err(ServiceError::Failed(format!("more than {MAX_HINTS} hints")));
    }
    check_extension_names(extensions)?;
    let mut seen = HashSet::new();
    match hints.iter().find(|hint| !seen.insert(hint.token)) {
        Some(hint) => Err(ServiceError::argument(format!("hint {} is given twice", hint.token))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aidl::ErrorStatus;

    fn status<T>(result: Result<T, ServiceError>) -> ErrorStatus {
        result.map_or_else(|error| error.status(), |_| ErrorStatus::NONE)
    }

    #[test]
    fn times_have_limits() {
        assert_eq!(deadline(-1).unwrap(), None);
        assert_eq!(deadline(i64::MAX).unwrap(), Some(i64::MAX as u64));
        assert_eq!(duration(0).unwrap(), Some(Duration::ZERO));
        for ns in [-2, i64::MIN] {
            assert_eq!(status(deadline(ns)), ErrorStatus::INVALID_ARGUMENT);
            assert_eq!(status(duration(ns)), ErrorStatus::INVALID_ARGUMENT);
            assert_eq!(status(loop_timeout(ns)), ErrorStatus::INVALID_ARGUMENT);
        }
        assert_eq!(loop_timeout(-1).unwrap(), Duration::from_secs(2));
        assert_eq!(loop_timeout(15_000_000_000).unwrap(), Duration::from_secs(15));
        assert_eq!(status(loop_timeout(15_000_000_001)), ErrorStatus::INVALID_ARGUMENT);
        assert_eq!(status(check_deadline(Some(1))), ErrorStatus::MISSED_DEADLINE_PERSISTENT);
        assert_eq!(status(check_deadline(Some(u64::MAX))), ErrorStatus::NONE);
    }

    #[test]
    fn enums_and_hints_are_checked() {
        assert_eq!(preference(aidl::ExecutionPreference(0)).unwrap(), Preference::LowPower);
        assert_eq!(priority(aidl::Priority(2)).unwrap(), Priority::High);
        for value in [-1, 3] {
            assert_eq!(status(preference(aidl::ExecutionPreference(value))), ErrorStatus::INVALID_ARGUMENT);
            assert_eq!(status(priority(aidl::Priority(value))), ErrorStatus::INVALID_ARGUMENT);
        }
        let hint = |token| aidl::TokenValuePair { token, value: vec![] };
        assert!(hints(&[hint(1), hint(0x7fff_0001)], &[]).is_ok());
        assert_eq!(status(hints(&[hint(1), hint(2), hint(1)], &[])), ErrorStatus::INVALID_ARGUMENT);
        let many: Vec<_> = (0..=MAX_HINTS as i32).map(hint).collect();
        assert!(hints(&many[1..], &[]).is_ok());
        assert_eq!(status(hints(&many, &[])), ErrorStatus::GENERAL_FAILURE);
        let extension = aidl::ExtensionNameAndPrefix { name: "NoPeriod".into(), prefix: 1 };
        assert_eq!(status(hints(&[], &[extension])), ErrorStatus::INVALID_ARGUMENT);
    }
}
