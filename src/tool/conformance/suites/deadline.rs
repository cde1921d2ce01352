//! `deadline`: compilations and executions with priorities and deadlines, met or missed.

use super::general::prepare_model;
use crate::aidl::{ErrorStatus, IPreparedModel, Model, Priority};
use crate::client::{name, PrepareOptions};
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Step, Stop};
use crate::tool::conformance::paths::Ran;
use crate::tool::conformance::prepare::verdict;
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;
use binder::Strong;
use nix::time::{clock_gettime, ClockId};

/// A deadline.
#[derive(Clone, Copy, Debug)]
enum Deadline {
    Now,
    Soon,
    Unlimited,
}

const SOON_NS: i64 = 5_000_000;

impl Deadline {
    const ALL: [Deadline; 3] = [Deadline::Now, Deadline::Soon, Deadline::Unlimited];

    /// On CLOCK_BOOTTIME, in nanoseconds.
    fn at(self) -> Step<i64> {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(std::io::Error::from)?;
        #[allow(clippy::useless_conversion)] // time_t has 32 bits where pointers have
        let now = i64::from(now.tv_sec()) * 1_000_000_000 + i64::from(now.tv_nsec());
        Ok(match self {
            Deadline::Now => now,
            Deadline::Soon => now + SOON_NS,
            Deadline::Unlimited => i64::MAX,
        })
    }

    /// Whether an ending with this status is right.
    fn allows(self, status: ErrorStatus) -> bool {
        let missed = matches!(
            status,
            ErrorStatus::MISSED_DEADLINE_TRANSIENT | ErrorStatus::MISSED_DEADLINE_PERSISTENT
        );
        status == ErrorStatus::NONE || (missed && !matches!(self, Deadline::Unlimited))
    }
}

pub fn run(context: &Context, case: &Case) -> Step {
    let paths = context.available.paths(|path| !path.is_fenced() && path.has_terms())?;
    let model = build(case, false)?;
    let prepared = prepare_model(context, case, &model, false)?;
    compilations(context, &model)?;
    let request = TestRequest::new(case, Layout::Packed)?;
    let session = Session::new(&context.driver, &prepared, &request.request);
    for path in paths {
        for deadline in Deadline::ALL {
            let terms = Terms { deadline_ns: deadline.at()?, ..Default::default() };
            let mut judge = |ran: &Ran| judge(case, deadline, ran, &request);
            session
                .execute(path, &terms, &mut || Ok(request.reset_outputs()?), &mut judge)
                .map_err(|stop| stop.at(format!("{path}, deadline {deadline:?}")))?;
        }
    }
    session.end()
}

/// Compilations of a model that the driver has taken before.
fn compilations(context: &Context, model: &Model) -> Step {
    for &with_config in context.preparations() {
        for priority in [Priority::LOW, Priority::HIGH] {
            let options = PrepareOptions { priority, with_config, ..Default::default() };
            compile(context, model, &options, Deadline::Unlimited)
                .map_err(|stop| stop.at(format!("compilation, priority {}", priority.0)))?;
        }
        for deadline in Deadline::ALL {
            let options = PrepareOptions { deadline_ns: deadline.at()?, with_config, ..Default::default() };
            compile(context, model, &options, deadline)
                .map_err(|stop| stop.at(format!("compilation, deadline {deadline:?}")))?;
        }
    }
    Ok(())
}

fn compile(
    context: &Context,
    model: &Model,
    options: &PrepareOptions,
    deadline: Deadline,
) -> Step<Option<Strong<dyn IPreparedModel>>> {
    match verdict(&context.driver, model, options)? {
        (status, prepared) if deadline.allows(status) => Ok(prepared),
        (status, _) => Err(Stop::Fail(format!("ended in {}", name(status)))),
    }
}

fn judge(case: &Case, deadline: Deadline, ran: &Ran, request: &TestRequest) -> Step {
    check::created(ran)?;
    check::timing(&ran.timing, false)?;
    if !deadline.allows(ran.status) {
        return fail(format!("the execution ended in {}", ran.tell()));
    }
    if ran.status == ErrorStatus::NONE {
        return check::shared_success(case, ran, false, Shapes::Optional, request);
    }
    Ok(())
}
