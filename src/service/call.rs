//! The wrapper that every handler runs in.

use super::core::Core;
use super::status::ServiceError;
use crate::aidl::{status_name, ErrorStatus};
use crate::ipc::{self, BinderResult};
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::{caller_gone, lets_go, was_read, was_served};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs the body of `call`: turns its error into binder status, logs it once, and lets no panic out. What memory it
/// takes is the client's; if it takes long, what it waited for is logged, too.
pub(super) fn handle<T>(
    core: &Core,
    call: &'static str,
    body: impl FnOnce() -> Result<T, ServiceError>,
) -> BinderResult<T> {
    // From here on it may wait, for its own turn, too.
    was_read();
    let client = ipc::calling_uid();
    core.call_turns.serve(client, &caller_gone());
    let (_call, _account) = (core.calls.begin(call, client), core.budget.on_account_of(client));
    let _mark = marks::begin(Phase::of_call, call);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(ServiceError::Panicked));
    was_served();
    lets_go();
    result.map_err(|error| {
        note(core, call, &error);
        ipc::refusal(error.status().0, error.text())
    })
}

/// Logs and counts why `call` failed. A client's own mistakes, and its end, are no news unless somebody looks for them.
pub(super) fn note(core: &Core, call: &'static str, error: &ServiceError) {
    let level = match error.status() {
        ErrorStatus::INVALID_ARGUMENT
        | ErrorStatus::MISSED_DEADLINE_TRANSIENT
        | ErrorStatus::MISSED_DEADLINE_PERSISTENT => log::Level::Debug,
        _ if error.is_cancelled() => log::Level::Debug,
        _ => log::Level::Warn,
    };
    let text = error.text();
    core.errors.note(call, status_name(error.status()).unwrap_or("OTHER"), &text);
    log::log!(level, "{call}: {text}");
}
