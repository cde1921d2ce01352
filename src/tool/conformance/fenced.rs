//! Fenced executions: launched, waited for by their fence, and asked for the outcome.

use super::check;
use super::outcome::{fail, Step};
use super::paths::{ExecutionPath, Ran};
use super::target::{answer, Target, Terms};
use crate::aidl::*;
use crate::client::fence;
use binder::{ParcelFileDescriptor, Strong};
use std::os::fd::AsFd;
use std::time::Duration;

/// Longest wait for a fence.
const FENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Executes fenced and waits. When a fence comes back, an execution is made to wait for that one first, so that waiting
/// is tested as well; a reusable execution cannot be under way twice.
pub fn run(
    target: &Target,
    path: ExecutionPath,
    terms: &Terms,
    execution: Option<&Strong<dyn IExecution>>,
) -> Step<Ran> {
    let mut result = match launch(target, path, terms, execution, &[])? {
        Ok(result) => result,
        Err(refusal) => return Ok(Ran { at_creation: false, ..refusal }),
    };
    if let (Some(fence), None) = (&result.syncFence, execution) {
        let first = [ParcelFileDescriptor::new(fence.as_fd().try_clone_to_owned()?)];
        result = match launch(target, path, terms, None, &first)? {
            Ok(result) => result,
            Err(refusal) => return fail(format!("waiting for its own fence: {}", refusal.tell())),
        };
    }
    if let Some(fence) = &result.syncFence {
        fence::wait_for(fence, FENCE_TIMEOUT).or_else(|why| fail(why.to_string()))?;
    }
    let Some(callback) = result.callback else { return fail("a fenced execution without a callback") };
    let (mut launched, mut fenced) = (Timing::default(), Timing::default());
    let status = callback.getExecutionInfo(&mut launched, &mut fenced);
    let status = target.driver.answer("getExecutionInfo", status)?;
    check_fenced_timing(&fenced, terms.measure)?;
    Ok(Ran { timing: launched, ..Ran::new(status) })
}

fn launch(
    target: &Target,
    path: ExecutionPath,
    terms: &Terms,
    execution: Option<&Strong<dyn IExecution>>,
    wait_for: &[ParcelFileDescriptor],
) -> Step<Result<FencedExecutionResult, Ran>> {
    let (driver, prepared, request) = (target.driver, target.prepared, target.request);
    let &Terms { measure, deadline_ns, loop_timeout_ns } = terms;
    match (path, execution) {
        (_, Some(execution)) => {
            answer(driver, "IExecution.executeFenced", execution.executeFenced(wait_for, deadline_ns, -1))
        }
        (ExecutionPath::FencedConfig, _) => answer(
            driver,
            "executeFencedWithConfig",
            prepared.executeFencedWithConfig(request, wait_for, &terms.config(), deadline_ns, -1),
        ),
        _ => answer(
            driver,
            "executeFenced",
            prepared.executeFenced(request, wait_for, measure, deadline_ns, loop_timeout_ns, -1),
        ),
    }
}

/// The second timing of a fenced execution follows the rules of the first, which the suites check.
fn check_fenced_timing(fenced: &Timing, measure: bool) -> Step {
    check::timing(fenced, measure).map_err(|stop| stop.at("timing since the fence"))
}
