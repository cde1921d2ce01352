//! `validation`: a valid model or request, broken in one place at a time, must be refused as INVALID_ARGUMENT every time.
//!
//! The ways to break a model are in the files of this directory; none of them knows of a driver.

mod edges;
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

use super::hal_model::{build, Case};
use super::outcome::{fail, Step};
use super::paths::ExecutionPath;
use super::prepare::prepare;
use super::request::{Layout, TestRequest};
use super::session::Session;
use super::suites::{expect_error, Context};
use crate::aidl::{ErrorStatus, Model};
use crate::tool::client::{name, ClientError, PrepareOptions};
use mutations::Mutations;

/// So many of a model's faults are told; the others are counted.
const TOLD: usize = 3;

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
        let (launch, ear) = driver.launch(model, &PrepareOptions { with_config, ..*options });
        let call = ear.call();
        invalid(call, driver.answer(call, launch))?;
        let (status, prepared) = ear.wait(driver)?;
        if status != ErrorStatus::INVALID_ARGUMENT || prepared.is_some() {
            let what = if prepared.is_some() { "a prepared model" } else { "null" };
            return fail(format!("{call} told the callback {} with {what}", name(status)));
        }
    }
    Ok(())
}

/// The answer must be INVALID_ARGUMENT.
fn invalid<T>(call: &str, answer: Result<T, ClientError>) -> Step {
    match answer {
        Err(ClientError::Refused { status: ErrorStatus::INVALID_ARGUMENT, .. }) => Ok(()),
        Err(error @ ClientError::Refused { .. }) => fail(format!("not INVALID_ARGUMENT: {error}")),
        Err(error) => Err(error.into()),
        Ok(_) => fail(format!("{call} accepted it")),
    }
}

/// What a driver let pass.
#[derive(Default)]
struct Faults {
    tried: usize,
    count: usize,
    told: Vec<String>,
}

impl Faults {
    /// Keeps a failure for later; anything else that stops is passed on.
    fn note(&mut self, what: &str, step: Step) -> Step {
        self.tried += 1;
        match step {
            Err(super::outcome::Stop::Fail(why)) => {
                self.count += 1;
                if self.told.len() < TOLD {
                    self.told.push(format!("{what}: {why}"));
                }
                Ok(())
            }
            step => step,
        }
    }

    fn verdict(self) -> Step {
        match self.count {
            0 => Ok(()),
            count => fail(format!("{count} of {} mutations: {}", self.tried, self.told.join("; "))),
        }
    }
}
