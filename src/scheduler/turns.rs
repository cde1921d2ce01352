//! Turns at computing: as many as there are cores at once, in equal shares of time among clients, and by priority
//! within each client. Work that computes holds a turn; at the next yield point it passes the turn on if another is due.
//!
//! The one fair queue of the driver: cores and places in a device's queue are shared out by it.
//!
//! It must not know what is computed, nor wait for anything but a turn.

use super::apart::Apart;
use super::control::{self, Control};
use super::demand::{Load, Priority};
use super::{slow_calls, time_slices};
use crate::ops::OpError;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Instant, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

/// By so much a client must be ahead of another before it passes its turn on: changing over costs time, too.
const SLICE_NS: i64 = 200_000;
/// What a client has had more than others is remembered up to so much while it neither computes nor waits: more than it can have before
/// it gives way.
const DEBT_NS: i64 = 10 * SLICE_NS;
/// Waiting for so many nanoseconds raises a priority by one level, so that none starves.
pub(super) const AGING_NS: i64 = 1_000_000_000;
const PRIORITIES: usize = Priority::High as usize + 1;

/// Turns at the cores of one machine.
pub struct Turns {
    state: Mutex<State>,
    /// How many wait, and how many compute: to be read without the lock.
    waiting: AtomicUsize,
    computing: AtomicUsize,
    cores: usize,
    /// Where those compute who pass their turns on.
    apart: Apart,
    /// Turns that one client may have at the same time.
    most_of_one: usize,
    /// What a turn is, for people.
    what: &'static str,
    epoch: Instant,
}

/// The clients that compute or wait, and of those that do neither the ones that have had more, as they may be back in a moment. In their
/// order, so that the same calls always have the same end.
type State = BTreeMap<u32, Client>;

/// Times are in nanoseconds since the epoch.
#[derive(Default)]
struct Client {
    /// Time that its past turns took.
    used: i64,
    /// Its turns that are not over: how many, and the sum of the times at which they began.
    computing: i64,
    began: i64,
    /// By priority.
    waiting: [Line; PRIORITIES],
}

/// Those who wait, by their places: who has waited longest first. There may be thousands, any of whom may leave.
type Line = BTreeMap<i64, Waiting>;

/// A seat that waits for a turn, and how to tell it.
struct Waiting {
    seat: Arc<Seat>,
    call: Call,
}

/// Where in the line one begins to wait.
enum End {
    Back,
    Front,
}

enum Call {
    Wake(Thread),
    Start(Start),
}

/// Begins what was waiting for its turn, on some thread of its own; gives the turn back where it cannot. It must not
/// wait, because the thread whose turn is over calls it.
pub type Start = Box<dyn FnOnce(Turn) -> Result<(), Turn> + Send>;

/// A turn at computing, given back when dropped. Only one thread may compute by it, and pass it.
pub struct Turn {
    turns: Arc<Turns>,
    seat: Arc<Seat>,
}

/// Who stands in line to be started, so that it can leave.
pub struct InLine {
    turns: Arc<Turns>,
    seat: Arc<Seat>,
}

/// What others see of a turn, or of the wait for one.
struct Seat {
    client: u32,
    priority: Priority,
    /// Time that it has stood in line before.
    waited: AtomicI64,
    /// Whether it may compute.
    granted: AtomicBool,
    /// When it began to compute, or to stand in line, whichever it does.
    began: AtomicI64,
    /// Its place in the line, while it stands there.
    place: AtomicI64,
    /// Its place among those who compute, while it does.
    among: AtomicUsize,
}

impl Client {
    /// The time that it has had until `now`.
    fn had(&self, now: i64) -> i64 {
        self.used + self.computing * now - self.began
    }

    /// The client's waiting seat that comes first. Among seats of one priority, the one that has waited longest.
    fn first(&self, now: i64) -> Option<&Arc<Seat>> {
        let fronts = self.waiting.iter().filter_map(|line| line.first_key_value());
        fronts.map(|(_, waiting)| &waiting.seat).max_by_key(|seat| seat.urgency(now))
    }

    fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|line| !line.is_empty())
    }

    /// Whether it neither computes nor waits.
    fn is_away(&self) -> bool {
        self.computing == 0 && !self.is_waiting()
    }

    fn may_have_another(&self, most_of_one: usize) -> bool {
        usize::try_from(self.computing).is_ok_and(|computing| computing < most_of_one)
    }
}

impl Seat {
    fn new(client: u32, priority: Priority) -> Arc<Self> {
        let (waited, granted, began, place, among) = Default::default();
        Arc::new(Seat { client, priority, waited, granted, began, place, among })
    }

    /// How long it has stood in line, in all. Time for which it computes is not waited for.
    fn waited(&self, now: i64) -> i64 {
        let before = self.waited.load(Ordering::Relaxed);
        match self.granted.load(Ordering::Relaxed) {
            true => before,
            false => before + (now - self.began.load(Ordering::Relaxed)),
        }
    }

    /// The greater the sooner.
    fn urgency(&self, now: i64) -> (i64, i64) {
        let waited = self.waited(now);
        (self.priority as i64 + waited / AGING_NS, waited)
    }
}

impl Turns {
    /// Turns at `cores` cores, all of which a client may have that is alone.
    pub fn new(cores: usize) -> Arc<Self> {
        Turns::named("a turn", cores, usize::MAX)
    }

    /// Turns at `cores` cores, of which a client never has more than `most_of_one`: for work that seldom yields. Who waits for
    /// one waits for `what`.
    pub fn named(what: &'static str, cores: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Turns {
            what,
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
            computing: AtomicUsize::new(0),
            cores: cores.max(1),
            apart: Apart::new(cores.max(1)),
            most_of_one: most_of_one.max(1),
            epoch: Instant::now(),
        })
    }

    /// How many wait for a turn, and how many have one.
    pub fn load(&self) -> Load {
        let [waiting, running] = [&self.waiting, &self.computing].map(|count| count.load(Ordering::Relaxed));
        Load { waiting, running }
    }

    /// Whether `client` has a turn.
    pub fn has_one(&self, client: u32) -> bool {
        self.lock().get(&client).is_some_and(|client| client.computing > 0)
    }

    /// Waits for a turn, as long as `control` allows.
    pub fn take(
        self: &Arc<Self>,
        client: u32,
        priority: Priority,
        control: &Control,
    ) -> Result<Turn, OpError> {
        slow_calls::about_to_wait();
        let turn = Turn { turns: self.clone(), seat: Seat::new(client, priority) };
        if self.enter(&turn.seat, Call::Wake(thread::current())).is_none() {
            turn.wait(control)?;
        }
        Ok(turn)
    }

    /// Has `start` called with a turn: right now, or by another once it is due. No thread waits for that.
    pub fn when_due(self: &Arc<Self>, client: u32, priority: Priority, start: Start) -> InLine {
        let seat = Seat::new(client, priority);
        if let Some(call) = self.enter(&seat, Call::Start(start)) {
            self.call(Waiting { seat: seat.clone(), call });
        }
        InLine { turns: self.clone(), seat }
    }

    /// Grants `seat` a turn, and gives `call` back; or else puts it in line.
    fn enter(&self, seat: &Arc<Seat>, call: Call) -> Option<Call> {
        let (mut state, now) = (self.lock(), self.now());
        let may_have_one = self.admit(&mut state, seat.client, now).may_have_another(self.most_of_one);
        if may_have_one && self.computing.load(Ordering::Relaxed) < self.cores {
            self.computing.fetch_add(1, Ordering::Relaxed);
            self.grant(&mut state, seat, now);
            return Some(call);
        }
        self.line_up(&mut state, Waiting { seat: seat.clone(), call }, now, End::Back);
        None
    }

    /// Tells who was granted a turn; one who cannot begin leaves it to the next.
    fn call(self: &Arc<Self>, waiting: Waiting) {
        let mut next = Some(waiting);
        while let Some(Waiting { seat, call }) = next {
            next = match call {
                Call::Wake(thread) => {
                    thread.unpark();
                    None
                }
                Call::Start(start) => {
                    start(Turn { turns: self.clone(), seat }).err().and_then(|turn| turn.over())
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        i64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// Makes room for a client. One that comes, or comes again, is a little behind those who compute, and so the next:
    /// what it left unused while it was away is gone. What it has had more is not: who has short runs would always be next.
    fn admit<'s>(&self, state: &'s mut State, client: u32, now: i64) -> &'s mut Client {
        let (least, new) = (least(state, now), Client { used: i64::MIN, ..Client::default() });
        let own = state.entry(client).or_insert(new);
        if own.is_away() {
            let [ahead, most] = [-2 * SLICE_NS, DEBT_NS].map(|more| least.map_or(0, |least| least + more));
            own.used = own.used.clamp(ahead, most);
        }
        own
    }

    /// Has another wait in line from `now` on.
    fn line_up(&self, state: &mut State, waiting: Waiting, now: i64, end: End) {
        let seat = &waiting.seat;
        let line = &mut state.entry(seat.client).or_default().waiting[seat.priority as usize];
        let place = match end {
            End::Back => line.last_key_value().map_or(0, |(last, _)| last + 1),
            End::Front => line.first_key_value().map_or(0, |(first, _)| first - 1),
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        seat.began.store(now, Ordering::Relaxed);
        seat.place.store(place, Ordering::Relaxed);
        line.insert(place, waiting);
    }

    /// Takes `seat` out of the line, if it is in it.
    fn leave(&self, state: &mut State, seat: &Seat, now: i64) -> Option<Waiting> {
        let line = &mut state.get_mut(&seat.client)?.waiting[seat.priority as usize];
        // Its place may be another's since it left.
        let place = seat.place.load(Ordering::Relaxed);
        line.get(&place).filter(|waiting| std::ptr::eq(&*waiting.seat, seat))?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        seat.waited.store(seat.waited(now), Ordering::Relaxed);
        line.remove(&place)
    }

    /// Lets `seat` compute, on a core that is free.
    fn grant(&self, state: &mut State, seat: &Seat, now: i64) {
        let client = state.entry(seat.client).or_default();
        client.computing += 1;
        client.began += now;
        seat.began.store(now, Ordering::Relaxed);
        seat.among.store(self.apart.take().unwrap_or(usize::MAX), Ordering::Relaxed);
        seat.granted.store(true, Ordering::Release);
    }

    /// Ends what `seat` computes: its core is free.
    fn end(&self, state: &mut State, seat: &Seat, now: i64) {
        seat.granted.store(false, Ordering::Relaxed);
        self.apart.give(seat.among.load(Ordering::Relaxed));
        let began = seat.began.load(Ordering::Relaxed);
        if let Some(client) = state.get_mut(&seat.client) {
            client.computing -= 1;
            client.began -= began;
            client.used += now - began;
        }
    }

    /// The waiting seat that is next: one of the client that had the least time and may have another turn.
    fn next(&self, state: &State, now: i64) -> Option<Arc<Seat>> {
        let waiting = state.values().filter(|client| client.is_waiting());
        let waiting = waiting.filter(|client| client.may_have_another(self.most_of_one));
        waiting.min_by_key(|client| client.had(now)).and_then(|client| client.first(now)).cloned()
    }

    /// The waiting seat that should compute instead of `seat`.
    fn rival(&self, state: &State, seat: &Seat, now: i64) -> Option<Arc<Seat>> {
        let own = state.get(&seat.client)?;
        let next = self.next(state, now)?;
        if next.client != seat.client && state.get(&next.client)?.had(now) + SLICE_NS < own.had(now) {
            return Some(next);
        }
        own.first(now).filter(|first| first.urgency(now).0 > seat.urgency(now).0).cloned()
    }
}

impl Turn {
    /// Waits until it is granted.
    fn wait(&self, control: &Control) -> Result<(), OpError> {
        let _waiting = slow_calls::wait_for(self.turns.what);
        let granted = || self.seat.granted.load(Ordering::Acquire).then_some(());
        // Who had the turn woke this thread on its core, and mostly was put aside by that, with an answer still to send: it goes
        // first, as it has little left to do.
        control
            .park_until(granted)
            .inspect(|()| thread::yield_now())
            .inspect_err(|_| drop(self.turns.leave(&mut self.turns.lock(), &self.seat, self.turns.now())))
    }

    /// Ends the turn, if it was granted. Gives the seat that is granted a turn now and must be told so.
    fn over(&self) -> Option<Waiting> {
        let turns = &self.turns;
        let (mut state, now) = (turns.lock(), turns.now());
        let mut next = None;
        if self.seat.granted.load(Ordering::Relaxed) {
            turns.end(&mut state, &self.seat, now);
            next = turns.next(&state, now).and_then(|next| turns.leave(&mut state, &next, now));
            match &next {
                Some(next) => turns.grant(&mut state, &next.seat, now),
                None => drop(turns.computing.fetch_sub(1, Ordering::Relaxed)),
            }
        }
        forget_away(&mut state, now);
        next
    }
}

/// The least time that any client has had that computes or waits.
fn least(state: &State, now: i64) -> Option<i64> {
    state.values().filter(|client| !client.is_away()).map(|client| client.had(now)).min()
}

/// Drops clients that neither compute nor wait, and have had no more than those that do.
fn forget_away(state: &mut State, now: i64) {
    let least = least(state, now);
    state.retain(|_, client| !client.is_away() || least.is_some_and(|least| client.used > least));
}

impl InLine {
    /// Drops what was to begin, so that it never does; nothing happens to what has begun.
    pub fn leave(&self) {
        let mut state = self.turns.lock();
        let left = self.turns.leave(&mut state, &self.seat, self.turns.now());
        forget_away(&mut state, self.turns.now());
        drop(state);
        drop(left); // its end may do anything: not under the lock
    }
}

impl control::Yield for Turn {
    fn pass(&self, control: &Control) -> Result<(), OpError> {
        time_slices::look();
        let turns = &self.turns;
        if !self.seat.granted.load(Ordering::Relaxed) {
            // It was lent, and is to be had again.
            return match turns.enter(&self.seat, Call::Wake(thread::current())) {
                Some(_) => Ok(()),
                None => self.wait(control),
            };
        }
        if turns.computing.load(Ordering::Relaxed) > 1 {
            turns.apart.look(self.seat.among.load(Ordering::Relaxed));
        }
        if turns.waiting.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let (mut state, now) = (turns.lock(), turns.now());
        let rival = turns.rival(&state, &self.seat, now);
        let Some(rival) = rival.and_then(|rival| turns.leave(&mut state, &rival, now)) else { return Ok(()) };
        turns.end(&mut state, &self.seat, now);
        turns.grant(&mut state, &rival.seat, now);
        // It has waited before, so it comes before those that began to wait since.
        let waiting = Waiting { seat: self.seat.clone(), call: Call::Wake(thread::current()) };
        turns.line_up(&mut state, waiting, now, End::Front);
        drop(state);
        turns.call(rival);
        self.wait(control)
    }

    fn lend(&self) {
        if let Some(next) = self.over() {
            self.turns.call(next);
        }
    }

    fn threads(&self) -> usize {
        (self.turns.cores / self.turns.computing.load(Ordering::Relaxed).max(1)).max(1)
    }
}

impl Drop for Turn {
    /// Its core goes to the next in line.
    fn drop(&mut self) {
        if let Some(next) = self.over() {
            self.turns.call(next);
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a turn of client {}, priority {:?}", self.seat.client, self.seat.priority)
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "turns_share_tests.rs"]
mod share_tests;
