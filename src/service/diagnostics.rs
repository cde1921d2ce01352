//! The extension of the device: why operations are not taken, how the driver is, and what it tells clients of their prepared
//! models; and what `dumpsys` prints of the driver.

use super::call::handle;
use super::core::Core;
use super::profile;
use super::report::{report, View};
use crate::aidl::{BnDiagnostics, IDiagnostics, IPreparedModel, IRecorder, Model, ModelDescription};
use crate::backend::BackendError;
use crate::ipc::{self, BinderResult, Interface, StatusCode, Strong};
use crate::ops::Interrupt as _;
use crate::quota::Quota;
use crate::scheduler::{caller_gone, was_read, was_served, Control};
use nix::unistd::geteuid;
use std::io::{ErrorKind, Write};
use std::sync::Arc;

/// Longest reason, and all reasons of one model together, in bytes: an answer has to fit a transaction.
const MOST_OF_REASON: usize = 256;
const MOST_OF_REASONS: usize = 128 << 10;
/// What stands for the reasons beyond.
const LEFT_OUT: &str = "not taken";

struct Diagnostics {
    core: Arc<Core>,
}

/// The extension of the device of `core`.
pub(super) fn new_binder(core: Arc<Core>) -> Strong<dyn IDiagnostics> {
    ipc::object!(BnDiagnostics, Diagnostics { core })
}

/// What the calling client may see.
fn view_of_caller() -> View {
    View::of(ipc::calling_uid(), geteuid().as_raw())
}

impl Interface for Diagnostics {
    fn dump(&self, writer: &mut dyn Write, arguments: &[ipc::DumpArgument]) -> Result<(), StatusCode> {
        dump(&self.core, writer, arguments)
    }
}

impl IDiagnostics for Diagnostics {
    fn status(&self) -> BinderResult<String> {
        handle(&self.core, "IDiagnostics.status", || {
            // It is about all that is alive: a client with many connections would have as many threads at it.
            let client = ipc::calling_uid();
            let place = self.core.quotas.check(client)?;
            let control = Control { client, cancelled: caller_gone(), ..Control::default() };
            let turn = self.core.call_turns.check(&control);
            turn.yield_point().map_err(BackendError::from)?;
            drop(place); // what it tells is not to be of itself
            Ok(report(&self.core, view_of_caller()).json())
        })
    }

    fn refusals(&self, model: &Model) -> BinderResult<Vec<String>> {
        handle(&self.core, "IDiagnostics.refusals", || Ok(reasons(self.core.support(model)?)))
    }

    fn describe(&self, model: &Strong<dyn IPreparedModel>) -> BinderResult<Option<ModelDescription>> {
        handle(&self.core, "IDiagnostics.describe", || profile::describe(&self.core, model))
    }

    fn record(&self, model: &Strong<dyn IPreparedModel>) -> BinderResult<Strong<dyn IRecorder>> {
        handle(&self.core, "IDiagnostics.record", || profile::record(&self.core, model))
    }
}

const USAGE: &str = "arguments: --json for one line of JSON, --help for this; none for text\n";

/// Dumps in progress of one driver.
const MOST_DUMPS: u64 = 4;

/// Who writes what the driver tells of itself, one uid at a time: the file is the caller's, and may take it slowly.
pub(super) fn dumps() -> Arc<Quota> {
    Quota::new(MOST_DUMPS, 1)
}

/// What `dumpsys` prints, and what goes into reports of bugs.
///
/// Only for those who may see all: it is written to a file of the caller's, such as a pipe that nobody reads, and a
/// thread that serves others must not wait for just anybody.
pub(super) fn dump(
    core: &Core,
    writer: &mut dyn Write,
    arguments: &[ipc::DumpArgument],
) -> Result<(), StatusCode> {
    was_read(); // it may wait for whoever is to read it
    was_served();
    let client = ipc::calling_uid();
    if view_of_caller() != View::All {
        log::info!("uid {client} may not have the driver dumped");
        return Err(ipc::PERMISSION_DENIED);
    }
    let _place = core.dumps.take(client, 1).map_err(|_| ipc::WOULD_BLOCK)?;
    let text = match Form::of(&ipc::texts(arguments)) {
        Ok(Form::Text) => report(core, View::All).text(),
        Ok(Form::Json) => report(core, View::All).json() + "\n",
        Ok(Form::Help) => USAGE.into(),
        Err(unknown) => format!("{unknown:?} is not known; {USAGE}"),
    };
    // Who does not want to read on is no fault of ours.
    writer.write_all(text.as_bytes()).or_else(|why| match why.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(ipc::FAILED_TRANSACTION),
    })
}

/// What a dump looks like.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Help,
}

impl Form {
    /// `Err` with the first argument that is not known.
    fn of(arguments: &[String]) -> Result<Self, &str> {
        let mut form = Form::Text;
        for argument in arguments {
            form = match argument.as_str() {
                // What dumpsys itself adds for reports of bugs.
                "-a" => form,
                "--json" => Form::Json,
                "--help" | "-h" => return Ok(Form::Help),
                unknown => return Err(unknown),
            };
        }
        Ok(form)
    }
}

/// The reasons, cut where they are long. None is empty, as that says that an operation is taken.
fn reasons(support: Vec<Result<(), String>>) -> Vec<String> {
    let mut left = MOST_OF_REASONS;
    let mut reason = |why: String| {
        let end = (0..=why.len().min(MOST_OF_REASON)).rev().find(|&end| why.is_char_boundary(end));
        let why = &why[..end.unwrap_or(0)];
        match left.checked_sub(why.len()).filter(|_| !why.is_empty()) {
            Some(rest) => {
                left = rest;
                why.to_string()
            }
            None => LEFT_OUT.into(),
        }
    };
    support.into_iter().map(|taken| taken.err().map_or(String::new(), &mut reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_dump_are_read() {
        let form = |text: &str| {
            let arguments: Vec<String> = text.split_whitespace().map(String::from).collect();
            Form::of(&arguments).map_err(String::from)
        };
        for (text, expected) in [
            ("", Ok(Form::Text)),
            ("-a", Ok(Form::Text)),
            ("-a --json", Ok(Form::Json)),
            ("--json --help", Ok(Form::Help)),
            ("--proto", Err("--proto".into())),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
    }

    #[test]
    fn reasons_are_cut_and_never_empty() {
        let long = "é".repeat(1000);
        let support = vec![Ok(()), Err("of its rank".into()), Err(String::new()), Err(long)];
        let cut = "é".repeat(MOST_OF_REASON / 2);
        assert_eq!(reasons(support), ["", "of its rank", LEFT_OUT, cut.as_str()]);
        let many = reasons(vec![Err("x".repeat(MOST_OF_REASON)); 10_000]);
        assert!(many.iter().all(|why| !why.is_empty()));
        let bytes: usize = many.iter().map(String::len).sum();
        assert!(bytes <= MOST_OF_REASONS + many.len() * LEFT_OUT.len(), "{bytes}");
        assert_eq!(many[9_999], LEFT_OUT);
    }
}
