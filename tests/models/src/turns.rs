//! Turns at computing: no turn is given twice, none is lost, nobody who waits is forgotten.

use crate::explore;
use crate::stand_ins::{apart, clock, recorder, slow_calls, time_slices, watcher};
use control::{Control, Yield};
use demand::{Load, Priority};
use loom::cell::UnsafeCell;
use loom::thread;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use subject::{Start, Turn, Turns};

#[path = "../../../src/scheduler/control.rs"]
#[allow(dead_code)] // accounts are of no model's interest
pub mod control;
#[path = "../../../src/scheduler/demand.rs"]
pub mod demand;
#[path = "../../../src/scheduler/stop.rs"]
#[allow(dead_code)] // as above
pub mod stop;
#[path = "../../../src/scheduler/turns.rs"]
mod subject;

fn take(turns: &Arc<Turns>, client: u32, priority: Priority) -> Turn {
    turns.take(client, priority, &Control::default()).expect("nothing ends its wait")
}

/// Data that only the thread with the one turn may touch.
struct Desk(UnsafeCell<u32>);

impl Desk {
    fn new() -> Rc<Self> {
        Rc::new(Desk(UnsafeCell::new(0)))
    }

    fn use_it(&self) {
        // SAFETY: the cell outlives the closure; the checker reports any access at the same time.
        self.0.with_mut(|used| unsafe { *used += 1 });
    }

    fn uses(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|used| unsafe { *used })
    }
}

/// With one core, one thread computes at a time, the next sees what it did, and all get to compute.
pub fn nobody_computes_beside_another() {
    explore(4, || {
        let (turns, desk) = (Turns::new(1), Desk::new());
        let compute = |client, priority| {
            let (turns, desk) = (turns.clone(), desk.clone());
            move || {
                let _turn = take(&turns, client, priority);
                desk.use_it();
            }
        };
        let others = [(1, Priority::Low), (2, Priority::High)];
        let others = others.map(|(client, priority)| thread::spawn(compute(client, priority)));
        compute(1, Priority::Medium)();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!((desk.uses(), turns.load()), (3, Load::default()));
    });
}

/// With two cores, and one turn for each client, a client never has two.
pub fn no_client_has_more_than_its_limit() {
    explore(4, || {
        let (turns, of_one, of_all) =
            (Turns::named("a turn", 2, 1), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let compute = |client| {
            let (turns, of_one, of_all) = (turns.clone(), of_one.clone(), of_all.clone());
            move || {
                let _turn = take(&turns, client, Priority::Medium);
                let ones = u32::from(client == 1);
                of_one.set(of_one.get() + ones);
                of_all.set(of_all.get() + 1);
                assert!(of_one.get() <= 1 && of_all.get() <= 2);
                thread::yield_now();
                of_one.set(of_one.get() - ones);
                of_all.set(of_all.get() - 1);
            }
        };
        let others = [1, 2].map(|client| thread::spawn(compute(client)));
        compute(1)();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(turns.load(), Load::default());
    });
}

/// A client that comes while another computes has the turn by the other's next yield point, and the other has it back.
pub fn who_waits_is_passed_to_at_once() {
    explore(4, || {
        let (turns, desk, came) = (Turns::new(1), Desk::new(), Rc::new(Cell::new(false)));
        let turn = take(&turns, 1, Priority::Medium);
        let other = {
            let (turns, desk, came) = (turns.clone(), desk.clone(), came.clone());
            thread::spawn(move || {
                let _turn = take(&turns, 2, Priority::Medium);
                desk.use_it();
                came.set(true);
            })
        };
        for _ in 0..2 {
            desk.use_it();
            let somebody_waits = turns.load().waiting > 0;
            assert!(turns.has_one(1), "the other only has it while this one waits");
            turn.pass(&Control::default()).expect("nothing ends its wait");
            assert!(came.get() || !somebody_waits, "who waited was passed over");
        }
        desk.use_it();
        drop(turn);
        other.join().expect("no panic");
        assert_eq!((desk.uses(), turns.load()), (4, Load::default()));
    });
}

/// A thread may be granted the turn at the moment when it is cancelled: the turn goes on to the next.
pub fn who_gives_up_leaves_the_turn_to_others() {
    explore(4, || {
        let (turns, desk) = (Turns::new(1), Desk::new());
        let turn = take(&turns, 1, Priority::Medium);
        let gives_up = {
            let (turns, desk) = (turns.clone(), desk.clone());
            thread::spawn(move || {
                let control = Control::default();
                control.cancelled.set();
                let turn = turns.take(2, Priority::High, &control);
                turn.iter().for_each(|_| desk.use_it());
            })
        };
        let stays = {
            let (turns, desk) = (turns.clone(), desk.clone());
            thread::spawn(move || {
                let _turn = take(&turns, 3, Priority::Medium);
                desk.use_it();
            })
        };
        desk.use_it();
        drop(turn);
        [gives_up, stays].into_iter().for_each(|other| other.join().expect("no panic"));
        assert!((2..=3).contains(&desk.uses()));
        assert_eq!(turns.load(), Load::default());
    });
}

/// A thread that waits for a turn is cancelled or its client dies, whenever: it ends its wait, though nobody gives a turn
/// back. Time would not wake it here.
pub fn who_is_told_to_stop_does_not_wait_on() {
    for orphaned in [false, true] {
        explore(4, move || {
            let turns = Turns::new(1);
            let turn = take(&turns, 1, Priority::Medium);
            let control = Control::default();
            let stop = if orphaned { &control.orphaned } else { &control.cancelled }.clone();
            let waits = {
                let turns = turns.clone();
                thread::spawn(move || turns.take(2, Priority::High, &control).is_err())
            };
            stop.set();
            assert!(waits.join().expect("no panic"), "there was no turn to take");
            drop(turn);
            assert_eq!(turns.load(), Load::default());
        });
    }
}

/// One flag wakes all who wait by it, also those who begin to wait while it is set, and those who passed their turn on.
pub fn a_death_ends_all_waits_of_its_client() {
    explore(3, || {
        let turns = Turns::new(1);
        let turn = take(&turns, 1, Priority::Medium);
        let died = Arc::<stop::Stop>::default();
        let waits = [(); 2].map(|()| {
            let (turns, orphaned) = (turns.clone(), died.clone());
            let control = Control { orphaned, ..Control::default() };
            thread::spawn(move || turns.take(2, Priority::Low, &control).is_err())
        });
        died.set();
        waits.into_iter().for_each(|waits| assert!(waits.join().expect("no panic")));
        drop(turn);
        assert_eq!(turns.load(), Load::default());
    });
}

/// Has `what` counted with each start, which then does with its turn as `then` says.
fn counting(what: &Arc<AtomicUsize>, then: fn(Turn) -> Result<(), Turn>) -> Start {
    let what = what.clone();
    Box::new(move |turn| {
        what.fetch_add(1, Ordering::Relaxed);
        then(turn)
    })
}

/// A place that a thread of the "device" gives back.
fn occupied(slots: &Arc<Turns>) -> Option<Turn> {
    let held = Arc::new(Mutex::new(None));
    let keep = held.clone();
    let start = move |turn| {
        *keep.lock().expect("no panic") = Some(turn);
        Ok(())
    };
    slots.when_due(1, Priority::Medium, Box::new(start));
    let turn = held.lock().expect("no panic").take();
    assert!(turn.is_some(), "an empty line starts at once");
    turn
}

/// Fenced executions stand in line for a place in the device's queue: each is started once, whether the one before it
/// ended, was done at once or could not begin.
pub fn a_line_moves_on_whatever_becomes_of_who_is_next() {
    explore(4, || {
        let (slots, started) = (Turns::new(1), Arc::new(AtomicUsize::new(0)));
        let occupied = occupied(&slots);
        let device = thread::spawn(move || drop(occupied));
        let cannot_begin = {
            let (slots, start) = (slots.clone(), counting(&started, Err));
            thread::spawn(move || drop(slots.when_due(2, Priority::Medium, start)))
        };
        let done_at_once = |turn| {
            drop(turn);
            Ok(())
        };
        slots.when_due(3, Priority::High, counting(&started, done_at_once));
        [device, cannot_begin].into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!((started.load(Ordering::Relaxed), slots.load()), (2, Load::default()));
    });
}

/// One that leaves the line while a place becomes free is started or dropped, once, and nothing is left.
pub fn what_leaves_never_starts_and_what_began_is_left_alone() {
    explore(4, || {
        let (slots, started) = (Turns::new(1), Arc::new(AtomicUsize::new(0)));
        let (occupied, held) = (occupied(&slots), Arc::new(()));
        let (start, keeps) = (counting(&started, Err), held.clone());
        let start = move |turn| {
            drop(keeps);
            start(turn)
        };
        let in_line = slots.when_due(2, Priority::Medium, Box::new(start));
        let device = thread::spawn(move || drop(occupied));
        in_line.leave();
        device.join().expect("no panic");
        in_line.leave();
        assert!(started.load(Ordering::Relaxed) <= 1);
        assert_eq!((Arc::strong_count(&held), slots.load()), (1, Load::default()));
    });
}
