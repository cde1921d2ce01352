//! What runs did when, for those who ask: stretches of time, each of one thread. It knows operations by their index
//! only, and waits for nobody but another thread that notes something.

use nix::unistd::gettid;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Notes what runs do. Whoever has it in a [`Control`](super::Control) is recorded; beyond its limit nothing more is
/// noted until what there is was taken.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    limit: usize,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    spans: Vec<Span>,
    missed: u64,
}

/// A stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub activity: Activity,
    /// By the system's number.
    pub thread: u32,
    /// Nanoseconds since the recorder was made.
    pub start: u64,
    /// The same; not before the start.
    pub end: u64,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A whole run, from when it had its turn.
    Run,
    /// An operation, on the thread that runs. Those of an IF's or WHILE's subgraphs lie within it.
    Operation(OperationId),
    /// What another thread did of one.
    Part(OperationId),
}

/// An operation of a model; of several that run as one, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId {
    /// 0 for the main subgraph, one more than its index for a referenced one.
    pub subgraph: u32,
    /// Its index there.
    pub index: u32,
}

impl Recorder {
    /// One that keeps so many spans.
    pub fn new(limit: usize) -> Self {
        Recorder { began: Instant::now(), limit, noted: Mutex::default() }
    }

    /// Nanoseconds since it was made.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes what the calling thread has done since `start`.
    pub fn note(&self, activity: Activity, start: u64) {
        let end = self.now().max(start);
        let thread = u32::try_from(gettid().as_raw()).unwrap_or(0);
        let mut noted = self.lock();
        match noted.spans.len() < self.limit {
            true => noted.spans.push(Span { activity, thread, start, end }),
            false => noted.missed = noted.missed.saturating_add(1),
        }
    }

    /// What was noted since the last time, in the order in which it ended, and how much was not.
    pub fn take(&self) -> (Vec<Span>, u64) {
        let Noted { spans, missed } = std::mem::take(&mut *self.lock());
        (spans, missed)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something under way that is to be noted when it is done.
#[derive(Clone, Debug)]
pub struct Underway {
    recorder: Arc<Recorder>,
    activity: Activity,
    start: u64,
}

impl Underway {
    /// Begins now.
    pub fn begin(recorder: &Arc<Recorder>, activity: Activity) -> Self {
        Underway { recorder: recorder.clone(), activity, start: recorder.now() }
    }

    /// The calling thread's part of an operation that another thread has under way, which begins now.
    pub fn part(&self) -> Option<Self> {
        match self.activity {
            Activity::Operation(id) | Activity::Part(id) => {
                Some(Self::begin(&self.recorder, Activity::Part(id)))
            }
            Activity::Run => None,
        }
    }

    pub fn end(self) {
        self.recorder.note(self.activity, self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_up_to_the_limit_and_taken_once() {
        let recorder = Arc::new(Recorder::new(2));
        let operation = OperationId { subgraph: 0, index: 7 };
        let whole = Underway::begin(&recorder, Activity::Run);
        assert!(whole.part().is_none(), "a run has operations, and no parts");
        let step = Underway::begin(&recorder, Activity::Operation(operation));
        let part = step.part().expect("a part");
        let helper = std::thread::spawn(move || part.end());
        helper.join().expect("no panic");
        step.end();
        whole.end();
        let (spans, missed) = recorder.take();
        assert_eq!(missed, 1);
        assert_eq!(spans[0].activity, Activity::Part(operation));
        assert_eq!(spans[1].activity, Activity::Operation(operation));
        assert_ne!(spans[0].thread, spans[1].thread);
        assert!(spans[1].start <= spans[0].start && spans[0].end <= spans[1].end, "{spans:?}");
        assert_eq!(recorder.take(), (Vec::new(), 0));
    }
}
