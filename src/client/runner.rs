//! Every way to run a prepared model: set up once, then run again and again, as a client does that cares for speed.

use super::driver::Driver;
use super::error::ClientError;
use super::fence;
use super::fmq_burst::{FmqBurst, POLLING};
use crate::aidl::*;
use crate::fmq::codec::RequestPacket;
use binder::Strong;
use std::time::Duration;

/// Ways to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// executeSynchronously
    Sync,
    /// executeFenced, and a wait for its fence
    Fenced,
    /// A burst, in which the driver knows the memory by tokens
    Burst,
    /// A reusable execution, which knows its request
    Reusable,
    /// Over fast message queues, by the driver's extension
    Fmq,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 5] = [Mode::Sync, Mode::Fenced, Mode::Burst, Mode::Reusable, Mode::Fmq];

    /// The name that command lines and options know it by.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Fenced => "fenced",
            Mode::Burst => "burst",
            Mode::Reusable => "reusable",
            Mode::Fmq => "fmq",
        }
    }
}

/// Longest wait for a fence where nothing else limits it.
const FENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// "None" for deadlines and durations of the interface.
const NONE: i64 = -1;

/// A mode that is ready to run.
pub struct Runner(Kind);

enum Kind {
    Sync,
    Fenced,
    Burst { burst: Strong<dyn IBurst>, tokens: Vec<i64> },
    Reusable(Strong<dyn IExecution>),
    Fmq(Box<(FmqBurst, RequestPacket)>),
}

impl Runner {
    /// Sets up what `mode` needs to run `request` on `prepared`.
    pub fn open(
        mode: Mode,
        driver: &Driver,
        prepared: &Strong<dyn IPreparedModel>,
        request: &Request,
    ) -> Result<Self, ClientError> {
        Ok(Runner(match mode {
            Mode::Sync => Kind::Sync,
            Mode::Fenced => Kind::Fenced,
            Mode::Burst => {
                let burst = driver.answer("configureExecutionBurst", prepared.configureExecutionBurst())?;
                Kind::Burst { burst, tokens: burst_tokens(request) }
            }
            Mode::Reusable => {
                let config = ExecutionConfig { loopTimeoutDurationNs: NONE, ..Default::default() };
                let execution = prepared.createReusableExecution(request, &config);
                Kind::Reusable(driver.answer("createReusableExecution", execution)?)
            }
            Mode::Fmq => {
                let burst = FmqBurst::open(driver, prepared, POLLING)?;
                let burst = burst.ok_or(ClientError::NoQueues)?;
                let packet = burst.packet(request, false)?;
                Kind::Fmq(Box::new((burst, packet)))
            }
        }))
    }

    /// Runs `request`, which must be the one that it was opened for, and waits until it is done.
    pub fn run(
        &mut self,
        driver: &Driver,
        prepared: &Strong<dyn IPreparedModel>,
        request: &Request,
    ) -> Result<ErrorStatus, ClientError> {
        let result = match &mut self.0 {
            Kind::Sync => driver
                .answer("executeSynchronously", prepared.executeSynchronously(request, false, NONE, NONE))?,
            Kind::Burst { burst, tokens } => driver.answer(
                "IBurst.executeSynchronously",
                burst.executeSynchronously(request, tokens, false, NONE, NONE),
            )?,
            Kind::Reusable(execution) => {
                driver.answer("IExecution.executeSynchronously", execution.executeSynchronously(NONE))?
            }
            Kind::Fenced => return fenced(driver, prepared, request),
            Kind::Fmq(open) => {
                let (burst, packet) = &mut **open;
                return Ok(ErrorStatus(burst.execute(driver, packet)?.status));
            }
        };
        Ok(match result.outputSufficientSize {
            true => ErrorStatus::NONE,
            false => ErrorStatus::OUTPUT_INSUFFICIENT_SIZE,
        })
    }
}

fn fenced(
    driver: &Driver,
    prepared: &Strong<dyn IPreparedModel>,
    request: &Request,
) -> Result<ErrorStatus, ClientError> {
    let call = "executeFenced";
    let result = prepared.executeFenced(request, &[], false, NONE, NONE, NONE);
    let result = driver.answer(call, result)?;
    if let Some(fence) = &result.syncFence {
        let timeout = driver.timeout().unwrap_or(FENCE_TIMEOUT);
        fence::wait_for(fence, timeout).map_err(|why| ClientError::Call { call, why: why.to_string() })?;
    }
    let callback = result
        .callback
        .ok_or_else(|| ClientError::Call { call, why: "it came back without a callback".into() })?;
    let (mut launched, mut fenced) = (Timing::default(), Timing::default());
    driver.answer("getExecutionInfo", callback.getExecutionInfo(&mut launched, &mut fenced))
}

/// The names that a burst knows a request's memory by: device memory has none.
pub fn burst_tokens(request: &Request) -> Vec<i64> {
    let token = |(i, pool): (usize, &RequestMemoryPool)| match pool {
        RequestMemoryPool::Pool(_) => i as i64,
        RequestMemoryPool::Token(_) => -1,
    };
    request.pools.iter().enumerate().map(token).collect()
}
