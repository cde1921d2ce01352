//! `dynamic_shape`: output dimensions that the model leaves open, and an output that does not fit.

use super::general::{place, prepare_model, refused};
use super::Context;
use crate::aidl::{ErrorStatus, IPreparedModel};
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{Skip, Step, Stop};
use crate::tool::conformance::paths::{execute, Call, ExecutionPath, Ran};
use crate::tool::conformance::request::{Layout, TestRequest};
use binder::Strong;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|_| true)?;
    let model = build(case, true)?;
    let roomy = TestRequest::new(case, Layout::Padded)?;
    let mut short = TestRequest::new(case, Layout::Padded)?;
    let has_short = short.shorten_first_output();
    for &with_config in context.preparations() {
        let prepared = prepare_model(context, case, &model, with_config)?;
        for &path in &paths {
            for measure in [false, true] {
                let place = place(path, measure, with_config);
                evaluate(context, case, &prepared, &roomy, path, measure, false)
                    .map_err(|stop| stop.at(format!("{place}, dimensions left open")))?;
                if has_short {
                    evaluate(context, case, &prepared, &short, path, measure, true)
                        .map_err(|stop| stop.at(format!("{place}, first output too small")))?;
                }
            }
        }
    }
    Ok(())
}

fn evaluate(
    context: &Context,
    case: &Case,
    prepared: &Strong<dyn IPreparedModel>,
    request: &TestRequest,
    path: ExecutionPath,
    measure: bool,
    short: bool,
) -> Step {
    let call = Call { measure, ..Call::new(&context.driver, prepared, &request.request) };
    let mut judge = |ran: &Ran| {
        check::created(ran)?;
        if ran.status == ErrorStatus::GENERAL_FAILURE {
            return Err(Stop::Skip(Skip::Declined(ran.message.clone())));
        }
        if path.is_fenced() {
            return refused(ran, ErrorStatus::INVALID_ARGUMENT);
        }
        if short {
            refused(ran, ErrorStatus::OUTPUT_INSUFFICIENT_SIZE)?;
            check::timing(&ran.timing, measure)?;
            return check::insufficient_shapes(case, &ran.shapes);
        }
        check::shared_success(case, ran, measure, Shapes::Required, request)
    };
    execute(path, &call, &mut || Ok(request.reset_outputs()?), &mut judge)
}
