//! Tests of turns at computing: who computes next, and who gives way.

use super::*;
use crate::ops::evaluate::evaluate;
use crate::ops::{Arg, Interrupt as _, OperationType};
use crate::scheduler::awake::{sleeps_through, WHILE};
use crate::scheduler::{boottime_ns, Lives, Stop, Watcher, Yield as _};
use crate::tensor::{OperandType, TensorInfo};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Has a thread take a turn, say `name`, and give it back. Returns once it waits.
fn line_up(
    turns: &Arc<Turns>,
    client: u32,
    priority: Priority,
    say: &Sender<&'static str>,
    name: &'static str,
) {
    let (before, say, line) = (turns.waiting.load(Ordering::SeqCst), say.clone(), turns.clone());
    std::thread::spawn(move || {
        let turn = line.take(client, priority, &Control::default()).unwrap();
        say.send(name).unwrap();
        drop(turn);
    });
    while turns.waiting.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
}

fn said(heard: &Receiver<&'static str>, count: usize) -> Vec<&'static str> {
    (0..count).map(|_| heard.recv_timeout(PATIENCE).unwrap()).collect()
}

/// Nobody computes, waits or is remembered, once the last has given its turn back.
fn is_idle(turns: &Turns) -> bool {
    let idle = || turns.computing.load(Ordering::SeqCst) == 0 && turns.lock().is_empty();
    (0..2000).any(|_| {
        idle() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    }) && turns.waiting.load(Ordering::SeqCst) == 0
}

#[test]
fn a_clients_work_goes_by_priority() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    line_up(&turns, 1, Priority::Low, &say, "low");
    line_up(&turns, 1, Priority::High, &say, "high");
    line_up(&turns, 1, Priority::Medium, &say, "medium");
    drop(turn);
    assert_eq!(said(&heard, 3), ["high", "medium", "low"]);
    assert!(is_idle(&turns));
}

#[test]
fn between_operations_a_turn_passes_to_the_more_urgent_only() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    line_up(&turns, 1, Priority::Medium, &say, "equal");
    turn.pass(&Control::default()).unwrap();
    assert!(heard.try_recv().is_err());
    line_up(&turns, 1, Priority::High, &say, "urgent");
    turn.pass(&Control::default()).unwrap();
    assert_eq!(heard.try_recv(), Ok("urgent"));
    drop(turn);
    assert_eq!(said(&heard, 1), ["equal"]);
    assert!(is_idle(&turns));
}

#[test]
fn a_turn_that_was_lent_is_had_again() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = Arc::new(turns.take(1, Priority::Medium, &Control::default()).unwrap());
    let control = Control { turn: Some(turn), ..Control::default() };
    control.before_waiting();
    control.before_waiting();
    assert!(is_idle(&turns));
    control.yield_point().unwrap();
    line_up(&turns, 2, Priority::Medium, &say, "another");
    assert!(heard.try_recv().is_err(), "it is not had again");
    control.before_waiting();
    assert_eq!(said(&heard, 1), ["another"]);
    let other = turns.take(2, Priority::Medium, &Control::default()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| control.yield_point());
        while turns.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(other);
        waits.join().unwrap().unwrap();
    });
    assert_eq!(turns.load().running, 1);
    drop(control);
    assert!(is_idle(&turns));
}

#[test]
fn work_that_is_to_stop_keeps_nobody_waiting_while_it_ends() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = Arc::new(turns.take(1, Priority::Medium, &Control::default()).unwrap());
    let control = Control { turn: Some(turn), ..Control::default() };
    line_up(&turns, 2, Priority::Low, &say, "another");
    control.cancelled.set();
    assert_eq!(control.yield_point(), Err(OpError::Cancelled));
    assert_eq!(said(&heard, 1), ["another"]);
    drop(control);
    assert!(is_idle(&turns));
}

#[test]
fn a_client_that_comes_is_next_whatever_its_priority() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = turns.take(1, Priority::High, &Control::default()).unwrap();
    line_up(&turns, 1, Priority::High, &say, "the same client");
    line_up(&turns, 2, Priority::Low, &say, "another client");
    turn.pass(&Control::default()).unwrap();
    assert_eq!(heard.try_recv(), Ok("another client"));
    drop(turn);
    assert_eq!(said(&heard, 1), ["the same client"]);
    assert!(is_idle(&turns));
}

/// Has a turn taken when it is due, to say `name` and give it back.
fn say_when_due(
    turns: &Arc<Turns>,
    client: u32,
    priority: Priority,
    say: &Sender<&'static str>,
    name: &'static str,
) {
    let say = say.clone();
    let start = move |turn: Turn| {
        say.send(name).unwrap();
        drop(turn);
        Ok(())
    };
    turns.when_due(client, priority, Box::new(start));
}

#[test]
fn what_needs_no_thread_to_wait_goes_by_priority_too() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    say_when_due(&turns, 1, Priority::Low, &say, "at once");
    assert_eq!(heard.try_recv(), Ok("at once"));
    let turn = turns.take(1, Priority::Low, &Control::default()).unwrap();
    (0..3).for_each(|_| say_when_due(&turns, 1, Priority::Low, &say, "low"));
    say_when_due(&turns, 1, Priority::Medium, &say, "medium");
    line_up(&turns, 1, Priority::High, &say, "high");
    assert!(heard.try_recv().is_err());
    turn.pass(&Control::default()).unwrap();
    assert_eq!(said(&heard, 2), ["high", "medium"]);
    assert!(heard.try_recv().is_err(), "the others are no more urgent than who computes");
    drop(turn);
    assert_eq!(said(&heard, 3), ["low"; 3]);
    assert!(is_idle(&turns));
}

#[test]
fn however_many_cannot_begin_the_next_does() {
    let (turns, (say, heard)) = (Turns::new(1), channel());
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    (0..100_000).for_each(|_| drop(turns.when_due(1, Priority::Medium, Box::new(Err))));
    say_when_due(&turns, 1, Priority::Medium, &say, "the last");
    drop(turn);
    assert_eq!(said(&heard, 1), ["the last"]);
    assert!(is_idle(&turns));
}

#[test]
fn what_leaves_the_line_is_let_go_of_at_once() {
    let turns = Turns::new(1);
    let held = Arc::new(());
    let wait = |client| {
        let held = held.clone();
        let start = move |turn| {
            drop(held);
            Err(turn)
        };
        turns.when_due(client, Priority::Medium, Box::new(start))
    };
    let begun = wait(1);
    begun.leave();
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    let waiting = [1, 1, 2].map(wait);
    assert_eq!(turns.load().waiting, 3);
    for (left, place) in waiting.iter().enumerate() {
        assert_eq!(Arc::strong_count(&held), 4 - left);
        place.leave();
        place.leave();
        assert_eq!(turns.load().waiting, 2 - left);
    }
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(turns.lock().keys().collect::<Vec<_>>(), [&1], "client 2 is forgotten");
    drop(turn);
    assert!(is_idle(&turns));
}

/// So many that to look for each among all would take hours.
#[test]
fn any_of_very_many_leaves_the_line_at_once_and_takes_no_other_along() {
    const MANY: usize = 300_000;
    let turns = Turns::new(1);
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    let wait = |()| turns.when_due(1, Priority::Medium, Box::new(Err));
    let mut waiting: Vec<_> = std::iter::repeat_n((), MANY).map(wait).collect();
    let (last, first) = (waiting.pop().unwrap(), waiting.swap_remove(0));
    waiting.iter().rev().for_each(InLine::leave);
    assert_eq!(turns.load().waiting, 2);
    [&last, &first].into_iter().for_each(InLine::leave);
    let other = wait(());
    // The place is another's now.
    [&last, &first].into_iter().for_each(InLine::leave);
    assert_eq!(turns.load().waiting, 1);
    other.leave();
    drop(turn);
    assert!(is_idle(&turns));
}

#[test]
fn cores_are_shared_out() {
    let turns = Turns::new(4);
    let take = |client| turns.take(client, Priority::Medium, &Control::default()).unwrap();
    let first = take(1);
    assert_eq!(first.threads(), 4);
    let others = [take(1), take(2)];
    assert_eq!(first.threads(), 1);
    drop(others);
    assert_eq!(first.threads(), 4);
    drop(first);
    assert!(is_idle(&turns));
}

/// Shares are of time, so operations are made to take much of it, whatever the machine does meanwhile, and whoever computes
/// lets all others line up first: a client that does not wait has no share.
#[test]
fn clients_have_equal_shares_however_many_threads_they_have() {
    const THREADS: [usize; 2] = [2, 8];
    const OPERATION_NS: i64 = 1_000_000_000_000;
    const ALL: usize = 200;
    let turns = Turns::new(1);
    let operations = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let done = || operations.iter().map(|done| done.load(Ordering::SeqCst)).sum::<usize>();
    let others = THREADS.iter().sum::<usize>() - 1;
    let compute = |client: usize| {
        while done() < ALL {
            let turn = turns.take(client as u32, Priority::Medium, &Control::default()).unwrap();
            for _ in 0..5 {
                while done() < ALL && turns.waiting.load(Ordering::SeqCst) < others {
                    std::thread::yield_now();
                }
                if done() < ALL {
                    operations[client].fetch_add(1, Ordering::SeqCst);
                }
                turns.lock().get_mut(&(client as u32)).unwrap().used += OPERATION_NS;
                turn.pass(&Control::default()).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        for (client, threads) in THREADS.into_iter().enumerate() {
            (0..threads).for_each(|_| drop(scope.spawn(move || compute(client))));
        }
    });
    assert_eq!(operations.map(AtomicUsize::into_inner), [ALL / 2; 2]);
    assert!(is_idle(&turns));
}

#[test]
fn whoever_waits_can_give_up() {
    let turns = Turns::new(1);
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    let late = Control { deadline_ns: Some(boottime_ns() + 3_000_000), ..Control::default() };
    assert_eq!(turns.take(2, Priority::High, &late).unwrap_err(), OpError::DeadlinePassed);
    let control = Control::default();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| turns.take(2, Priority::High, &control).unwrap_err());
        while turns.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        control.cancelled.set();
        assert_eq!(waits.join().unwrap(), OpError::Cancelled);
    });
    drop(turn);
    assert!(is_idle(&turns));
}

/// The time on the clock of deadlines when [`WHILE`] has passed.
fn in_a_while() -> u64 {
    boottime_ns() + WHILE.as_nanos() as u64
}

#[test]
fn who_waits_for_a_turn_sleeps_until_there_is_a_reason_to_wake() {
    let turns = Turns::new(1);
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    let late = Control { deadline_ns: Some(in_a_while()), ..Control::default() };
    let waited = sleeps_through(|| turns.take(2, Priority::Medium, &late));
    assert_eq!(waited.unwrap_err(), OpError::DeadlinePassed);
    let (granted, cancelled, died) = (Control::default(), Control::default(), Control::default());
    let take = |control: &Control| sleeps_through(|| turns.take(2, Priority::Medium, control).map(drop));
    std::thread::scope(|scope| {
        let waits = [&cancelled, &died].map(|control| scope.spawn(|| take(control)));
        std::thread::sleep(WHILE + WHILE / 10);
        cancelled.cancelled.set();
        died.orphaned.set();
        waits.into_iter().for_each(|waits| assert_eq!(waits.join().unwrap(), Err(OpError::Cancelled)));
        let waits = scope.spawn(|| take(&granted));
        std::thread::sleep(WHILE + WHILE / 10);
        drop(turn);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    assert!(is_idle(&turns));
}

#[test]
fn a_client_that_dies_waits_for_no_turn() {
    let lives = Lives::new(&Arc::new(Watcher::new().unwrap()));
    let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let life = lives.of(process.id() as i32);
    let turns = Turns::new(1);
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    let (told, heard) = channel();
    let waiting = turns.clone();
    std::thread::spawn(move || {
        let control = Control { orphaned: life.over(), ..Control::default() };
        told.send(waiting.take(2, Priority::High, &control).unwrap_err()).unwrap();
    });
    while turns.waiting.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(heard.try_recv().is_err());
    process.kill().unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(OpError::Cancelled));
    process.wait().unwrap();
    drop(turn);
    assert!(is_idle(&turns));
}

#[test]
fn an_operation_gives_way_while_it_lasts() {
    const SIZE: u32 = 1024;
    let matrix = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1, SIZE, SIZE]);
    let (scalar, bytes) = (TensorInfo::new(OperandType::BOOL, &[]), vec![0; 4 * (SIZE * SIZE) as usize]);
    let (matrices, flags) = ([&matrix; 2].map(|info| (info, &bytes[..])), [(&scalar, &[0u8][..]); 2]);
    let inputs: Vec<_> =
        matrices.iter().chain(&flags).map(|&(info, data)| Some(Arg { info, data: Some(data) })).collect();
    let (turns, cancelled) = (Turns::new(1), Arc::<Stop>::default());
    let turn = turns.take(1, Priority::High, &Control::default()).unwrap();
    let control = Control { cancelled: cancelled.clone(), turn: Some(Arc::new(turn)), ..Control::default() };
    let multiply = OperationType::BATCH_MATMUL.operation().unwrap();
    std::thread::scope(|scope| {
        let (inputs, outputs) = (&inputs, [matrix.clone()]);
        let run = scope.spawn(move || evaluate(multiply, inputs, &outputs, &control).map(|_| ()));
        // Granted amid the operation: it is not done when it hears that it should stop.
        let other = turns.take(2, Priority::Low, &Control::default()).unwrap();
        cancelled.set();
        drop(other);
        assert_eq!(run.join().unwrap(), Err(OpError::Cancelled));
    });
    assert!(is_idle(&turns));
}

#[test]
fn waiting_raises_priority() {
    let mut client = Client::default();
    for (priority, age) in [(Priority::Low, 3), (Priority::High, 0), (Priority::Medium, 1)] {
        let seat = Seat::new(1, priority);
        seat.began.store(-AGING_NS * age, Ordering::Relaxed);
        let call = Call::Wake(std::thread::current());
        client.waiting[priority as usize].insert(0, Waiting { seat, call });
    }
    let order = std::iter::from_fn(|| {
        let priority = client.first(0)?.priority;
        client.waiting[priority as usize].pop_first().map(|_| priority)
    });
    assert_eq!(order.collect::<Vec<_>>(), [Priority::Low, Priority::Medium, Priority::High]);
}

#[test]
fn computing_raises_no_priority() {
    const LONG: i64 = 10 * AGING_NS;
    let turns = Turns::new(1);
    let turn = turns.take(1, Priority::Low, &Control::default()).unwrap();
    assert_eq!(turn.seat.urgency(turns.now() + LONG).0, Priority::Low as i64, "it computes for long");
    let (begun, heard) = channel();
    let start = move |other: Turn| {
        begun.send(other).unwrap();
        Ok(())
    };
    let _in_line = turns.when_due(1, Priority::Medium, Box::new(start));
    // As if the one had computed for long, and the other had just come.
    turn.seat.began.fetch_sub(LONG, Ordering::Relaxed);
    turns.lock().get_mut(&1).unwrap().began -= LONG;
    std::thread::scope(|scope| {
        let passes = scope.spawn(|| turn.pass(&Control::default()));
        let other = heard.recv_timeout(PATIENCE).unwrap();
        let waiting = turn.seat.urgency(turns.now() + LONG).0;
        assert!(waiting >= Priority::Low as i64 + LONG / AGING_NS, "it waits for long");
        drop(other);
        passes.join().unwrap().unwrap();
    });
    drop(turn);
    assert!(is_idle(&turns));
}

#[test]
fn a_client_never_has_more_than_its_limit() {
    let (turns, (say, heard)) = (Turns::named("a turn", 2, 1), channel());
    let turn = turns.take(1, Priority::Medium, &Control::default()).unwrap();
    line_up(&turns, 1, Priority::High, &say, "beyond the limit");
    let other = turns.take(2, Priority::Low, &Control::default()).unwrap();
    drop(other);
    assert!(heard.try_recv().is_err(), "a core is free, but not for this client");
    drop(turn);
    assert_eq!(said(&heard, 1), ["beyond the limit"]);
    assert!(is_idle(&turns));
}

#[test]
fn who_has_no_turn_any_more_has_no_place_among_those_who_compute() {
    let (turns, control) = (Turns::new(2), Control::default());
    let take = |client| turns.take(client, Priority::Medium, &control).unwrap();
    for _ in 0..3 {
        let (turn, other) = (take(1), take(2));
        assert_eq!(turns.apart.take(), None, "both compute");
        // One is lent, and had again.
        turn.lend();
        let free = turns.apart.take().expect("one has lent its turn");
        turns.apart.give(free);
        turn.pass(&control).unwrap();
        drop((turn, other));
    }
    let places = [turns.apart.take(), turns.apart.take(), turns.apart.take()];
    assert_eq!(places.iter().flatten().count(), 2);
}

/// Has the calling thread run on these cores only.
fn stay_on(cores: &[usize]) {
    let mut only = nix::sched::CpuSet::new();
    cores.iter().for_each(|&core| only.set(core).unwrap());
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &only).unwrap();
}

#[test]
fn who_meets_another_on_a_core_goes_to_one_that_is_free() {
    let all = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cores: Vec<_> = (0..nix::sched::CpuSet::count()).filter(|&core| all.is_set(core).unwrap()).collect();
    let [one, other, ..] = cores[..] else {
        return eprintln!("skipped: the process has {} cores", cores.len());
    };
    let (turns, control) = (Turns::new(2), Control::default());
    let take = |client| turns.take(client, Priority::Medium, &control).unwrap();
    let is_on = |turn: &Turn| turns.apart.core_of(turn.seat.among.load(Ordering::Relaxed));
    let pass = |turn: &Turn| turn.pass(&control).unwrap();
    std::thread::scope(|scope| {
        let ((met, meets), (comes, came)) = (channel(), channel::<()>());
        let first = scope.spawn(move || {
            stay_on(&[one]);
            let turn = take(1);
            comes.send(()).unwrap();
            // The other has its turn, or there would be nobody to meet.
            meets.recv().unwrap();
            pass(&turn);
            assert_eq!(is_on(&turn), one);
            turn
        });
        stay_on(&[one]);
        came.recv().unwrap();
        let turn = take(2);
        met.send(()).unwrap();
        let first = first.join().unwrap();
        pass(&turn);
        assert_eq!(is_on(&turn), one, "they have not met for long");
        std::thread::sleep(Duration::from_millis(1));
        // Where it may go now; if the kernel moves it, it is there by itself.
        stay_on(&[one, other]);
        pass(&turn);
        assert_eq!((is_on(&first), is_on(&turn)), (one, other));
    });
}
