//! `dynamic_shape`: output dimensions that the model leaves open, and an output that does not fit.

use super::general::{place, prepare_model, refused};
use crate::aidl::ErrorStatus;
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{Skip, Step, Stop};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|_| true)?;
    let model = build(case, true)?;
    let roomy = TestRequest::new(case, Layout::Padded)?;
    let mut short = TestRequest::new(case, Layout::Padded)?;
    let has_short = short.shorten_first_output();
    for &with_config in context.preparations() {
        let prepared = prepare_model(context, case, &model, with_config)?;
        let requests = [(&roomy, false, "dimensions left open"), (&short, true, "first output too small")];
        for (request, is_short, what) in requests {
            if is_short && !has_short {
                continue;
            }
            let session = Session::new(&context.driver, &prepared, &request.request);
            for &path in &paths {
                for measure in [false, true] {
                    evaluate(&session, case, request, path, measure, is_short)
                        .map_err(|stop| stop.at(format!("{}, {what}", place(path, measure, with_config))))?;
                }
            }
            session.end()?;
        }
    }
    Ok(())
}

fn evaluate(
    session: &Session,
    case: &Case,
    request: &TestRequest,
    path: ExecutionPath,
    measure: bool,
    short: bool,
) -> Step {
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
    session.execute(path, &Terms::measured(measure), &mut || Ok(request.reset_outputs()?), &mut judge)
}
