//! The extension object of every prepared model: bursts over fast message queues.
//!
//! Requests that come this way take the same path as all others once their arguments are known.

use super::arguments::Span;
use super::call::{self, handle};
use super::core::Core;
use super::death::DeathWatch;
use super::prepared::Prepared;
use super::run::{turn_to_check, Execution, Purpose};
use super::status::ServiceError;
use super::terms::Terms;
use crate::aidl::*;
use crate::backend;
use crate::backend::Preference;
use crate::fmq::codec::{self, RequestPacket, ResultPacket, QUANTUM};
use crate::fmq::{Burst, Descriptor, Executor, FmqError, Queue, Reader, Writer, MAX_KEPT};
use crate::ipc::fmq::{MQDescriptor, SynchronizedReadWrite};
use crate::ipc::{self, BinderResult, Interface, Strong};
use crate::memory::{Counted, Pool};
use crate::scheduler::{was_served, Control, Permit, Poller, Stop};
use crate::statistics::OpenBurst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest channel; Android's runtime makes them of 1024 elements.
const MAX_ELEMENTS: usize = 16384;
/// Two channels of four regions each.
const MAPPINGS_OF_CHANNELS: usize = 8;

struct FmqBurst {
    prepared: Arc<Prepared>,
}

/// The extension of a prepared model.
pub(super) fn new_binder(prepared: Arc<Prepared>) -> Strong<dyn IFmqBurst> {
    ipc::object!(BnFmqBurst, FmqBurst { prepared })
}

impl Interface for FmqBurst {}

impl IFmqBurst for FmqBurst {
    fn configureExecutionBurst(
        &self,
        callback: &Strong<dyn IFmqBurstCallback>,
        requests: &MQDescriptor<FmqRequestDatum, SynchronizedReadWrite>,
        results: &MQDescriptor<FmqResultDatum, SynchronizedReadWrite>,
    ) -> BinderResult<Strong<dyn IFmqBurstContext>> {
        handle(&self.prepared.core, "IFmqBurst.configureExecutionBurst", || {
            let core = &self.prepared.core;
            let client = ipc::calling_uid();
            let places = [
                core.quotas.fmq_burst(client)?,
                core.quotas.mappings(client, MAPPINGS_OF_CHANNELS + MAX_KEPT)?,
            ];
            let place = core.quotas.object(client)?;
            let (requests, results) = (Descriptor::from_aidl(requests), Descriptor::from_aidl(results));
            let (reader, writer) = (
                attach("the request channel", &requests, Reader::new)?,
                attach("the result channel", &results, Writer::new)?,
            );
            // Each answer would be the next request otherwise.
            requests.check_apart(&results).map_err(refused("the request channel"))?;
            let open = self.prepared.counts.burst();
            let executor = Client {
                prepared: self.prepared.clone(),
                callback: callback.clone(),
                terms: Terms::new(false, -1)?,
                last: Mutex::default(),
                _places: places,
                _open: open,
            };
            // What was compiled for low power must not poll.
            let polls = self.prepared.options.preference != Preference::LowPower;
            let poller = Poller::new(polls.then(|| core.polling.clone()));
            let burst = Burst::start(reader, writer, Box::new(executor), poller)
                .map_err(|why| ServiceError::Exhausted(format!("no thread for the burst: {why}")))?;
            // A callback that is dead already takes its context along.
            let watch = DeathWatch::new(callback.as_binder(), Box::new(burst.stopper()));
            let core = core.clone();
            Ok(ipc::object!(BnFmqBurstContext, Context { core, burst, _watch: watch, _place: place }))
        })
    }
}

fn attach<T>(
    what: &str,
    descriptor: &Descriptor,
    end: impl FnOnce(Queue) -> Result<T, FmqError>,
) -> Result<T, ServiceError> {
    Queue::attach(descriptor, QUANTUM, MAX_ELEMENTS).and_then(end).map_err(refused(what))
}

/// Why a channel is refused, which is `what`.
fn refused(what: &str) -> impl Fn(FmqError) -> ServiceError + '_ {
    move |why| match why {
        FmqError::Memory(source) => ServiceError::Memory { what: what.into(), source },
        why => ServiceError::argument(format!("{what}: {why}")),
    }
}

/// A burst as its client holds it: it ends when the client lets go of this, or dies.
struct Context {
    core: Arc<Core>,
    burst: Burst,
    /// Ends the burst when the client has died.
    _watch: Option<DeathWatch>,
    /// Its place among the client's objects, which it has also when the burst has ended.
    _place: Permit,
}

impl Interface for Context {}

impl IFmqBurstContext for Context {
    fn freeMemory(&self, slot: i32) -> BinderResult<()> {
        handle(&self.core, "IFmqBurstContext.freeMemory", || {
            self.burst.free_memory(slot);
            Ok(())
        })
    }
}

/// What a burst's thread needs of its client and its model.
struct Client {
    prepared: Arc<Prepared>,
    callback: Strong<dyn IFmqBurstCallback>,
    terms: Terms,
    /// What ran last, to be run again where the next is the same.
    last: Mutex<Option<Last>>,
    /// The places of the thread and its mappings among those of its client.
    _places: [Permit; 2],
    _open: OpenBurst,
}

/// A request that was checked and bound, over memories that the burst keeps anyway.
struct Last {
    inputs: Vec<codec::Argument>,
    outputs: Vec<codec::Argument>,
    memories: Vec<backend::Memory>,
    execution: Arc<Execution>,
    /// For the lists above.
    _counted: Counted,
}

impl Executor for Client {
    fn turn(&self, cancelled: &Arc<Stop>) -> Control {
        let (client, orphaned) = (self.prepared.client(), self.prepared.life.over());
        let control = Control { client, orphaned, cancelled: cancelled.clone(), ..Control::default() };
        self.prepared.core.call_turns.check(&control)
    }

    fn serve(&self, cancelled: &Arc<Stop>) {
        self.prepared.core.call_turns.serve(self.prepared.client(), cancelled);
    }

    fn memories(&self, slots: &[i32]) -> Result<Vec<backend::Memory>, String> {
        was_served(); // its client answers when it likes
                      // Another request: what it maps takes the places of what the last one had.
        self.freed();
        let memories = self.callback.getMemories(slots).map_err(|why| format!("getMemories: {why}"))?;
        let _account = self.prepared.core.budget.on_account_of(self.prepared.client());
        // The caller refuses a wrong number of them, so more than one too many need not be mapped.
        let memories = memories.iter().take(slots.len() + 1).enumerate();
        memories
            .map(|(i, memory)| {
                let at = |why: String| format!("memory {i} of those for {} slots: {why}", slots.len());
                let pool = Pool::new(memory).map_err(|why| at(why.to_string()))?;
                self.prepared.core.memory(&pool, Span::Longer).map_err(|why| at(why.to_string()))
            })
            .collect()
    }

    fn freed(&self) {
        let last = self.last().take();
        drop(last); // not under the lock: that may take a while
    }

    fn execute(
        &self,
        request: &RequestPacket,
        memories: &[backend::Memory],
        cancelled: &Arc<Stop>,
    ) -> ResultPacket {
        let _account = self.prepared.core.budget.on_account_of(self.prepared.client());
        self.run(request, memories, cancelled).unwrap_or_else(|error| {
            // It may be for the memory that it failed.
            self.freed();
            call::note(&self.prepared.core, "an execution over a queue", &error);
            ResultPacket::bare(status_of_1_0(error.status()))
        })
    }
}

impl Client {
    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request, checked and bound: the last one, if this is the same.
    fn execution(
        &self,
        request: &RequestPacket,
        memories: &[backend::Memory],
        cancelled: &Arc<Stop>,
    ) -> Result<Arc<Execution>, ServiceError> {
        let lengths = [request.inputs.len(), request.outputs.len(), memories.len()];
        let turn = turn_to_check(&self.prepared, lengths, || cancelled.clone())?;
        let is_same = |last: &&Last| {
            let same = last.memories.iter().zip(memories).all(|(a, b)| a.is(b));
            same && last.memories.len() == memories.len()
                && (&last.inputs, &last.outputs) == (&request.inputs, &request.outputs)
        };
        if let Some(last) = self.last().as_ref().filter(is_same) {
            return Ok(last.execution.clone());
        }
        // What is not run again must not keep what it has mapped.
        self.freed();
        // Before any is put as the interface puts it: then there are no more than the model has.
        let backend::Interface { inputs, outputs, .. } = self.prepared.executable.interface();
        check_count("inputs", request.inputs.len(), inputs.len())?;
        check_count("outputs", request.outputs.len(), outputs.len())?;
        let (inputs, outputs) =
            (arguments("input", &request.inputs)?, arguments("output", &request.outputs)?);
        drop(turn); // the check takes one of its own
        let purpose = Purpose { terms: self.terms, fenced: false, reused: true };
        let (prepared, arguments) = (&self.prepared, (&inputs[..], &outputs[..]));
        let execution = Arc::new(Execution::over(prepared, arguments, memories, purpose, cancelled)?);
        // One that its client has no room for is checked each time.
        if let Some(counted) = execution.count_again() {
            let (inputs, outputs, memories) =
                (request.inputs.clone(), request.outputs.clone(), memories.to_vec());
            let execution = execution.clone();
            *self.last() = Some(Last { inputs, outputs, memories, execution, _counted: counted });
        }
        Ok(execution)
    }

    fn run(
        &self,
        request: &RequestPacket,
        memories: &[backend::Memory],
        cancelled: &Arc<Stop>,
    ) -> Result<ResultPacket, ServiceError> {
        let entered = Instant::now();
        let execution = self.execution(request, memories, cancelled)?;
        let finished = execution.run(&execution.control(None, cancelled.clone()), entered)?;
        let sufficient = finished.outputs.iter().all(|output| output.sufficient);
        let status = if sufficient { ErrorStatus::NONE } else { ErrorStatus::OUTPUT_INSUFFICIENT_SIZE };
        let shape = |output: crate::backend::OutputShape| codec::OutputShape {
            sufficient: output.sufficient,
            dims: output.dims.to_vec(),
        };
        Ok(ResultPacket {
            status: status.0,
            shapes: finished.outputs.into_iter().map(shape).collect(),
            timing: match request.measure && sufficient {
                true => (microseconds(finished.on_device), microseconds(entered.elapsed())),
                false => codec::NO_TIMING,
            },
        })
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whatever HAL 1.0 has no name for was a failure there.
fn status_of_1_0(status: ErrorStatus) -> i32 {
    match status.0 {
        0..=4 => status.0,
        _ => ErrorStatus::GENERAL_FAILURE.0,
    }
}

fn check_count(what: &str, given: usize, expected: usize) -> Result<(), ServiceError> {
    match given == expected {
        true => Ok(()),
        false => Err(ServiceError::argument(format!("{given} {what}, the model has {expected}"))),
    }
}

/// A packet's arguments as the interface puts them, which knows signed numbers only.
fn arguments(what: &str, packet: &[codec::Argument]) -> Result<Vec<RequestArgument>, ServiceError> {
    let signed = |i: usize, number: u32| {
        i32::try_from(number)
            .map_err(|_| ServiceError::argument(format!("{what} {i}: {number} is too large a number")))
    };
    let argument = |(i, a): (usize, &codec::Argument)| {
        Ok(RequestArgument {
            hasNoValue: a.has_no_value,
            location: DataLocation {
                poolIndex: signed(i, a.pool)?,
                offset: a.offset.into(),
                length: a.length.into(),
                padding: 0,
            },
            dimensions: a.dims.iter().map(|&dim| signed(i, dim)).collect::<Result<_, _>>()?,
        })
    };
    packet.iter().enumerate().map(argument).collect()
}

#[cfg(test)]
#[path = "fmq_burst_tests.rs"]
mod tests;
