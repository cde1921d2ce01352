//! `burst`: one burst runs many times over the same memory, and over memory that it has released.

use super::general::prepare_model;
use crate::client::burst_tokens;
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::Step;
use crate::tool::conformance::paths::ExecutionPath;
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::{release, run_burst, Session};
use crate::tool::conformance::target::Terms;

/// Runs between two releases of the memory.
const RUNS: usize = 2;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(ExecutionPath::is_burst)?;
    let prepared = prepare_model(context, case, &build(case, false)?, false)?;
    let driver = &context.driver;
    let first = TestRequest::new(case, Layout::Padded)?;
    let second = TestRequest::new(case, Layout::Padded)?;
    for path in paths {
        let burst = driver.answer("configureExecutionBurst", prepared.configureExecutionBurst())?;
        // Once the first memory's names are released they may stand for the second's.
        for request in [&first, &second] {
            let tokens = burst_tokens(&request.request);
            for run in 0..RUNS {
                request.reset_outputs()?;
                let session = Session::new(driver, &prepared, &request.request);
                let ran = run_burst(&session, path, &Terms::default(), &burst, &tokens)?;
                check::shared_success(case, &ran, false, Shapes::Optional, request)
                    .map_err(|stop| stop.at(format!("{path}, run {run}")))?;
            }
            release(driver, &burst, &tokens)?;
        }
    }
    Ok(())
}
