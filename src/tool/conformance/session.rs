//! Executions of one request on one prepared model, along any path: what a suite tests, it tests on all of them.
//!
//! Bursts are opened when first needed, and kept for the executions that follow.

use super::fenced;
use super::outcome::{fail, Step};
use super::paths::{self, ExecutionPath, Ran};
use super::target::{answer, Target, Terms};
use crate::aidl::*;
use crate::client::burst_tokens;
use crate::client::fmq_burst::{FmqBurst, POLLING};
use crate::client::Driver;
use crate::fmq::codec::{OutputShape as OutputShapeDatum, RequestPacket};
use binder::{BinderResult, Strong};
use std::cell::{OnceCell, RefCell};

/// How often a reusable execution is run.
const REUSES: usize = 2;
/// Models that must fail may loop until they are stopped.
const LOOP_TIMEOUT_NS: i64 = 1_000_000;

/// The execution must fail; any error will do.
pub fn expect_error(session: &Session, path: ExecutionPath) -> Step {
    let terms = Terms { loop_timeout_ns: LOOP_TIMEOUT_NS, ..Default::default() };
    let mut judge = |ran: &Ran| match ran.status {
        ErrorStatus::NONE => fail(format!("{path}: the execution succeeded")),
        _ => Ok(()),
    };
    session.execute(path, &terms, &mut || Ok(()), &mut judge)
}

/// A prepared model and a request for it.
pub struct Session<'a> {
    pub driver: &'a Driver,
    pub prepared: &'a Strong<dyn IPreparedModel>,
    pub request: &'a Request,
    burst: OnceCell<Strong<dyn IBurst>>,
    queues: RefCell<Option<Queues>>,
}

/// A burst over queues, and the request as it names it.
struct Queues {
    burst: FmqBurst,
    packet: RequestPacket,
}

impl<'a> Session<'a> {
    pub fn new(driver: &'a Driver, prepared: &'a Strong<dyn IPreparedModel>, request: &'a Request) -> Self {
        Session { driver, prepared, request, burst: OnceCell::new(), queues: RefCell::new(None) }
    }

    /// Executes along `path`. `before` is called ahead of each run, and `judge` after it: reusable executions run twice.
    pub fn execute(
        &self,
        path: ExecutionPath,
        terms: &Terms,
        before: &mut dyn FnMut() -> Step,
        judge: &mut dyn FnMut(&Ran) -> Step,
    ) -> Step {
        let runs = if path.is_reusable() { REUSES } else { 1 };
        let reusable = if path.is_reusable() {
            let created = self.prepared.createReusableExecution(self.request, &terms.config());
            match answer(self.driver, "createReusableExecution", created)? {
                Ok(execution) => Some(execution),
                Err(refusal) => return judge(&refusal),
            }
        } else {
            None
        };
        for _ in 0..runs {
            before()?;
            let ran = self.run(path, terms, reusable.as_ref())?;
            judge(&ran)?;
        }
        Ok(())
    }

    fn run(
        &self,
        path: ExecutionPath,
        terms: &Terms,
        reusable: Option<&Strong<dyn IExecution>>,
    ) -> Step<Ran> {
        let (driver, prepared, request) = (self.driver, self.prepared, self.request);
        let &Terms { measure, deadline_ns, loop_timeout_ns } = terms;
        if !path.is_burst() {
            paths::count(path);
        }
        match (path, reusable) {
            (ExecutionPath::Sync, _) => plain(
                driver,
                "executeSynchronously",
                prepared.executeSynchronously(request, measure, deadline_ns, loop_timeout_ns),
            ),
            (ExecutionPath::SyncConfig, _) => plain(
                driver,
                "executeSynchronouslyWithConfig",
                prepared.executeSynchronouslyWithConfig(request, &terms.config(), deadline_ns),
            ),
            (ExecutionPath::Burst | ExecutionPath::BurstConfig, _) => match self.burst()? {
                Ok(burst) => run_burst(self, path, terms, burst, &burst_tokens(request)),
                Err(refusal) => Ok(refusal),
            },
            (ExecutionPath::Fmq, _) => self.run_over_queues(measure),
            (ExecutionPath::Reusable, Some(execution)) => {
                plain(driver, "IExecution.executeSynchronously", execution.executeSynchronously(deadline_ns))
            }
            (_, execution) => fenced::run(&Target { driver, prepared, request }, path, terms, execution),
        }
    }

    /// The burst of this session, or a refusal of one.
    pub fn burst(&self) -> Step<Result<&Strong<dyn IBurst>, Ran>> {
        if let Some(burst) = self.burst.get() {
            return Ok(Ok(burst));
        }
        let opened = answer(self.driver, "configureExecutionBurst", self.prepared.configureExecutionBurst())?;
        Ok(opened.map(|burst| self.burst.get_or_init(|| burst)))
    }

    /// Executes in a burst over queues.
    fn run_over_queues(&self, measure: bool) -> Step<Ran> {
        let mut queues = self.queues.borrow_mut();
        let queues = match &mut *queues {
            Some(queues) => queues,
            none => {
                let Some(burst) = FmqBurst::open(self.driver, self.prepared, POLLING)? else {
                    let message = "the prepared model has no such extension".to_string();
                    return Ok(Ran { message, at_creation: true, ..Ran::new(ErrorStatus::GENERAL_FAILURE) });
                };
                let packet = burst.packet(self.request, measure)?;
                none.insert(Queues { burst, packet })
            }
        };
        queues.packet.measure = measure;
        let result = queues.burst.execute(self.driver, &queues.packet)?;
        let shape = |shape: OutputShapeDatum| -> Result<OutputShape, std::num::TryFromIntError> {
            let dimensions = shape.dims.into_iter().map(i32::try_from).collect::<Result<_, _>>()?;
            Ok(OutputShape { dimensions, isSufficient: shape.sufficient })
        };
        let Ok(shapes) = result.shapes.into_iter().map(shape).collect() else {
            return fail("a dimension does not fit 31 bits");
        };
        // Microseconds over queues.
        let ns = |time: u64| i64::try_from(time).ok().and_then(|time| time.checked_mul(1000)).unwrap_or(-1);
        let timing = Timing { timeOnDeviceNs: ns(result.timing.0), timeInDriverNs: ns(result.timing.1) };
        Ok(Ran { shapes, timing, ..Ran::new(ErrorStatus(result.status)) })
    }

    /// Ends the session: its bursts have to release the memory.
    pub fn end(self) -> Step {
        if let Some(burst) = self.burst.get() {
            release(self.driver, burst, &burst_tokens(self.request))?;
        }
        match self.queues.into_inner() {
            Some(queues) => Ok(queues.burst.free(self.driver, &queues.packet)?),
            None => Ok(()),
        }
    }
}

fn plain(driver: &Driver, name: &'static str, result: BinderResult<ExecutionResult>) -> Step<Ran> {
    Ok(match answer(driver, name, result)? {
        Err(refusal) => Ran { at_creation: false, ..refusal },
        Ok(result) => {
            let status = match result.outputSufficientSize {
                true => ErrorStatus::NONE,
                false => ErrorStatus::OUTPUT_INSUFFICIENT_SIZE,
            };
            Ran { shapes: result.outputShapes, timing: result.timing, ..Ran::new(status) }
        }
    })
}

/// Executes in `burst` under these memory tokens.
pub fn run_burst(
    session: &Session,
    path: ExecutionPath,
    terms: &Terms,
    burst: &Strong<dyn IBurst>,
    tokens: &[i64],
) -> Step<Ran> {
    let (driver, request) = (session.driver, session.request);
    let &Terms { measure, deadline_ns, loop_timeout_ns } = terms;
    paths::count(path);
    match path {
        ExecutionPath::BurstConfig => plain(
            driver,
            "IBurst.executeSynchronouslyWithConfig",
            burst.executeSynchronouslyWithConfig(request, tokens, &terms.config(), deadline_ns),
        ),
        _ => plain(
            driver,
            "IBurst.executeSynchronously",
            burst.executeSynchronously(request, tokens, measure, deadline_ns, loop_timeout_ns),
        ),
    }
}

/// Lets a burst forget the memory under these tokens.
pub fn release(driver: &Driver, burst: &Strong<dyn IBurst>, tokens: &[i64]) -> Step {
    for &token in tokens.iter().filter(|&&token| token >= 0) {
        driver.answer("releaseMemoryResource", burst.releaseMemoryResource(token))?;
    }
    Ok(())
}
