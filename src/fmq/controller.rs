//! The client's side of a burst: it makes the queues, writes requests and reads their results.

use super::codec::{IllFormed, RequestPacket, ResultPacket, QUANTUM};
use super::{FmqError, Limit, Queue, Reader, SharedQueue, Writer};
use std::time::{Duration, Instant};

/// Elements of a channel, as Android's runtime has them.
const CHANNEL_LENGTH: usize = 1024;

/// Why an execution gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    #[error(transparent)]
    Queue(#[from] FmqError),
    #[error("the driver's result: {0}")]
    IllFormed(#[from] IllFormed),
    #[error("the request does not fit its channel: {0} elements, which holds {CHANNEL_LENGTH}")]
    TooLarge(usize),
}

/// The channels of a burst, to be described to a driver.
pub struct Channels {
    pub requests: SharedQueue,
    pub results: SharedQueue,
}

impl Channels {
    pub fn create() -> Result<Self, FmqError> {
        let create = || SharedQueue::create(CHANNEL_LENGTH, QUANTUM);
        Ok(Channels { requests: create()?, results: create()? })
    }
}

/// Executes requests, one after the other.
pub struct Controller {
    requests: Writer,
    results: Reader,
    /// How long to poll for a result before the first sleep.
    polling: Duration,
}

impl Controller {
    pub fn new(channels: &Channels, polling: Duration) -> Result<Self, FmqError> {
        let attach = |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, CHANNEL_LENGTH);
        let requests = Writer::new(attach(&channels.requests)?)?;
        Ok(Controller { requests, results: Reader::new(attach(&channels.results)?)?, polling })
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
        Ok(self.requests.write_blocking(&packet, limit)?)
    }

    /// Waits for the result of the request that was sent.
    pub fn receive(&mut self, limit: &Limit) -> Result<ResultPacket, ControllerError> {
        let began = Instant::now();
        while self.results.available()? == 0 && began.elapsed() < self.polling {
            std::thread::yield_now();
        }
        self.results.wait(1, limit)?;
        let mut packet = vec![0; self.results.available()? * QUANTUM];
        self.results.read(&mut packet)?;
        Ok(ResultPacket::parse(&packet)?)
    }
}
