//! The client's side of a burst: it makes the queues, writes requests and reads their results.

use crate::fmq::codec::{IllFormed, RequestPacket, ResultPacket, QUANTUM};
use crate::fmq::{FmqError, Limit, Queue, Reader, SharedQueue, Writer};
use std::time::{Duration, Instant};

/// Elements of a channel, as Android's runtime has them.
const CHANNEL_LENGTH: usize = 1024;

/// Why an execution gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The queues do not work, or no result came.
    #[error(transparent)]
    Queue(#[from] FmqError),
    /// What the driver wrote is not a result.
    #[error("the driver's result: {0}")]
    IllFormed(#[from] IllFormed),
    /// So many elements are more than a channel holds.
    #[error("the request does not fit its channel: {0} elements, which holds {CHANNEL_LENGTH}")]
    TooLarge(usize),
}

/// The channels of a burst, to be described to a driver.
pub struct Channels {
    /// Where the client writes.
    pub requests: SharedQueue,
    /// Where the driver writes.
    pub results: SharedQueue,
}

impl Channels {
    /// Both channels, empty, in shared memory of their own.
    pub fn create() -> Result<Self, FmqError> {
        let create = || SharedQueue::create(CHANNEL_LENGTH, QUANTUM);
        Ok(Channels { requests: create()?, results: create()? })
    }
}

/// Executes requests, one after the other.
pub struct Controller {
    requests: Writer,
    results: Reader,
    /// For how long from sending a request to poll for its result, before the first sleep.
    polling: Duration,
    sent: Instant,
    /// Whether the last result came within that time. Polling for a slower one only keeps a processor from the work that
    /// it waits for.
    soon: bool,
}

impl Controller {
    /// Attaches to the client's ends of `channels`.
    pub fn new(channels: &Channels, polling: Duration) -> Result<Self, FmqError> {
        let attach = |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, CHANNEL_LENGTH);
        let requests = Writer::new(attach(&channels.requests)?)?;
        let results = Reader::new(attach(&channels.results)?)?;
        Ok(Controller { requests, results, polling, sent: Instant::now(), soon: true })
    }

    /// Sends a request and waits for its result.
    pub fn execute(
        &mut self,
        request: &RequestPacket,
        limit: &Limit,
    ) -> Result<ResultPacket, ControllerError> {
        self.send(request, limit)?;
        self.receive(limit)
    }

    /// Sends a request and does not wait.
    pub fn send(&mut self, request: &RequestPacket, limit: &Limit) -> Result<(), ControllerError> {
        let packet = request.encode();
        let elements = packet.len() / QUANTUM;
        if elements > self.requests.capacity() {
            return Err(ControllerError::TooLarge(elements));
        }
        self.requests.write_blocking(&packet, limit)?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Waits for the result of the request that was sent.
    pub fn receive(&mut self, limit: &Limit) -> Result<ResultPacket, ControllerError> {
        while self.soon && self.results.available()? == 0 && self.sent.elapsed() < self.polling {
            std::thread::yield_now();
        }
        self.results.wait(1, limit)?;
        self.soon = self.sent.elapsed() <= self.polling;
        let mut packet = vec![0; self.results.available()? * QUANTUM];
        self.results.read(&mut packet)?;
        Ok(ResultPacket::parse(&packet)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_polls_while_results_come_soon() {
        let channels = Channels::create().unwrap();
        let attach = |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, CHANNEL_LENGTH);
        let mut driver = Writer::new(attach(&channels.results).unwrap()).unwrap();
        let (hours, instant) = (Duration::from_secs(10_000), Duration::from_nanos(1));
        let mut controller = Controller::new(&channels, hours).unwrap();
        let limit = Limit::new(Some(Duration::from_secs(20)));
        for (polling, soon) in [(hours, true), (instant, false), (instant, false), (hours, true)] {
            controller.polling = polling;
            controller.send(&RequestPacket::default(), &limit).unwrap();
            assert!(driver.write(&ResultPacket::failure().encode()).unwrap());
            assert_eq!(controller.receive(&limit).unwrap(), ResultPacket::failure());
            assert_eq!(controller.soon, soon, "after a result within {polling:?}");
        }
    }
}

#[cfg(test)]
#[path = "burst_tests.rs"]
mod burst_tests;
