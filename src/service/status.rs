//! The one place where errors become binder status.

use crate::aidl::ErrorStatus;
use crate::backend::BackendError;
use crate::buffer::BufferError;
use crate::cache::CacheError;
use crate::compiler::{CachingError, CompileError};
use crate::memory::MemoryError;
use crate::model::{ModelError, RequestError};
use crate::ops::OpError;
use crate::scheduler::Refused;
use std::fmt::Write;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    /// An argument that is neither model nor request.
    #[error("{0}")]
    Argument(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Caching(#[from] CachingError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error("{what}: {source}")]
    Memory { what: String, source: MemoryError },
    /// The deadline had passed when the call came.
    #[error("the deadline had passed already")]
    Expired,
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The machine has too little of something.
    #[error("{0}")]
    Exhausted(String),
    /// Valid, but not to be had from this driver, or not now.
    #[error("{0}")]
    Failed(String),
    #[error("the driver panicked; this is a fault of its own")]
    Panicked,
}

impl ServiceError {
    pub fn argument(why: impl Into<String>) -> Self {
        ServiceError::Argument(why.into())
    }

    /// This error, with the place where it happened in its message.
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            ServiceError::Memory { source, .. } => ServiceError::Memory { what: place.to_string(), source },
            ServiceError::Backend(error) => ServiceError::Backend(error.at(place)),
            other => other,
        }
    }

    /// What clients and the log are told: the beginning of the message, as some of what a message names is a client's and has
    /// any length.
    pub fn text(&self) -> String {
        let mut text = Beginning(String::new());
        // It ends early where the rest is left off, and says so.
        match write!(text, "{self}") {
            Ok(()) => text.0,
            Err(_) => text.0 + LEFT_OFF,
        }
    }

    /// Whether the work was given up because its client does not wait for it any more.
    pub fn is_cancelled(&self) -> bool {
        let of_caching = |error: &CachingError| {
            matches!(
                error,
                CachingError::Backend(BackendError::Cancelled)
                    | CachingError::Cache(CacheError::Stopped(OpError::Cancelled))
            )
        };
        match self {
            ServiceError::Backend(why) | ServiceError::Compile(CompileError::Backend(why)) => {
                matches!(why, BackendError::Cancelled)
            }
            ServiceError::Caching(why) | ServiceError::Compile(CompileError::Caching(why)) => of_caching(why),
            ServiceError::Model(ModelError::Interrupted(why))
            | ServiceError::Request(RequestError::Interrupted(why))
            | ServiceError::Buffer(BufferError::Interrupted(why)) => matches!(why, OpError::Cancelled),
            _ => false,
        }
    }

    /// What the interface calls this error.
    pub fn status(&self) -> ErrorStatus {
        match self {
            ServiceError::Argument(_) | ServiceError::Model(ModelError::Invalid(_)) => {
                ErrorStatus::INVALID_ARGUMENT
            }
            ServiceError::Request(RequestError::Invalid(_)) => ErrorStatus::INVALID_ARGUMENT,
            // It will be as large the next time.
            ServiceError::Model(ModelError::TooLarge(_)) => ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT,
            ServiceError::Refused(_) | ServiceError::Exhausted(_) => {
                ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT
            }
            ServiceError::Model(ModelError::Memory { source, .. })
            | ServiceError::Request(RequestError::Memory { source, .. } | RequestError::Pools(source))
            | ServiceError::Memory { source, .. } => of_memory(source),
            ServiceError::Buffer(error) => of_buffer(error),
            ServiceError::Compile(error) => of_compilation(error),
            ServiceError::Caching(error) => of_caching(error),
            ServiceError::Backend(error) => of_backend(error),
            ServiceError::Model(ModelError::Interrupted(why))
            | ServiceError::Request(RequestError::Interrupted(why)) => of_backend(&why.clone().into()),
            // A deadline that has passed once will not come again; one that passes during the work may be met next time.
            ServiceError::Expired => ErrorStatus::MISSED_DEADLINE_PERSISTENT,
            ServiceError::Failed(_) | ServiceError::Panicked => ErrorStatus::GENERAL_FAILURE,
        }
    }
}

/// Bytes of a message that are told, and what follows where there are more.
const LONGEST_TEXT: usize = 1 << 10;
const LEFT_OFF: &str = "...";

/// Takes so much of what is written to it, and refuses the rest.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let room = LONGEST_TEXT.saturating_sub(self.0.len());
        if more.len() <= room {
            self.0.push_str(more);
            return Ok(());
        }
        let end = (0..=room).rev().find(|&end| more.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(&more[..end]);
        Err(std::fmt::Error)
    }
}

fn of_compilation(error: &CompileError) -> ErrorStatus {
    match error {
        CompileError::TooManyJobs(_) => ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
        CompileError::Expired => ErrorStatus::MISSED_DEADLINE_PERSISTENT,
        CompileError::Backend(error) => of_backend(error),
        CompileError::Caching(error) => of_caching(error),
        CompileError::Panicked => ErrorStatus::GENERAL_FAILURE,
    }
}

fn of_caching(error: &CachingError) -> ErrorStatus {
    match error {
        CachingError::Token(_)
        | CachingError::Count { .. }
        | CachingError::Cache(CacheError::Access(_) | CacheError::SameFile) => ErrorStatus::INVALID_ARGUMENT,
        CachingError::Backend(why @ (BackendError::DeadlinePassed | BackendError::OutOfMemory(_))) => {
            of_backend(why)
        }
        CachingError::Cache(CacheError::Data(
            why @ (MemoryError::OutOfMemory(_) | MemoryError::Exhausted(_)),
        )) => of_memory(why),
        // Whatever is wrong with their content, the client prepares the model itself.
        CachingError::Cache(_)
        | CachingError::NotCacheable
        | CachingError::ConstantsChanged
        | CachingError::Options
        | CachingError::Backend(_) => ErrorStatus::GENERAL_FAILURE,
    }
}

fn of_backend(error: &BackendError) -> ErrorStatus {
    match error {
        BackendError::DeadlinePassed | BackendError::LoopTimeout(_) => ErrorStatus::MISSED_DEADLINE_TRANSIENT,
        BackendError::OutOfMemory(_) | BackendError::OutOfDeviceMemory(_) | BackendError::DeviceBusy(_) => {
            ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT
        }
        BackendError::DeviceLost(_) => ErrorStatus::DEVICE_UNAVAILABLE,
        BackendError::TooLarge { .. } => ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT,
        BackendError::Memory { source, .. } => of_memory(source),
        BackendError::Unsupported(_) | BackendError::Failed(_) | BackendError::Cancelled => {
            ErrorStatus::GENERAL_FAILURE
        }
    }
}

fn of_buffer(error: &BufferError) -> ErrorStatus {
    match error {
        BufferError::Invalid(_) => ErrorStatus::INVALID_ARGUMENT,
        BufferError::Failed(_) => ErrorStatus::GENERAL_FAILURE,
        BufferError::Exhausted(_) => ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
        BufferError::Memory { source, .. } => of_memory(source),
        BufferError::Interrupted(why) => of_backend(&why.clone().into()),
    }
}

fn of_memory(error: &MemoryError) -> ErrorStatus {
    match error {
        MemoryError::Invalid(_) | MemoryError::Access(_) => ErrorStatus::INVALID_ARGUMENT,
        MemoryError::Map(error) => match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EAGAIN) => ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
            _ => ErrorStatus::GENERAL_FAILURE,
        },
        MemoryError::OutOfMemory(_) | MemoryError::Exhausted(_) => ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
        MemoryError::Unsupported(_) | MemoryError::Vanished => ErrorStatus::GENERAL_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_stays_so_and_memory_comes_back() {
        let too_large = ServiceError::Model(ModelError::TooLarge("subgraphs nest deeper than 32".into()));
        assert_eq!(too_large.status(), ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT);
        let source = MemoryError::OutOfMemory(5);
        let no_memory = ServiceError::Model(ModelError::Memory { what: "a constant".into(), source });
        assert_eq!(no_memory.status(), ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT);
        let loading = [
            CachingError::Cache(CacheError::Data(MemoryError::OutOfMemory(5))),
            CachingError::Backend(BackendError::OutOfMemory(5)),
        ];
        for why in loading {
            assert_eq!(ServiceError::Caching(why).status(), ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT);
        }
        let in_a_run = BackendError::from(OpError::OutOfMemory(5));
        assert_eq!(ServiceError::Backend(in_a_run).status(), ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT);
    }

    #[test]
    fn a_long_message_is_told_from_its_beginning() {
        let text = |message: &str| ServiceError::argument(message).text();
        let whole = "x".repeat(LONGEST_TEXT);
        assert_eq!(text(&whole), whole);
        let cut = format!("{}{LEFT_OFF}", &whole[1..]);
        assert_eq!(text(&format!("{}\u{e4}", &whole[1..])), cut, "characters stay whole");
        let source = MemoryError::Invalid("y".repeat(1 << 20));
        let composed = ServiceError::Memory { what: "pool 0".into(), source }.text();
        assert!(composed.starts_with("pool 0: y") && composed.len() == LONGEST_TEXT + LEFT_OFF.len());
    }

    #[test]
    fn a_deadline_that_passes_amid_the_work_may_be_met_next_time() {
        let late = || BackendError::DeadlinePassed;
        for amid in [
            ServiceError::Caching(CachingError::Backend(late())),
            ServiceError::Compile(CompileError::Caching(CachingError::Backend(late()))),
            ServiceError::Compile(CompileError::Backend(late())),
            ServiceError::Model(ModelError::Interrupted(OpError::DeadlinePassed)),
            ServiceError::Backend(late()),
        ] {
            assert_eq!(amid.status(), ErrorStatus::MISSED_DEADLINE_TRANSIENT, "{amid}");
        }
        for before in [ServiceError::Expired, ServiceError::Compile(CompileError::Expired)] {
            assert_eq!(before.status(), ErrorStatus::MISSED_DEADLINE_PERSISTENT, "{before}");
        }
    }

    #[test]
    fn work_that_nobody_waits_for_is_told_from_work_that_failed_wherever_it_was_given_up() {
        let errors: [fn(BackendError, OpError) -> ServiceError; 9] = [
            |why, _| ServiceError::Backend(why),
            |why, _| ServiceError::Caching(CachingError::Backend(why)),
            |_, why| ServiceError::Caching(CachingError::Cache(CacheError::Stopped(why))),
            |why, _| ServiceError::Compile(CompileError::Backend(why)),
            |why, _| ServiceError::Compile(CompileError::Caching(CachingError::Backend(why))),
            |_, why| ServiceError::Compile(CompileError::Caching(CacheError::Stopped(why).into())),
            |_, why| ServiceError::Model(ModelError::Interrupted(why)),
            |_, why| ServiceError::Request(RequestError::Interrupted(why)),
            |_, why| ServiceError::Buffer(BufferError::Interrupted(why)),
        ];
        for (i, error) in errors.into_iter().enumerate() {
            assert!(error(BackendError::Cancelled, OpError::Cancelled).is_cancelled(), "{i}");
            assert!(!error(BackendError::OutOfMemory(1), OpError::OutOfMemory(1)).is_cancelled(), "{i}");
        }
        assert!(!ServiceError::Panicked.is_cancelled());
    }
}
