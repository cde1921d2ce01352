//! The preparation protocol: what every suite does to get a prepared model, and when it may skip one.

use super::hal_model::Case;
use super::outcome::{fail, Skip, Step, Stop};
use crate::aidl::*;
use crate::client::{name, Driver, PrepareOptions, Verdict};
use binder::Strong;

/// Asks which operations the driver takes: names of those that it does not.
pub fn unsupported(driver: &Driver, case: &Case, model: &Model) -> Step<Vec<String>> {
    let answers = driver.answer("getSupportedOperations", driver.device().getSupportedOperations(model))?;
    if answers.len() != model.main.operations.len() {
        return fail(format!(
            "getSupportedOperations gave {} answers for {} operations",
            answers.len(),
            model.main.operations.len()
        ));
    }
    let refused = case.model.main.operations.iter().zip(answers).filter(|(_, supported)| !supported);
    let mut names: Vec<String> = refused.map(|(operation, _)| operation.ty.clone()).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Launches a compilation, which must succeed, and waits for the verdict.
pub fn verdict(driver: &Driver, model: &Model, options: &PrepareOptions) -> Step<Verdict> {
    let (launch, listener) = driver.launch(model, options);
    let call = listener.call();
    driver.answer(call, launch)?;
    let (status, prepared) = listener.wait(driver)?;
    if prepared.is_some() != (status == ErrorStatus::NONE) {
        let what = if prepared.is_some() { "a prepared model" } else { "null" };
        return fail(format!("{call} reported {} with {what}", name(status)));
    }
    Ok((status, prepared))
}

/// Compiles a model; one with operations that the driver does not take may be refused, and then is skipped.
pub fn prepare(
    driver: &Driver,
    case: &Case,
    model: &Model,
    options: &PrepareOptions,
) -> Step<Strong<dyn IPreparedModel>> {
    let unsupported = unsupported(driver, case, model)?;
    match verdict(driver, model, options)? {
        (_, Some(prepared)) => Ok(prepared),
        (_, None) if !unsupported.is_empty() => Err(Stop::Skip(Skip::Unsupported(unsupported))),
        (status, None) => {
            fail(format!("all operations are supported, but the compilation ended in {}", name(status)))
        }
    }
}
