//! `general`, `fenced` and `cts`: the model runs and its outputs are right.

use crate::aidl::{ErrorStatus, IPreparedModel, Model};
use crate::client::PrepareOptions;
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Step};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::prepare::prepare;
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;
use binder::Strong;

pub fn general(context: &Context, case: &Case) -> Step {
    run(context, case, |path| !path.is_fenced())
}

pub fn fenced(context: &Context, case: &Case) -> Step {
    run(context, case, ExecutionPath::is_fenced)
}

fn run(context: &Context, case: &Case, wanted: impl Fn(ExecutionPath) -> bool) -> Step {
    let paths = context.available.paths(wanted)?;
    let model = build(case, false)?;
    let request = TestRequest::new(case, Layout::Padded)?;
    for &with_config in context.preparations() {
        let prepared = prepare_model(context, case, &model, with_config)?;
        let session = Session::new(&context.driver, &prepared, &request.request);
        for &path in &paths {
            for measure in [false, true] {
                evaluate(&session, case, &request, path, measure)
                    .map_err(|stop| stop.at(place(path, measure, with_config)))?;
            }
        }
        session.end()?;
    }
    Ok(())
}

pub fn prepare_model(
    context: &Context,
    case: &Case,
    model: &Model,
    with_config: bool,
) -> Step<Strong<dyn IPreparedModel>> {
    let options = PrepareOptions { with_config, ..Default::default() };
    prepare(&context.driver, case, model, &options)
}

/// Words for a configuration.
pub fn place(path: ExecutionPath, measure: bool, with_config: bool) -> String {
    let measured = if measure { ", measured" } else { "" };
    let prepared = if with_config { ", prepared with config" } else { "" };
    format!("{path}{measured}{prepared}")
}

/// Runs along one path and compares. Fenced executions cannot give outputs whose size is found out by running.
pub fn evaluate(
    session: &Session,
    case: &Case,
    request: &TestRequest,
    path: ExecutionPath,
    measure: bool,
) -> Step {
    let zero_sized = case.outputs().any(|operand| case.data(operand).is_none());
    let mut judge = |ran: &Ran| {
        if path.is_fenced() && zero_sized {
            return refused(ran, ErrorStatus::INVALID_ARGUMENT);
        }
        check::shared_success(case, ran, measure, Shapes::Optional, request)
    };
    session.execute(path, &Terms::measured(measure), &mut || Ok(request.reset_outputs()?), &mut judge)
}

/// The execution, not the making of its object, ended in this status.
pub fn refused(ran: &Ran, status: ErrorStatus) -> Step {
    check::created(ran)?;
    match ran.status == status {
        true => Ok(()),
        false => {
            fail(format!("the execution ended in {}, expected {}", ran.tell(), crate::client::name(status)))
        }
    }
}
