//! What runs did when, for those who ask: stretches of time, each of one thread. It knows operations by their index
//! only, and waits for nobody but another thread that notes something.

use super::clock::boottime_ns;
use crate::memory::Counted;
use nix::unistd::gettid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes what runs do. Runs that have it in their [`Control`](super::Control) are recorded; at its limit it notes nothing
/// more until its notes are taken.
#[derive(Debug)]
pub struct Recorder {
    /// When it was made, by the clock of deadlines, which all processes share.
    began: u64,
    limit: usize,
    noted: Mutex<Noted>,
    /// The memory that it may take.
    _counted: Option<Counted>,
}

/// What was noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// In the order in which they ended.
    pub spans: Vec<Span>,
    /// How many were too many to be kept.
    pub missed: u64,
    /// The names of threads that spans name, where they have any.
    pub threads: BTreeMap<u32, String>,
}

/// Threads whose names are kept.
const MOST_NAMES: usize = 1024;

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
        Recorder::since(boottime_ns(), limit)
    }

    /// One that keeps so many spans for another, in another process, which began at `began`.
    pub fn since(began: u64, limit: usize) -> Self {
        Recorder { began, limit, noted: Mutex::default(), _counted: None }
    }

    /// When it began, by the clock of deadlines.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// The same, with its memory on the account of the calling thread's client; `None` where that has no more.
    pub fn counted(self) -> Option<Self> {
        let counted = Counted::take(self.limit.checked_mul(size_of::<Span>())?)?;
        Some(Recorder { _counted: Some(counted), ..self })
    }

    /// Nanoseconds since it was made.
    pub fn now(&self) -> u64 {
        boottime_ns().saturating_sub(self.began)
    }

    /// Notes what the calling thread has done since `start`.
    pub fn note(&self, activity: Activity, start: u64) {
        let end = self.now().max(start);
        let thread = u32::try_from(gettid().as_raw()).unwrap_or(0);
        let mut noted = self.lock();
        if noted.spans.len() >= self.limit {
            noted.missed = noted.missed.saturating_add(1);
            return;
        }
        noted.spans.push(Span { activity, thread, start, end });
        if !noted.threads.contains_key(&thread) && noted.threads.len() < MOST_NAMES {
            if let Some(name) = std::thread::current().name() {
                noted.threads.insert(thread, name.into());
            }
        }
    }

    /// Adds what another has noted for it in one stretch, as far as there is room.
    pub fn add(&self, other: Noted) {
        let mut noted = self.lock();
        let room = self.limit.saturating_sub(noted.spans.len());
        let beyond = other.spans.len().saturating_sub(room) as u64;
        noted.missed = noted.missed.saturating_add(other.missed).saturating_add(beyond);
        noted.spans.extend(other.spans.into_iter().take(room));
        for (thread, name) in other.threads {
            if noted.threads.len() < MOST_NAMES {
                noted.threads.insert(thread, name);
            }
        }
    }

    /// What was noted since the last time, so many spans of it at the most: the rest comes next time.
    pub fn take(&self, most: usize) -> Noted {
        let mut noted = self.lock();
        if noted.spans.len() <= most {
            return std::mem::take(&mut *noted);
        }
        let spans: Vec<Span> = noted.spans.drain(..most).collect();
        let of_spans: BTreeSet<u32> = spans.iter().map(|span| span.thread).collect();
        let named = |thread| Some((thread, noted.threads.get(&thread)?.clone()));
        let threads = of_spans.into_iter().filter_map(named).collect();
        Noted { missed: std::mem::take(&mut noted.missed), threads, spans }
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
        let helper = std::thread::Builder::new().name("helper".into()).spawn(move || part.end());
        helper.expect("a thread").join().expect("no panic");
        step.end();
        whole.end();
        let Noted { spans, missed, threads } = recorder.take(100);
        assert_eq!(missed, 1);
        assert_eq!(threads[&spans[0].thread], "helper");
        assert_eq!(spans[0].activity, Activity::Part(operation));
        assert_eq!(spans[1].activity, Activity::Operation(operation));
        assert_ne!(spans[0].thread, spans[1].thread);
        assert!(spans[1].start <= spans[0].start && spans[0].end <= spans[1].end, "{spans:?}");
        assert_eq!(recorder.take(100), Noted::default());
    }

    #[test]
    fn spans_come_in_parts_and_in_order() {
        let recorder = Recorder::new(10);
        (0..5).for_each(|i| recorder.note(Activity::Operation(OperationId { subgraph: 0, index: i }), 0));
        let parts: Vec<Noted> = (0..4).map(|_| recorder.take(2)).collect();
        assert_eq!(parts.iter().map(|part| part.spans.len()).collect::<Vec<_>>(), [2, 2, 1, 0]);
        let spans = parts.iter().flat_map(|part| &part.spans);
        let order = spans.map(|span| match span.activity {
            Activity::Operation(id) => id.index,
            _ => panic!("{span:?}"),
        });
        assert!(order.eq(0..5));
        assert!(parts[..3].iter().all(|part| part.threads.len() == 1), "{parts:?}");
    }

    #[test]
    fn what_another_noted_is_added_up_to_the_limit() {
        let (here, activity) = (Recorder::new(3), Activity::Run);
        let there = Recorder::since(here.began(), 2);
        (0..3).for_each(|_| there.note(activity, there.now()));
        here.note(activity, 0);
        (0..2).for_each(|_| here.add(there.take(100)));
        here.add(Noted { spans: vec![Span { activity, thread: 1, start: 0, end: 1 }], ..Noted::default() });
        let Noted { spans, missed, .. } = here.take(100);
        assert_eq!((spans.len(), missed), (3, 2), "one was too many there, and one here");
        assert!(spans[1].start <= here.now(), "by one clock");
    }
}
