//! One call under way on the threads that compute: chunks, each of which one thread takes and does, and a caller who
//! waits for all. It knows nothing of the threads that there are.
//!
//! What one core has written takes another 60 to 300 ns to read, and a call of a few microseconds waits for little else. So each thread
//! has a line of memory in which all is that it needs to begin, and in which it counts what it has done. To take a chunk is all
//! that it takes to join a call: the caller waits until all are done.

use super::shares::first_of;
use crate::memory::{Account, Entered};
use crate::scheduler::{cores, Underway};
use crate::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{thread, Condvar, Instant, Mutex};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::PoisonError;
use std::time::Duration;

/// How long somebody stays awake who waits: enough for a small operation in between.
pub const AWAKE: Duration = Duration::from_micros(60);

/// After so many looks, some 3 us, somebody who is awake lets another thread have the core, should one wait for it: that may be the
/// one who is to bring the work, or to end it. The kernel takes a third of a microsecond to find out, in which nothing is seen.
const LOOKS: u32 = 64;

/// Chunks of a call, at most: several are one where there are more.
const MOST_CHUNKS: usize = u16::MAX as usize;

/// What a call of `Team::for_each` does, and for whom.
pub struct Call<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    /// It is called with each number below this.
    count: usize,
    /// How many of them are a chunk.
    each: usize,
    /// How many threads have a share of it.
    threads: usize,
    /// On whose account memory is taken for it.
    account: Account,
    /// What it is a part of, where that is recorded.
    underway: Option<&'a Underway>,
    /// The core on which the caller works along.
    core: Option<usize>,
    panicked: AtomicBool,
}

impl<'a> Call<'a> {
    /// Calls of `work` with each number below `count`, on so many threads, the calling one among them.
    pub fn new(
        work: &'a (dyn Fn(usize) + Sync),
        count: usize,
        threads: usize,
        underway: Option<&'a Underway>,
    ) -> Self {
        Call {
            work,
            count,
            each: count.div_ceil(MOST_CHUNKS).max(1),
            threads,
            account: Account::of_thread(),
            underway,
            core: cores::core(),
            panicked: AtomicBool::new(false),
        }
    }

    fn do_chunk(&self, chunk: usize) {
        let numbers = chunk * self.each..self.count.min((chunk + 1) * self.each);
        if catch_unwind(AssertUnwindSafe(|| numbers.for_each(self.work))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// Where a caller lays out a call, of which workers take chunks; it serves one call after another.
#[repr(align(128))]
pub struct Desk {
    /// A caller has it.
    taken: AtomicBool,
    /// The caller sleeps until all chunks are done.
    sleeps: AtomicBool,
    caller: Mutex<()>,
    wake: Condvar,
    shares: Box<[Share]>,
}

/// A thread's line.
#[repr(align(128))]
struct Share {
    /// The chunks that it is to take first.
    left: AtomicU64,
    /// The call that they are of, to be used only by who has taken a chunk that is not done.
    call: AtomicPtr<Call<'static>>,
    /// How many chunks it has done of this call, of whichever share.
    done: AtomicUsize,
}

/// Chunks of a share that are left, and which of the desk's calls they are of.
#[derive(Clone, Copy)]
struct Left {
    number: u32,
    next: u16,
    end: u16,
}

/// No share has gone beyond its end.
const NEVER: u64 = Left { number: 0, next: 1, end: 0 }.word();

impl Left {
    const fn of(word: u64) -> Self {
        Left { number: (word >> 32) as u32, next: (word >> 16) as u16, end: word as u16 }
    }

    const fn word(self) -> u64 {
        (self.number as u64) << 32 | (self.next as u64) << 16 | self.end as u64
    }
}

impl Share {
    fn new() -> Self {
        Share {
            left: AtomicU64::new(0),
            call: AtomicPtr::new(std::ptr::null_mut()),
            done: AtomicUsize::new(0),
        }
    }

    /// What is left, for the thread whose share it is. An exchange that never comes about reads it, as that fetches the line at once as
    /// the exchange needs it that follows.
    fn own(&self) -> Left {
        let word = self.left.compare_exchange(NEVER, NEVER, Ordering::Acquire, Ordering::Acquire);
        Left::of(word.unwrap_or_else(|word| word))
    }

    /// Takes the next chunk, where it is of call `number`.
    fn take(&self, mut left: Left, number: u32) -> Option<usize> {
        while left.next < left.end && left.number == number {
            let less = Left { next: left.next + 1, ..left };
            match self.left.compare_exchange(left.word(), less.word(), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(left.next.into()),
                Err(word) => left = Left::of(word),
            }
        }
        None
    }
}

impl Desk {
    /// One for calls on up to `threads` threads.
    pub fn new(threads: usize) -> Self {
        Desk {
            taken: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            caller: Mutex::new(()),
            wake: Condvar::new(),
            shares: (0..threads).map(|_| Share::new()).collect(),
        }
    }

    /// How many threads a call here may be of.
    pub fn threads(&self) -> usize {
        self.shares.len()
    }

    /// Whether a caller has it.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes it; false where another caller has it.
    pub fn take(&self) -> bool {
        !self.is_taken() && !self.taken.swap(true, Ordering::Acquire)
    }

    /// Does a call of two threads or more at this desk, which the caller has taken: has `ring` tell workers of it, works along, waits
    /// for their last chunks and gives the desk back. False where a chunk has panicked.
    pub fn run(&self, call: Call, ring: impl FnOnce()) -> bool {
        let (chunks, threads) = (call.count.div_ceil(call.each), call.threads);
        let bound = |i: usize| first_of(chunks, i, threads) as u16;
        let number = Left::of(self.shares[0].left.load(Ordering::Relaxed)).number.wrapping_add(1);
        let (shares, rest) = self.shares.split_at(threads);
        for share in shares {
            share.done.store(0, Ordering::Relaxed);
            share.call.store((&raw const call).cast_mut().cast(), Ordering::Relaxed);
        }
        // Who is not of the team has a share of the call before, lest it be of one of the same number some day.
        for share in rest {
            let before = Left { number: number.wrapping_sub(1), next: 0, end: 0 };
            share.left.store(before.word(), Ordering::Relaxed);
        }
        // From here on chunks are taken, of any share.
        for (i, share) in shares.iter().enumerate() {
            share.left.store(Left { number, next: bound(i), end: bound(i + 1) }.word(), Ordering::Release);
        }
        ring();
        while let Some((_, chunk)) = self.take_chunk(0) {
            call.do_chunk(chunk);
            shares[0].done.fetch_add(1, Ordering::Relaxed);
        }
        let is_done =
            || shares.iter().map(|share| share.done.load(Ordering::Acquire)).sum::<usize>() == chunks;
        self.wait_until(is_done);
        self.taken.store(false, Ordering::Release);
        !call.panicked.load(Ordering::Relaxed)
    }

    /// Has the calling worker do what is left of the call here, share `own` first; false where there is nothing for it. It stays on the
    /// call's account, which `entered` is of.
    pub fn help(&self, own: usize, entered: &mut Option<Entered>) -> bool {
        let (mut joined, mut part) = (None, None);
        while let Some((number, chunk)) = self.take_chunk(own) {
            // SAFETY: a chunk was taken and is not done, so that the caller waits, who has the call and all that it names.
            let call = unsafe { &*self.shares[own].call.load(Ordering::Relaxed) };
            if joined.replace(number) != Some(number) {
                // It is of no use on the core on which its caller works along.
                cores::leave(call.core);
                // To count who has an account is a write where all threads come by: a worker keeps the one that it has, which is
                // mostly the next call's, too.
                if !call.account.is_entered() {
                    *entered = None;
                    *entered = Some(call.account.clone().enter());
                }
                part.take().into_iter().for_each(Underway::end);
                part = call.underway.and_then(Underway::part);
            }
            call.do_chunk(chunk);
            // The caller may go on from here on.
            self.shares[own].done.fetch_add(1, Ordering::Release);
        }
        part.into_iter().for_each(Underway::end);
        // Either the caller sees what is done, or it is seen here that it sleeps.
        if joined.is_some() {
            fence(Ordering::SeqCst);
            if self.sleeps.load(Ordering::Relaxed) {
                drop(self.caller.lock().unwrap_or_else(PoisonError::into_inner));
                self.wake.notify_all();
            }
        }
        joined.is_some()
    }

    /// Takes a free chunk for the thread of share `own`, of that share if that has one; and the number of the call.
    fn take_chunk(&self, own: usize) -> Option<(u32, usize)> {
        let left = self.shares[own].own();
        let (before, after) = self.shares.split_at(own);
        let mut others = after[1..].iter().chain(before);
        // A thread without a share of this call has one of the call before, of which nothing is left anywhere.
        let number = left.number;
        let other = |share: &Share| share.take(Left::of(share.left.load(Ordering::Acquire)), number);
        let chunk = self.shares[own].take(left, number).or_else(|| others.find_map(other));
        chunk.map(|chunk| (number, chunk))
    }

    /// Waits until all chunks are done, awake at first: workers are on their last ones.
    fn wait_until(&self, is_done: impl Fn() -> bool) {
        stay_awake_until(AWAKE, &is_done);
        if is_done() {
            return;
        }
        let mut caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // as in `help`
        while !is_done() {
            caller = self.wake.wait(caller).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeps.store(false, Ordering::Relaxed);
    }
}

/// Returns when `come` says so, or when the time is over.
pub fn stay_awake_until(limit: Duration, come: impl Fn() -> bool) {
    let (since, mut looks) = (Instant::now(), 0u32);
    while !come() && since.elapsed() < limit {
        looks += 1;
        match looks % LOOKS {
            0 => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}
