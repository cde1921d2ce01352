//! `cts_expect_failure`: somewhere between the first question and the last result the driver must say no.

use super::general::prepare_model;
use crate::aidl::ErrorStatus;
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Step, Stop};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;

/// Some of these loop until they are stopped.
const LOOP_TIMEOUT_NS: i64 = 1_000_000;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|path| !path.is_fenced())?;
    let prepared = match prepare_model(context, case, &build(case, false)?, false) {
        Ok(prepared) => prepared,
        Err(Stop::Fail(_)) => return Ok(()),
        Err(stop) => return Err(stop),
    };
    let request = TestRequest::new(case, Layout::Padded)?;
    let session = Session::new(&context.driver, &prepared, &request.request);
    for path in paths {
        expect_error(&session, path)?;
    }
    session.end()
}

/// Any error will do.
pub fn expect_error(session: &Session, path: ExecutionPath) -> Step {
    let terms = Terms { loop_timeout_ns: LOOP_TIMEOUT_NS, ..Default::default() };
    let mut judge = |ran: &Ran| match ran.status {
        ErrorStatus::NONE => fail(format!("{path}: the execution succeeded")),
        _ => Ok(()),
    };
    session.execute(path, &terms, &mut || Ok(()), &mut judge)
}
