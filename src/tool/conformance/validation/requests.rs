//! Mutations of requests: arguments left off, on every way of execution; and the memory tokens of bursts.

use super::faults::{invalid, Faults};
use crate::aidl::{ErrorStatus, IPreparedModel, Request};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::outcome::{fail, Step};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::session::{run_burst, Session};
use crate::tool::conformance::target::Terms;
use binder::Strong;

type Prepared = Strong<dyn IPreparedModel>;

/// A burst's token for memory that it need not remember.
const NO_TOKEN: i64 = -1;
/// A token that there cannot be.
const BAD_TOKEN: i64 = -2;

pub fn run(context: &Context, prepared: &Prepared, request: &mut Request, faults: &mut Faults) -> Step {
    for i in 0..request.inputs.len() {
        let input = request.inputs.remove(i);
        everywhere(context, prepared, request, &format!("request without input {i}"), faults)?;
        request.inputs.insert(i, input);
    }
    for i in 0..request.outputs.len() {
        let output = request.outputs.remove(i);
        everywhere(context, prepared, request, &format!("request without output {i}"), faults)?;
        request.outputs.insert(i, output);
    }
    for &path in context.available.paths.iter().filter(|path| path.is_burst()) {
        bursts(context, prepared, request, path, faults)?;
    }
    Ok(())
}

/// The request must be refused on every path.
fn everywhere(
    context: &Context,
    prepared: &Prepared,
    request: &Request,
    what: &str,
    faults: &mut Faults,
) -> Step {
    let session = Session::new(&context.driver, prepared, request);
    for &path in &context.available.paths {
        let what = format!("{what}, {path}");
        let step = match path.is_burst() {
            true => burst(&session, path, &vec![NO_TOKEN; request.pools.len()]),
            false => session.execute(path, &Terms::default(), &mut || Ok(()), &mut refused),
        };
        faults.note(&what, step)?;
    }
    Ok(())
}

fn refused(ran: &Ran) -> Step {
    match ran.status {
        ErrorStatus::INVALID_ARGUMENT => Ok(()),
        _ => fail(format!("the execution ended in {}", ran.tell())),
    }
}

/// An execution in a burst with these tokens must be refused.
fn burst(session: &Session, path: ExecutionPath, tokens: &[i64]) -> Step {
    match session.burst()? {
        Ok(burst) => refused(&run_burst(session, path, &Terms::default(), burst, tokens)?),
        Err(refusal) => fail(format!("no burst: {}", refusal.tell())),
    }
}

/// Tokens that are wrong, too few or too many, with a request that is right.
fn bursts(
    context: &Context,
    prepared: &Prepared,
    request: &Request,
    path: ExecutionPath,
    faults: &mut Faults,
) -> Step {
    let session = Session::new(&context.driver, prepared, request);
    let pools = request.pools.len();
    for i in 0..pools {
        let mut tokens = vec![NO_TOKEN; pools];
        tokens[i] = BAD_TOKEN;
        faults
            .note(&format!("{path} with token {BAD_TOKEN} for pool {i}"), burst(&session, path, &tokens))?;
    }
    for count in [pools - 1, pools + 1] {
        let tokens = vec![NO_TOKEN; count];
        faults
            .note(&format!("{path} with {count} tokens for {pools} pools"), burst(&session, path, &tokens))?;
    }
    let burst = context.driver.answer("configureExecutionBurst", prepared.configureExecutionBurst())?;
    let answer = context.driver.answer("releaseMemoryResource", burst.releaseMemoryResource(BAD_TOKEN));
    faults.note(&format!("release of token {BAD_TOKEN}"), invalid("releaseMemoryResource", answer))
}
