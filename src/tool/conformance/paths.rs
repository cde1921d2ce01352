//! The ways to execute a prepared model, each behind one function: what a suite tests, it tests on all of them.

use super::outcome::{fail, Step};
use crate::aidl::*;
use crate::fmq::codec::OutputShape as OutputShapeDatum;
use crate::tool::client::{fence, ClientError, Driver};
use crate::tool::fmq::{FmqBurst, POLLING};
use crate::tool::way::burst_tokens;
use binder::{BinderResult, ParcelFileDescriptor, Strong};
use std::os::fd::AsFd;
use std::time::Duration;

/// A way to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum ExecutionPath {
    Sync,
    SyncConfig,
    Reusable,
    Burst,
    BurstConfig,
    Fenced,
    FencedConfig,
    FencedReusable,
    /// Over fast message queues, by the extension of prepared models.
    Fmq,
}

impl ExecutionPath {
    pub const ALL: [ExecutionPath; 9] = [
        Self::Sync,
        Self::SyncConfig,
        Self::Reusable,
        Self::Burst,
        Self::BurstConfig,
        Self::Fenced,
        Self::FencedConfig,
        Self::FencedReusable,
        Self::Fmq,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::SyncConfig => "sync-config",
            Self::Reusable => "reusable",
            Self::Burst => "burst",
            Self::BurstConfig => "burst-config",
            Self::Fenced => "fenced",
            Self::FencedConfig => "fenced-config",
            Self::FencedReusable => "fenced-reusable",
            Self::Fmq => "fmq",
        }
    }

    pub fn is_burst(self) -> bool {
        matches!(self, Self::Burst | Self::BurstConfig)
    }

    pub fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced | Self::FencedConfig | Self::FencedReusable)
    }

    /// Whether an execution can have a deadline, a limit on its loops, and memory of the driver's: queues know none.
    pub fn has_terms(self) -> bool {
        self != Self::Fmq
    }

    /// First interface version that has it.
    pub fn version(self) -> i32 {
        match self {
            Self::Sync | Self::Burst | Self::Fenced | Self::Fmq => 1,
            _ => 4,
        }
    }
}

impl std::fmt::Display for ExecutionPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What is to be executed.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub driver: &'a Driver,
    pub prepared: &'a Strong<dyn IPreparedModel>,
    pub request: &'a Request,
    pub measure: bool,
    pub deadline_ns: i64,
    pub loop_timeout_ns: i64,
}

impl<'a> Call<'a> {
    /// A call without timing or limits.
    pub fn new(driver: &'a Driver, prepared: &'a Strong<dyn IPreparedModel>, request: &'a Request) -> Self {
        Call { driver, prepared, request, measure: false, deadline_ns: -1, loop_timeout_ns: -1 }
    }

    fn config(&self) -> ExecutionConfig {
        ExecutionConfig {
            measureTiming: self.measure,
            loopTimeoutDurationNs: self.loop_timeout_ns,
            ..Default::default()
        }
    }
}

/// How an execution ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub status: ErrorStatus,
    /// The driver's own words.
    pub message: String,
    pub shapes: Vec<OutputShape>,
    pub timing: Timing,
    /// The object to execute on was refused; nothing was executed.
    pub at_creation: bool,
}

impl Ran {
    fn new(status: ErrorStatus) -> Self {
        let timing = Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 };
        Ran { status, message: String::new(), shapes: Vec::new(), timing, at_creation: false }
    }

    /// The status with the driver's words.
    pub fn tell(&self) -> String {
        let name = crate::tool::client::name(self.status);
        if self.message.is_empty() {
            name
        } else {
            format!("{name} ({})", self.message)
        }
    }
}

/// How often a reusable execution is run.
const REUSES: usize = 2;
/// Longest wait for a fence.
const FENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Executes along `path`. `before` is called ahead of each run, and `judge` after it: reusable executions run twice.
pub fn execute(
    path: ExecutionPath,
    call: &Call,
    before: &mut dyn FnMut() -> Step,
    judge: &mut dyn FnMut(&Ran) -> Step,
) -> Step {
    let Call { driver, prepared, request, measure, deadline_ns, loop_timeout_ns } = *call;
    let runs =
        if matches!(path, ExecutionPath::Reusable | ExecutionPath::FencedReusable) { REUSES } else { 1 };
    let reusable = if runs > 1 {
        match answer(
            driver,
            "createReusableExecution",
            prepared.createReusableExecution(request, &call.config()),
        )? {
            Ok(execution) => Some(execution),
            Err(refusal) => return judge(&refusal),
        }
    } else {
        None
    };
    for _ in 0..runs {
        before()?;
        let ran = match (path, &reusable) {
            (ExecutionPath::Sync, _) => plain(
                driver,
                "executeSynchronously",
                prepared.executeSynchronously(request, measure, deadline_ns, loop_timeout_ns),
            )?,
            (ExecutionPath::SyncConfig, _) => plain(
                driver,
                "executeSynchronouslyWithConfig",
                prepared.executeSynchronouslyWithConfig(request, &call.config(), deadline_ns),
            )?,
            (ExecutionPath::Burst | ExecutionPath::BurstConfig, _) => burst(path, call)?,
            (ExecutionPath::Fmq, _) => fmq(call)?,
            (ExecutionPath::Reusable, Some(execution)) => {
                plain(driver, "IExecution.executeSynchronously", execution.executeSynchronously(deadline_ns))?
            }
            (_, execution) => fenced(path, call, execution.as_ref())?,
        };
        judge(&ran)?;
    }
    Ok(())
}

/// The value, or a refusal at creation.
fn answer<T>(driver: &Driver, name: &'static str, result: BinderResult<T>) -> Step<Result<T, Ran>> {
    match driver.answer(name, result) {
        Ok(value) => Ok(Ok(value)),
        Err(ClientError::Refused { status, message, .. }) => {
            Ok(Err(Ran { message, at_creation: true, ..Ran::new(status) }))
        }
        Err(error) => Err(error.into()),
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

/// One execution in a burst of its own, which then has to let go of the memory.
fn burst(path: ExecutionPath, call: &Call) -> Step<Ran> {
    let burst = match answer(call.driver, "configureExecutionBurst", call.prepared.configureExecutionBurst())?
    {
        Ok(burst) => burst,
        Err(refusal) => return Ok(refusal),
    };
    let tokens = burst_tokens(call.request);
    let ran = run_burst(path, call, &burst, &tokens)?;
    release(call.driver, &burst, &tokens)?;
    Ok(ran)
}

/// Executes in a burst under these memory tokens.
pub fn run_burst(path: ExecutionPath, call: &Call, burst: &Strong<dyn IBurst>, tokens: &[i64]) -> Step<Ran> {
    let Call { driver, request, measure, deadline_ns, loop_timeout_ns, .. } = *call;
    match path {
        ExecutionPath::BurstConfig => plain(
            driver,
            "IBurst.executeSynchronouslyWithConfig",
            burst.executeSynchronouslyWithConfig(request, tokens, &call.config(), deadline_ns),
        ),
        _ => plain(
            driver,
            "IBurst.executeSynchronously",
            burst.executeSynchronously(request, tokens, measure, deadline_ns, loop_timeout_ns),
        ),
    }
}

/// Executes in a burst over queues of its own.
fn fmq(call: &Call) -> Step<Ran> {
    let Call { driver, prepared, request, measure, .. } = *call;
    let Some(mut burst) = FmqBurst::open(driver, prepared, POLLING)? else {
        let message = "the prepared model has no such extension".to_string();
        return Ok(Ran { message, at_creation: true, ..Ran::new(ErrorStatus::GENERAL_FAILURE) });
    };
    let packet = burst.packet(request, measure)?;
    let result = burst.execute(driver, &packet)?;
    burst.free(driver, &packet)?;
    let shape = |shape: OutputShapeDatum| -> Result<OutputShape, std::num::TryFromIntError> {
        let dimensions = shape.dims.into_iter().map(i32::try_from).collect::<Result<_, _>>()?;
        Ok(OutputShape { dimensions, isSufficient: shape.sufficient })
    };
    let Ok(shapes) = result.shapes.into_iter().map(shape).collect() else {
        return fail("a dimension that is no 31-bit number");
    };
    // Microseconds over queues.
    let ns = |time: u64| i64::try_from(time).ok().and_then(|time| time.checked_mul(1000)).unwrap_or(-1);
    let timing = Timing { timeOnDeviceNs: ns(result.timing.0), timeInDriverNs: ns(result.timing.1) };
    Ok(Ran { shapes, timing, ..Ran::new(ErrorStatus(result.status)) })
}

/// Lets a burst forget the memory under these tokens.
pub fn release(driver: &Driver, burst: &Strong<dyn IBurst>, tokens: &[i64]) -> Step {
    for &token in tokens.iter().filter(|&&token| token >= 0) {
        driver.answer("releaseMemoryResource", burst.releaseMemoryResource(token))?;
    }
    Ok(())
}

/// Executes fenced and waits. When a fence comes back, an execution is made to wait for that one first, so that waiting
/// is tested as well; a reusable execution cannot be under way twice.
fn fenced(path: ExecutionPath, call: &Call, execution: Option<&Strong<dyn IExecution>>) -> Step<Ran> {
    let mut result = match launch_fenced(path, call, execution, &[])? {
        Ok(result) => result,
        Err(refusal) => return Ok(Ran { at_creation: false, ..refusal }),
    };
    if let (Some(fence), None) = (&result.syncFence, execution) {
        let first = [ParcelFileDescriptor::new(fence.as_fd().try_clone_to_owned()?)];
        result = match launch_fenced(path, call, None, &first)? {
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
    let status = call.driver.answer("getExecutionInfo", status)?;
    check_fenced_timing(&fenced, call.measure)?;
    Ok(Ran { timing: launched, ..Ran::new(status) })
}

fn launch_fenced(
    path: ExecutionPath,
    call: &Call,
    execution: Option<&Strong<dyn IExecution>>,
    wait_for: &[ParcelFileDescriptor],
) -> Step<Result<FencedExecutionResult, Ran>> {
    let Call { driver, prepared, request, measure, deadline_ns, loop_timeout_ns } = *call;
    match (path, execution) {
        (_, Some(execution)) => {
            answer(driver, "IExecution.executeFenced", execution.executeFenced(wait_for, deadline_ns, -1))
        }
        (ExecutionPath::FencedConfig, _) => answer(
            driver,
            "executeFencedWithConfig",
            prepared.executeFencedWithConfig(request, wait_for, &call.config(), deadline_ns, -1),
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
    super::check::timing(fenced, measure).map_err(|stop| stop.at("timing since the fence"))
}
