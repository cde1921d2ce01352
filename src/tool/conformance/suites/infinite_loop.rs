//! `infinite_loop`: a WHILE that never ends is ended by its time limit.

use super::general::{place, prepare_model};
use crate::aidl::ErrorStatus;
use crate::tool::conformance::check;
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;

const LOOP_TIMEOUT_NS: i64 = 1_000_000;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(ExecutionPath::has_terms)?;
    let model = build(case, false)?;
    let request = TestRequest::new(case, Layout::Padded)?;
    for &with_config in context.preparations() {
        let prepared = prepare_model(context, case, &model, with_config)?;
        let session = Session::new(&context.driver, &prepared, &request.request);
        for &path in &paths {
            for measure in [false, true] {
                let terms = Terms { loop_timeout_ns: LOOP_TIMEOUT_NS, ..Terms::measured(measure) };
                session
                    .execute(path, &terms, &mut || Ok(()), &mut |ran| judge(ran, measure))
                    .map_err(|stop| stop.at(place(path, measure, with_config)))?;
            }
        }
        session.end()?;
    }
    Ok(())
}

fn judge(ran: &Ran, measure: bool) -> Step {
    check::created(ran)?;
    check::timing(&ran.timing, measure)?;
    match ran.status {
        ErrorStatus::MISSED_DEADLINE_TRANSIENT | ErrorStatus::MISSED_DEADLINE_PERSISTENT => Ok(()),
        ErrorStatus::GENERAL_FAILURE => Err(Stop::Skip(Skip::Declined(ran.message.clone()))),
        _ => fail(format!("the endless loop ended in {}", ran.tell())),
    }
}
