//! `validation`: a valid model or request, broken in one place at a time, must be refused as INVALID_ARGUMENT every time.
//!
//! The ways to break a model are in the files of this directory; none of them knows of a driver.

mod edges;
mod faults;
mod lifetimes;
mod mutations;
mod operands;
mod operations;
mod quantisation;
mod ranks;
mod requests;
#[cfg(test)]
mod tests;
mod types;

use super::context::Context;
use super::hal_model::{build, Case};
use super::outcome::{fail, Step};
use super::paths::ExecutionPath;
use super::prepare::prepare;
use super::request::{Layout, TestRequest};
use super::session::{expect_error, Session};
use crate::aidl::{ErrorStatus, Model};
use crate::client::{name, PrepareOptions};
use faults::{invalid, Faults};
use mutations::Mutations;

pub fn run(context: &Context, case: &Case) -> Step {
    let mut model = build(case, false)?;
    let prepared = prepare(&context.driver, case, &model, &PrepareOptions::default())?;
    let mut faults = Faults::default();
    every_mutation(&mut model, &mut |what, model, options| {
        faults.note(what, refused(context, model, options))
    })?;
    let layout = Layout::Packed;
    let mut request = TestRequest::new(case, layout)?;
    if case.model.expect_failure {
        let session = Session::new(&context.driver, &prepared, &request.request);
        faults.note("execution of a model that must fail", expect_error(&session, ExecutionPath::Sync))?;
    } else {
        requests::run(context, &prepared, &mut request.request, &mut faults)?;
    }
    faults.verdict()
}

/// Every mutation, one after the other; the model is whole again afterwards.
fn every_mutation(model: &mut Model, sink: &mut dyn FnMut(&str, &Model, &PrepareOptions) -> Step) -> Step {
    let mut mutations = Mutations::new(model, sink);
    operations::run(&mut mutations)?;
    operands::run(&mut mutations)?;
    quantisation::run(&mut mutations)?;
    ranks::run(&mut mutations)?;
    lifetimes::run(&mut mutations)?;
    types::run(&mut mutations)?;
    edges::run(&mut mutations)
}

/// Whether the driver refuses the model wherever it is shown to it.
fn refused(context: &Context, model: &Model, options: &PrepareOptions) -> Step {
    let driver = &context.driver;
    // The question takes neither preference nor priority.
    let defaults = PrepareOptions::default();
    if options.preference == defaults.preference && options.priority == defaults.priority {
        let answer = driver.device().getSupportedOperations(model);
        invalid("getSupportedOperations", driver.answer("getSupportedOperations", answer))?;
    }
    for &with_config in context.preparations() {
        let (launch, listener) = driver.launch(model, &PrepareOptions { with_config, ..*options });
        let call = listener.call();
        invalid(call, driver.answer(call, launch))?;
        let (status, prepared) = listener.wait(driver)?;
        if status != ErrorStatus::INVALID_ARGUMENT || prepared.is_some() {
            let what = if prepared.is_some() { "a prepared model" } else { "null" };
            return fail(format!("{call} told the callback {} with {what}", name(status)));
        }
    }
    Ok(())
}
