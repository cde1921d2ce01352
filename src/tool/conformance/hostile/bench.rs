//! What a case works with: a connection of its own, models prepared, requests run, and a look at the next client.

use super::models;
use crate::aidl::*;
use crate::client::shared::Shared;
use crate::client::{name, ClientError, ConnectOptions, Driver, PrepareOptions, PreparedModel};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use binder::BinderResult;
use nix::time::{clock_gettime, ClockId};
use std::time::{Duration, Instant};

/// Longest wait for any answer to a hostile client.
const PATIENCE: Duration = Duration::from_secs(30);
/// Within this a client that comes new must be served, whatever another does.
pub const SERVED_WITHIN: Duration = Duration::from_secs(15);

/// A hostile client.
pub struct Bench<'a> {
    pub context: &'a Context,
    pub driver: Driver,
}

impl<'a> Bench<'a> {
    pub fn new(context: &'a Context) -> Step<Self> {
        Ok(Bench { context, driver: client(context, 2, PATIENCE)? })
    }

    /// Another client, with so many connections.
    pub fn client(&self, connections: u32) -> Step<Driver> {
        client(self.context, connections, PATIENCE)
    }

    /// A prepared model; a driver that does not take it is not tried.
    pub fn prepare(&self, model: &Model) -> Step<PreparedModel> {
        prepare(&self.driver, model)
    }

    /// The answer's status: NONE where the call worked.
    pub fn status<T>(&self, call: &'static str, result: BinderResult<T>) -> Step<ErrorStatus> {
        Ok(self.answer(call, result)?.err().unwrap_or(ErrorStatus::NONE))
    }

    /// The value, or the status that came in place of it.
    pub fn answer<T>(&self, call: &'static str, result: BinderResult<T>) -> Step<Result<T, ErrorStatus>> {
        match self.driver.answer(call, result) {
            Ok(value) => Ok(Ok(value)),
            Err(ClientError::Refused { status, .. }) => Ok(Err(status)),
            Err(error) => Err(error.into()),
        }
    }

    /// Executes; gives the status.
    pub fn execute(&self, prepared: &PreparedModel, request: &Request) -> Step<ErrorStatus> {
        self.execute_until(prepared, request, -1, -1)
    }

    pub fn execute_until(
        &self,
        prepared: &PreparedModel,
        request: &Request,
        deadline_ns: i64,
        loop_ns: i64,
    ) -> Step<ErrorStatus> {
        let result = prepared.executeSynchronously(request, false, deadline_ns, loop_ns);
        self.status("executeSynchronously", result)
    }

    /// How many files the driver caches a model in; a driver that does not cache is not tried.
    pub fn cache_files(&self) -> Step<(usize, usize)> {
        let device = self.driver.device();
        let needed =
            self.driver.answer("getNumberOfCacheFilesNeeded", device.getNumberOfCacheFilesNeeded())?;
        match (usize::try_from(needed.numModelCache), usize::try_from(needed.numDataCache)) {
            (Ok(0), Ok(0)) => Err(Stop::Skip(Skip::Inapplicable("the driver does not cache"))),
            (Ok(models), Ok(data)) if models.max(data) <= MAX_NUMBER_OF_CACHE_FILES as usize => {
                Ok((models, data))
            }
            _ => fail("a number of cache files that the interface does not allow"),
        }
    }
}

pub fn prepare(driver: &Driver, model: &Model) -> Step<PreparedModel> {
    match driver.prepare(model, &PrepareOptions::default()) {
        Err(ClientError::Refused { status: ErrorStatus::GENERAL_FAILURE, .. }) => {
            Err(Stop::Skip(Skip::Declined("the driver does not take the model of this case".into())))
        }
        prepared => Ok(prepared?),
    }
}

fn client(context: &Context, connections: u32, patience: Duration) -> Step<Driver> {
    Ok(context.driver.again(&ConnectOptions { connections, timeout: Some(patience) })?)
}

/// Whether a client that comes new is served, with the right result and in time. Over the kernel's binder the process has
/// one connection, and it is a new thread of the same client.
pub fn is_alive(context: &Context) -> Step {
    match served(context, SERVED_WITHIN)? {
        time if time > SERVED_WITHIN => fail(format!("it took {:.1} s", time.as_secs_f64())),
        _ => Ok(()),
    }
}

/// How long it waits where it is told to try again.
const AGAIN: Duration = Duration::from_millis(5);

/// How long such a client takes to be served; an error if an answer takes longer than `patience`.
pub fn served(context: &Context, patience: Duration) -> Step<Duration> {
    let start = Instant::now();
    let driver = client(context, 1, patience)?;
    let model = models::floor(2);
    let prepared = loop {
        match driver.prepare(&model, &PrepareOptions::default()) {
            // It is of the same user as whoever asks too much, and told to try again.
            Err(why)
                if why.status() == Some(ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT)
                    && start.elapsed() < patience =>
            {
                std::thread::sleep(AGAIN)
            }
            answer => break answer?,
        }
    };
    let (request, memory) = models::request(&models::floats(&[1.5, -0.5]), 8)?;
    let result = prepared.executeSynchronously(&request, false, -1, -1);
    driver.answer("executeSynchronously", result)?;
    if models::output(&memory, 8)? != models::floats(&[1.0, -1.0]) {
        return fail("its result is wrong");
    }
    Ok(start.elapsed())
}

/// One of these must be the status.
pub fn one_of(what: &str, status: ErrorStatus, expected: &[ErrorStatus]) -> Step {
    match expected.contains(&status) {
        true => Ok(()),
        false => fail(format!("{what} ended in {}", name(status))),
    }
}

/// Any error will do.
pub fn refused(what: &str, status: ErrorStatus) -> Step {
    match status {
        ErrorStatus::NONE => fail(format!("{what} succeeded")),
        _ => Ok(()),
    }
}

/// A time on the clock of deadlines.
pub fn in_future(time: Duration) -> Step<i64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(std::io::Error::from)?;
    #[allow(clippy::useless_conversion)] // time_t has 32 bits where pointers have
    let (seconds, ns) = (i64::from(now.tv_sec()), i64::from(now.tv_nsec()));
    let now = seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Ok(now.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)))
}

/// A region of shared memory with these bytes.
pub fn shared(bytes: &[u8]) -> Step<Shared> {
    let memory = Shared::new(bytes.len().max(1) as u64)?;
    memory.write(0, bytes)?;
    Ok(memory)
}
