//! `quant_coupling`: a model of unsigned 8-bit values and its signed twin are both supported or both not, and both right.

use super::general::{evaluate, place, prepare_model};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|_| true)?;
    let file = case.file.signed_twin(case.model);
    let twin = Case { file: &file, model: &file.models[0] };
    for &with_config in context.preparations() {
        let first = prepare_model(context, case, &build(case, false)?, with_config);
        let second = prepare_model(context, &twin, &build(&twin, false)?, with_config);
        let (first, second) = match (first, second) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(Stop::Skip(Skip::Unsupported(what))), Err(Stop::Skip(Skip::Unsupported(_)))) => {
                return Err(Stop::Skip(Skip::Unsupported(what)));
            }
            (Err(Stop::Skip(_)), Ok(_)) => return fail("the signed twin is supported, the model is not"),
            (Ok(_), Err(Stop::Skip(_))) => return fail("the model is supported, its signed twin is not"),
            (Err(stop), _) => return Err(stop),
            (_, Err(stop)) => return Err(stop.at("signed twin")),
        };
        for (case, prepared, whose) in [(case, &first, "model"), (&twin, &second, "signed twin")] {
            let request = TestRequest::new(case, Layout::Padded)?;
            let session = Session::new(&context.driver, prepared, &request.request);
            for &path in &paths {
                for measure in [false, true] {
                    evaluate(&session, case, &request, path, measure)
                        .map_err(|stop| stop.at(format!("{whose}, {}", place(path, measure, with_config))))?;
                }
            }
            session.end()?;
        }
    }
    Ok(())
}
