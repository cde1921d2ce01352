//! The driver's side of a burst: one thread that takes requests from a queue and answers in another.
//!
//! What a request means is for its [`Executor`]; here it is only taken, answered, and the thread ended when the burst is.

use super::codec::{RequestPacket, ResultPacket, QUANTUM};
use super::slots::{NotResolved, Slots};
use super::{FmqError, Limit, Reader, Waker, Writer};
use crate::memory::Memory;
use crate::ops::Interrupt;
use crate::scheduler::{was_served, Control, Poller, Stop};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long results may lie, so that there is no room for the next, until the burst ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// Datums of a packet that is read without a turn.
const FEW: usize = 1000;

/// So many requests in a row may fail before more are read by turns: who sends what is not worth a run can send it faster
/// than anybody can run.
const PATIENCE_FOR_FAILURES: u32 = 8;

/// What a burst's requests are executed by.
pub trait Executor: Send + Sync {
    /// What a long packet is read by, and one after many that failed: its first yield point waits for a turn, unless `cancelled` is set. Without one, where
    /// one client has the machine.
    fn turn(&self, cancelled: &Arc<Stop>) -> Control {
        Control { cancelled: cancelled.clone(), ..Control::default() }
    }

    /// Waits for a turn to deal with a packet, or to let go of the burst, which ends with the first wait, or once that is done.
    fn serve(&self, _: &Arc<Stop>) {}

    /// Asks the client for the memories of these names.
    fn memories(&self, slots: &[i32]) -> Result<Vec<Memory>, NotResolved>;

    /// The client has freed a memory: nothing of it is to be kept for requests to come.
    fn freed(&self) {}

    /// Executes a request over these memories, one per slot of it. Ends early once `cancelled` is set.
    fn execute(&self, request: &RequestPacket, memories: &[Memory], cancelled: &Arc<Stop>) -> ResultPacket;
}

/// A burst; it ends when this is dropped, at the latest.
pub struct Burst {
    shared: Arc<Shared>,
    /// The thread's, for as long as that lives.
    executor: Weak<dyn Executor>,
    wakers: [Waker; 2],
}

/// What the burst and its thread share.
#[derive(Default)]
struct Shared {
    slots: Slots,
    stopped: Arc<Stop>,
}

impl Burst {
    /// Starts to listen for `requests`.
    pub fn start(
        requests: Reader,
        results: Writer,
        executor: Box<dyn Executor>,
        poller: Poller,
    ) -> std::io::Result<Burst> {
        let shared = Arc::new(Shared::default());
        let executor: Arc<dyn Executor> = executor.into();
        let executes = Arc::downgrade(&executor);
        let wakers = [requests.waker(), results.waker()];
        let shared_too = shared.clone();
        let mut listener = Listener { requests, results, executor, poller, failures: 0, shared: shared_too };
        std::thread::Builder::new().name("nnhal-fmq".into()).spawn(move || {
            let ended = listener.listen();
            match ended {
                Err(FmqError::Stopped) => log::debug!("a burst has ended"),
                Err(why) => log::info!("a burst was ended: {why}"),
                Ok(never) => match never {},
            }
            // Hundreds of one client's may end at the same moment.
            let executor = listener.executor.clone();
            executor.serve(&Arc::default());
            // The context may be held on to by a client for as long as it likes.
            listener.shared.slots.free_all();
            drop((listener, executor));
            was_served();
        })?;
        Ok(Burst { shared, executor: executes, wakers })
    }

    /// Forgets a memory; false if it was not known.
    pub fn free_memory(&self, slot: i32) -> bool {
        let known = self.shared.slots.free(slot);
        if let Some(executor) = self.executor.upgrade() {
            executor.freed();
        }
        known
    }

    /// Ends the burst, and the execution that is under way. Does not wait for it.
    pub fn stop(&self) {
        stop(&self.shared.stopped, &self.wakers);
    }

    /// What ends the burst, for whoever learns of its client's death.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let (stopped, wakers) = (self.shared.stopped.clone(), self.wakers.clone());
        move || stop(&stopped, &wakers)
    }
}

fn stop(stopped: &Stop, wakers: &[Waker]) {
    stopped.set();
    wakers.iter().for_each(Waker::interrupt);
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.stop();
    }
}

/// There is no such value: a listener only ever ends with a reason.
enum Never {}

struct Listener {
    requests: Reader,
    results: Writer,
    executor: Arc<dyn Executor>,
    poller: Poller,
    /// Requests in a row that failed.
    failures: u32,
    shared: Arc<Shared>,
}

impl Listener {
    fn listen(&mut self) -> Result<Never, FmqError> {
        loop {
            let packet = self.next_packet()?;
            self.poller.arrived();
            self.executor.serve(&self.shared.stopped);
            let result = self.answer(&packet);
            was_served();
            self.send(&result)?;
            self.poller.answered();
        }
    }

    /// Waits for a packet and takes it out of the queue: all that is there, as a packet is written at once.
    fn next_packet(&mut self) -> Result<Vec<u8>, FmqError> {
        let stopped = self.shared.stopped.clone();
        let stop = || stopped.is_set();
        let requests = &self.requests;
        if !self.poller.poll(|| Ok::<_, FmqError>(stop() || requests.available()? > 0))? {
            requests.wait(1, &Limit::new(None).or_until(&stop))?;
        }
        if stop() {
            return Err(FmqError::Stopped);
        }
        // At most what the ring holds, and that has been mapped: the client pays for it too.
        let mut packet = vec![0; self.requests.available()? * QUANTUM];
        match self.requests.read(&mut packet)? {
            true => Ok(packet),
            false => Err(FmqError::Corrupted("what was written has been taken back")),
        }
    }

    fn answer(&mut self, packet: &[u8]) -> ResultPacket {
        let result = self.result(packet);
        self.failures = if result.status == 0 { 0 } else { self.failures.saturating_add(1) };
        result
    }

    fn result(&self, packet: &[u8]) -> ResultPacket {
        let costs = packet.len() > FEW * QUANTUM || self.failures >= PATIENCE_FOR_FAILURES;
        let turn = costs.then(|| self.executor.turn(&self.shared.stopped));
        if turn.as_ref().is_some_and(|turn| turn.yield_point().is_err()) {
            return ResultPacket::failure(); // nobody waits for it any more
        }
        let parsed = RequestPacket::parse(packet);
        drop(turn);
        let request = match parsed {
            Ok(request) => request,
            Err(why) => {
                log::debug!("a request over a queue: {why}");
                return ResultPacket::failure();
            }
        };
        let freed = self.shared.slots.freed();
        let execute =
            || match self.shared.slots.resolve(&request.slots, |slots| self.executor.memories(slots)) {
                Ok(memories) => self.executor.execute(&request, &memories, &self.shared.stopped),
                Err(why) => {
                    log::debug!("the memories of a request over a queue: {why}");
                    ResultPacket::failure()
                }
            };
        let result = catch_unwind(AssertUnwindSafe(execute)).unwrap_or_else(|_| {
            log::error!("an execution in a burst panicked; this is a fault of the driver");
            ResultPacket::failure()
        });
        // What was freed meanwhile may be among what the executor keeps of this request.
        if self.shared.slots.freed() != freed {
            self.executor.freed();
        }
        result
    }

    /// Writes a result, or, where there is no room for it, that the request failed.
    fn send(&mut self, result: &ResultPacket) -> Result<(), FmqError> {
        let mut packet = result.encode();
        if packet.len() > self.results.available()? * QUANTUM {
            packet = ResultPacket::failure().encode();
        }
        let stopped = self.shared.stopped.clone();
        let stop = || stopped.is_set();
        self.results.write_blocking(&packet, &Limit::new(Some(PATIENCE)).or_until(&stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fmq::codec::Argument;
    use crate::fmq::{Queue, SharedQueue};
    use crate::ops::OpError;
    use crate::scheduler::Yield;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often a turn was waited for, and executes what asks for no memory.
    #[derive(Clone, Debug, Default)]
    struct Turns(Arc<AtomicUsize>);

    impl Yield for Turns {
        fn pass(&self, _: &Control) -> Result<(), OpError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn threads(&self) -> usize {
            1
        }
    }

    impl Executor for Turns {
        fn turn(&self, cancelled: &Arc<Stop>) -> Control {
            let turn = Some(Arc::new(self.clone()) as Arc<dyn Yield>);
            Control { cancelled: cancelled.clone(), turn, ..Control::default() }
        }

        fn memories(&self, _: &[i32]) -> Result<Vec<Memory>, NotResolved> {
            Err("there are none".into())
        }

        fn execute(&self, _: &RequestPacket, _: &[Memory], _: &Arc<Stop>) -> ResultPacket {
            ResultPacket::bare(0)
        }
    }

    /// A listener whose turns are counted, over empty queues.
    fn listener(turns: &Turns) -> Listener {
        let queues = [(); 2].map(|()| SharedQueue::create(16, QUANTUM).unwrap());
        let [requests, results] =
            queues.each_ref().map(|queue| Queue::attach(&queue.descriptor(), QUANTUM, 16).unwrap());
        Listener {
            requests: Reader::new(requests).unwrap(),
            results: Writer::new(results).unwrap(),
            executor: Arc::new(turns.clone()),
            poller: Poller::new(None),
            failures: 0,
            shared: Arc::default(),
        }
    }

    #[test]
    fn a_long_packet_is_read_by_a_turn() {
        let turns = Turns::default();
        let mut listener = listener(&turns);
        let shared = listener.shared.clone();
        let mut answer = |arguments: usize| {
            let packet = RequestPacket { inputs: vec![Argument::default(); arguments], ..Default::default() };
            let status = listener.answer(&packet.encode()).status;
            (status == 0, turns.0.load(Ordering::Relaxed))
        };
        assert_eq!(answer(FEW / 2), (true, 0));
        assert_eq!(answer(2 * FEW), (true, 1));
        assert_eq!(answer(1), (true, 1));
        shared.stopped.set();
        assert_eq!(answer(2 * FEW), (false, 1), "nobody waits for it");
    }

    #[test]
    fn packets_that_fail_one_after_the_other_are_read_by_turns() {
        let turns = Turns::default();
        let mut listener = listener(&turns);
        let taken = || turns.0.load(Ordering::Relaxed);
        let unknown_memory = RequestPacket { slots: vec![1], ..Default::default() }.encode();
        for failing in [&[0; QUANTUM][..], &unknown_memory] {
            let before = taken();
            for failed in 0..PATIENCE_FOR_FAILURES {
                assert_eq!(listener.answer(failing), ResultPacket::failure());
                assert_eq!(taken(), before, "after {failed} that failed");
            }
            for more in 1..100 {
                assert_eq!(listener.answer(failing), ResultPacket::failure());
                assert_eq!(taken(), before + more);
            }
            // One that is run.
            assert_eq!(listener.answer(&RequestPacket::default().encode()).status, 0);
        }
    }
}
