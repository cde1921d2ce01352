//! Turns for what a thread does for a call before it waits for anything, or has a turn of another kind: to read a small message, to
//! check what it asks for, to answer. Each of that is short, but a client may have hundreds of connections with a thread each, and
//! can have all of them at work by messages that cost it next to nothing. There are twice as many such turns as cores, half of which
//! one client may have.
//!
//! It must not know what a call asks for. A thread gives its turn back before it waits, or all clients would wait with it.

use super::clock::boottime_ns;
use super::control::Control;
use super::stop::Stop;
use super::turns::{Turn, Turns};
use crate::ops::OpError;
use crate::waits::before_next;
use std::cell::Cell;
use std::sync::Arc;

/// A client that has no such turn goes on without one after so long: those who have them may be held up without a note of it, as by a
/// lock in the kernel.
const LONGEST_WAIT_NS: u64 = 2_000_000;

/// The turns of one driver.
#[derive(Clone)]
pub(super) struct ShortCalls(Arc<Turns>);

thread_local! {
    /// The turn by which the thread serves a call.
    static SERVING: Cell<Option<Turn>> = const { Cell::new(None) };
}

impl ShortCalls {
    /// For a machine of so many cores.
    pub fn new(cores: usize) -> Self {
        let most = cores.max(2);
        ShortCalls(Turns::named("a turn to be served", 2 * most, most))
    }

    /// See [`CallTurns::serve`](super::CallTurns::serve).
    pub fn serve(&self, client: u32, gone: &Arc<Stop>) {
        // A thread that ends serves no call.
        if is_served().unwrap_or(true) {
            return;
        }
        let turn = self.turn(client, gone);
        let _ = SERVING.try_with(|serving| serving.set(turn));
        before_next(was_served);
    }

    fn turn(&self, client: u32, gone: &Arc<Stop>) -> Option<Turn> {
        loop {
            let deadline_ns = Some(boottime_ns().saturating_add(LONGEST_WAIT_NS));
            let control = Control { client, cancelled: gone.clone(), deadline_ns, ..Control::default() };
            match self.0.take(client, control.priority, &control) {
                Err(OpError::DeadlinePassed) if self.0.has_one(client) => {}
                turn => return turn.ok(),
            }
        }
    }
}

/// Whether the calling thread has a turn.
fn is_served() -> Option<bool> {
    let look = |serving: &Cell<Option<Turn>>| {
        let turn = serving.take();
        let has_one = turn.is_some();
        serving.set(turn);
        has_one
    };
    SERVING.try_with(look).ok()
}

/// Gives back the turn by which the calling thread serves a call, if it has one.
pub fn was_served() {
    let turn = SERVING.try_with(Cell::take);
    drop(turn);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Interrupt;
    use crate::scheduler::CallTurns;
    use crate::waits::wait_for;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Has `clients` served, each on a thread of its own, while `then` is called.
    fn while_served(calls: &ShortCalls, clients: &[u32], then: impl FnOnce()) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = clients
                .iter()
                .map(|&client| {
                    let ((told, heard), (go_on, stay)) = (channel(), channel::<()>());
                    scope.spawn(move || {
                        calls.serve(client, &Arc::default());
                        told.send(()).unwrap();
                        let _ = stay.recv_timeout(PATIENCE);
                        was_served();
                    });
                    heard.recv_timeout(PATIENCE).unwrap();
                    go_on
                })
                .collect();
            then();
            drop(threads);
        });
    }

    #[test]
    fn a_client_has_half_of_the_turns_and_none_while_it_waits() {
        let calls = ShortCalls::new(1);
        let (told, heard) = channel();
        std::thread::scope(|scope| {
            while_served(&calls, &[1], || {
                calls.serve(1, &Arc::default());
                calls.serve(1, &Arc::default()); // it has one
                assert_eq!(calls.0.load().running, 2);
                while_served(&calls, &[2, 2], || ());
                let calls = &calls;
                scope.spawn(move || {
                    calls.serve(1, &Arc::default());
                    told.send(()).unwrap();
                    was_served();
                });
                assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "it has two already");
                drop(wait_for("anything"));
                assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
                assert_eq!(is_served(), Some(false));
            });
        });
        assert_eq!(calls.0.load(), Default::default());
    }

    #[test]
    fn clients_that_have_all_turns_keep_another_for_a_moment_only() {
        let calls = ShortCalls::new(1);
        while_served(&calls, &[1, 1, 2, 2], || {
            calls.serve(3, &Arc::default());
            assert_eq!((is_served(), calls.0.load().running), (Some(false), 4));
        });
        calls.serve(3, &Arc::default());
        assert_eq!(is_served(), Some(true));
        was_served();
    }

    #[test]
    fn a_call_that_is_long_leaves_its_turn_for_one_of_another_kind() {
        let turns = CallTurns::new(1);
        turns.serve(1, &Arc::default());
        let check = turns.check(&Control { client: 1, ..Control::default() });
        assert_eq!(is_served(), Some(true));
        check.yield_point().unwrap();
        assert_eq!(is_served(), Some(false));
    }

    #[test]
    fn a_call_whose_client_is_gone_waits_for_no_turn() {
        let calls = ShortCalls::new(1);
        while_served(&calls, &[1, 1], || {
            calls.serve(1, &Stop::already());
            assert_eq!(is_served(), Some(false));
        });
    }
}
