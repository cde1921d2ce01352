//! `cts_expect_failure`: somewhere between the first question and the last result the driver must say no.

use crate::aidl::{ErrorStatus, Model};
use crate::client::{name, ClientError, Driver, PrepareOptions, PreparedModel};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Step};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::{expect_error, Session};

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|path| !path.is_fenced())?;
    let Some(prepared) = prepared_or_refused(&context.driver, &build(case, false)?)? else { return Ok(()) };
    let request = TestRequest::new(case, Layout::Padded)?;
    let session = Session::new(&context.driver, &prepared, &request.request);
    for path in paths {
        expect_error(&session, path)?;
    }
    session.end()
}

/// Prepares the model; `None` where the driver refuses it, as it may, by the rules for refusals: the call's answer is a
/// status, and the callback is told one other than NONE and no prepared model.
fn prepared_or_refused(driver: &Driver, model: &Model) -> Step<Option<PreparedModel>> {
    let (launch, listener) = driver.launch(model, &PrepareOptions::default());
    let call = listener.call();
    let refusal = match driver.answer(call, launch) {
        Ok(()) => None,
        Err(ClientError::Refused { status, .. }) => Some(status),
        Err(error) => return Err(error.into()),
    };
    match (listener.wait(driver)?, refusal) {
        ((ErrorStatus::NONE, Some(prepared)), None) => Ok(Some(prepared)),
        ((status, None), None) if status != ErrorStatus::NONE => Ok(None),
        ((status, None), Some(thrown)) if status == thrown => Ok(None),
        ((status, prepared), thrown) => {
            let what = if prepared.is_some() { "a prepared model" } else { "null" };
            let thrown = thrown.map_or("was taken".into(), |thrown| format!("ended in {}", name(thrown)));
            fail(format!("{call} {thrown}, but the callback was told {} with {what}", name(status)))
        }
    }
}
