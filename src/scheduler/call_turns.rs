//! Turns for what is done on a call's own thread before its work stands in any line: to read the arguments out of a large
//! message, to check a model or a request, and to copy to or from a device buffer. There are half as many as cores, but
//! two at least, one of which no single client has: so from four cores on all of it together slows down those who compute by a third
//! at most, however many threads a client calls on.
//!
//! It must not know what is read or checked. Nobody has such a turn while he waits for anything but a turn.

use super::computing;
use super::control::{Control, Yield};
use super::demand::Load;
use super::short_calls::ShortCalls;
use super::stop::Stop;
use super::time_slices::{self, Long};
use super::turns::{Turn, Turns};
use crate::ops::OpError;
use crate::points;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The turns of one driver.
#[derive(Clone)]
pub struct CallTurns(Arc<Turns>, ShortCalls);

thread_local! {
    /// The turn by which the thread reads a message.
    static READING: Cell<Option<(Turn, Long)>> = const { Cell::new(None) };
    /// By whose turns it read the last one, and of which client that is.
    static READ: RefCell<Option<(CallTurns, u32)>> = const { RefCell::new(None) };
}

impl CallTurns {
    /// For a machine of so many cores.
    pub fn new(cores: usize) -> Self {
        let turns = (cores / 2).max(2);
        CallTurns(Turns::named("a turn to check its arguments", turns, turns - 1), ShortCalls::new(cores))
    }

    /// Waits for a turn to read a large message of `client`, which has come in whole. The calling thread has it until it
    /// says that the message [was read](was_read).
    pub fn read(&self, client: u32) {
        let _ = READ.try_with(|read| read.replace(Some((self.clone(), client)))); // a thread that ends reads nothing
        self.reads(client);
    }

    fn reads(&self, client: u32) {
        was_read();
        let control = Control { client, ..Control::default() };
        // Nothing stops this wait, which is for other messages to be read.
        let turn =
            self.0.take(client, control.priority, &control).ok().map(|turn| (turn, time_slices::long()));
        let _ = READING.try_with(|reading| reading.set(turn));
        points::at_each(Some(time_slices::look));
    }

    /// Waits for a turn to serve a call that is not long, unless the thread has one or the call's client is `gone`.
    /// The calling thread has it until it waits, or says that the call [was served](super::was_served).
    pub fn serve(&self, client: u32, gone: &Arc<Stop>) {
        self.1.serve(client, gone);
    }

    /// How many wait for a turn to read or to check, and how many have one.
    pub fn load(&self) -> Load {
        self.0.load()
    }

    /// `control` for a check, which has no turn at first and takes one where it turns out to be long, at its first yield
    /// point: to check what is small costs nothing.
    pub fn check(&self, control: &Control) -> Control {
        let turn = |this: &Weak<Checking>| Checking {
            turns: self.0.clone(),
            turn: Mutex::default(),
            this: this.clone(),
        };
        Control { turn: Some(Arc::new_cyclic(turn)), ..control.clone() }
    }
}

/// Gives back the turn of the message that the calling thread has read, if there is one.
pub fn was_read() {
    points::at_each(None);
    let turn = READING.try_with(Cell::take);
    drop(turn);
}

/// Waits for a turn once more to let go of what was read out of a large message, if the thread has read one, which may take as long.
/// It has that until it [did](has_let_go).
pub fn lets_go() {
    let read = READ.try_with(|read| read.borrow().clone()).ok().flatten();
    if let Some((turns, client)) = read {
        turns.reads(client);
    }
}

/// Says that nothing is left of the message that the thread has read.
pub fn has_let_go() {
    let _ = READ.try_with(RefCell::take);
    was_read();
}

/// A turn that is taken when it is first asked for. One thread uses it.
struct Checking {
    turns: Arc<Turns>,
    turn: Mutex<Option<(Turn, Long)>>,
    /// For the thread that uses it.
    this: Weak<Checking>,
}

impl Checking {
    fn lock(&self) -> MutexGuard<'_, Option<(Turn, Long)>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Yield for Checking {
    fn pass(&self, control: &Control) -> Result<(), OpError> {
        let mut turn = self.lock();
        if let Some((turn, _)) = &*turn {
            return turn.pass(control);
        }
        *turn =
            Some((self.turns.take(control.client, control.priority, control)?, time_slices::long_later()));
        computing::checks(self.this.clone());
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }

    fn lend(&self) {
        let turn = self.lock().take();
        drop(turn);
    }
}

impl std::fmt::Debug for Checking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a check: {:?}", self.lock().as_ref().map(|(turn, _)| turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Interrupt;
    use crate::scheduler::{boottime_ns, lend_turn};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn of(client: u32) -> Control {
        Control { client, ..Control::default() }
    }

    #[test]
    fn a_client_is_kept_from_one_turn_and_reads_one_message_at_a_time() {
        let turns = CallTurns::new(1);
        let (told, heard) = channel();
        std::thread::scope(|scope| {
            turns.read(1);
            let others = [1, 2].map(|client| {
                let (turns, told) = (turns.clone(), told.clone());
                scope.spawn(move || {
                    turns.read(client);
                    told.send(client).unwrap();
                    was_read();
                })
            });
            assert_eq!(heard.recv_timeout(PATIENCE), Ok(2), "another client reads");
            assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "the same does not");
            // A thread that begins with the next message is done with the one before.
            turns.read(3);
            assert_eq!(heard.recv_timeout(PATIENCE), Ok(1));
            was_read();
            others.into_iter().for_each(|other| other.join().unwrap());
        });
        assert_eq!(turns.0.load(), Default::default());
    }

    #[test]
    fn what_was_read_is_let_go_of_by_a_turn_too() {
        let turns = CallTurns::new(1);
        let running = || turns.0.load().running;
        lets_go();
        assert_eq!(running(), 0, "it has read nothing large");
        turns.read(1);
        was_read();
        lets_go();
        assert_eq!(running(), 1);
        has_let_go();
        lets_go();
        assert_eq!(running(), 0, "that is gone");
    }

    #[test]
    fn a_check_takes_a_turn_once_it_is_long_and_heeds_its_deadline_meanwhile() {
        let turns = CallTurns::new(1);
        let check = turns.check(&of(1));
        assert_eq!(turns.0.load().running, 0);
        for _ in 0..3 {
            check.yield_point().unwrap();
            assert_eq!(turns.0.load().running, 1);
        }
        check.before_waiting();
        assert_eq!(turns.0.load().running, 0);
        check.yield_point().unwrap();
        let soon = boottime_ns() + 20_000_000;
        let late = turns.check(&Control { deadline_ns: Some(soon), ..of(1) });
        assert_eq!(late.yield_point(), Err(OpError::DeadlinePassed));
        assert_eq!(turns.check(&of(2)).yield_point(), Ok(()), "there is one for another client");
        drop(check);
        assert_eq!(turns.check(&of(1)).yield_point(), Ok(()));
        assert_eq!(turns.0.load(), Default::default());
    }

    #[test]
    fn who_checks_lends_its_turn_while_it_frees_memory() {
        let turns = CallTurns::new(1);
        let check = turns.check(&of(1));
        let running = || turns.0.load().running;
        for _ in 0..2 {
            check.yield_point().unwrap();
            std::thread::scope(|scope| scope.spawn(lend_turn).join().unwrap());
            assert_eq!(running(), 1, "it is not the other thread's");
            lend_turn();
            assert_eq!(running(), 0);
        }
        check.yield_point().unwrap();
        drop(check);
        // Of a check that is over there is none.
        lend_turn();
        assert_eq!(running(), 0);
    }
}
