//! What executions lend, copy and wait for.

use super::*;
use crate::backend::{submission_threads, Interface};
use crate::isolation::codec::{from_bytes, from_start};
use crate::isolation::{life, message::NOTHING, supervisor};
use crate::memory::{receive, send, Mapping};
use crate::scheduler::{Starter, Watcher};
use crate::tensor::{Dims, OperandType};
use std::os::fd::AsFd;
use std::sync::mpsc::channel;

const BYTES: usize = 16;

fn shares() -> Shares {
    let (lent, copied) = (limits::LENT.quota(), limits::COPIED.quota());
    let (waiting, turns) = (Arc::default(), CallTurns::new(1));
    let starter = Starter::new().unwrap();
    let (submitted, replies) = (submission_threads(), Errands::new("nnhal-reply", &starter));
    Shares { lent, copied, waiting, turns, submitted, replies }
}

/// A model in a process that does nothing, and what that would read from.
fn made(interface: Interface) -> (Arc<Made>, Arc<Instance>, OwnedFd) {
    let (life, theirs) = life::tests::idle();
    let instance = Arc::new(Instance { life: Arc::new(life), number: new_number() });
    let made =
        Made::new(&supervisor::tests::idle(), (None, Counted::take(0).unwrap()), interface, instance.clone());
    (Arc::new(made), instance, theirs)
}

/// What is in the memory that inputs are copied to.
fn lent(bound: &Bound) -> Vec<u8> {
    let copies = bound.lending.as_ref().and_then(|lending| lending.copies.as_ref()).unwrap();
    copies.into[0].1.to_private().unwrap().to_vec()
}

/// Arguments of a model of one tensor of bytes in and out, and its input's memory.
fn arguments(reused: bool) -> (Interface, Arguments, Arc<Mapping>) {
    let info = TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[BYTES as u32]);
    let interface = Interface { inputs: vec![info.clone()], outputs: vec![info], may_loop: false };
    let [input, output] = [(); 2].map(|()| Arc::new(Mapping::anonymous(BYTES).unwrap()));
    let argument = |pool| {
        let (offset, length, dims) = (0, BYTES, Dims::from_slice(&[BYTES as u32]));
        Some(Argument { pool, offset, length, dims })
    };
    let request = Request { inputs: vec![argument(0)], outputs: vec![argument(1)] };
    let pools = [&input, &output].map(|mapping| Some(Memory::Mapped(mapping.clone()))).into();
    (interface, Arguments { request, pools, reused }, input)
}

/// Runs `bound` and gives that up once the process was told of it.
fn run_and_give_up(bound: &Arc<Bound>, theirs: &OwnedFd) {
    let (control, bound) = (Control::default(), bound.clone());
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| bound.run(&control));
        while !matches!(receive(theirs.as_fd(), false), Ok(Some((order, _)))
            if matches!(from_start(&order), Some((Order::Run { .. }, _))))
        {}
        control.cancelled.set();
        assert!(matches!(runs.join().unwrap(), Err(BackendError::Cancelled)));
    });
}

#[test]
fn what_is_copied_for_one_run_is_counted_until_the_process_is_done_with_it() {
    let (interface, arguments, _) = arguments(false);
    let (made, instance, theirs) = made(interface);
    let shares = shares();
    let bound = Arc::new(Bound::new(&made, arguments, &shares).unwrap());
    run_and_give_up(&bound, &theirs);
    assert_eq!(shares.copied.held(), 1, "the process may write to it still");
    instance.life.end("the test is over");
    assert_eq!(shares.copied.held(), 0);
}

#[test]
fn inputs_are_copied_by_who_has_claimed_what_is_lent_and_by_nobody_else() {
    let (interface, arguments, input) = arguments(true);
    let (made, instance, theirs) = made(interface);
    let fill = |byte| ClientSlice::whole(input.clone()).write(&[byte; BYTES]).unwrap();
    let bound = Arc::new(Bound::new(&made, arguments, &shares()).unwrap());
    fill(1);
    run_and_give_up(&bound, &theirs);
    // The process has not answered: it may be at the memory still.
    assert_eq!(lent(&bound), [1; BYTES]);
    fill(2);
    assert!(matches!(bound.clone().run(&Control::default()), Err(BackendError::DeviceBusy(_))));
    assert_eq!(lent(&bound), [1; BYTES], "what an execution has is another's");
    instance.life.end("the test is over");
    drop(bound.claim().expect("it is done"));
}

/// A binding without arguments, all of which is lent.
fn lends_all(made: &Arc<Made>, shares: &Shares) -> Arc<Bound> {
    let request = Request { inputs: Vec::new(), outputs: Vec::new() };
    let arguments = Arguments { request, pools: Vec::new(), reused: true };
    Arc::new(Bound::new(made, arguments, shares).unwrap())
}

fn pending(bound: &Arc<Bound>) -> Result<Pending, BackendError> {
    bound.clone().submit(Vec::new(), &Control::default()).map(|submitted| match submitted {
        Submission::Pending(pending) => pending,
        Submission::Done(_) => unreachable!("nobody did anything"),
    })
}

fn nothing() -> Interface {
    Interface { inputs: Vec::new(), outputs: Vec::new(), may_loop: false }
}

#[test]
fn who_submits_does_not_wait_for_a_process_that_does_not_read() {
    let (made, instance, _theirs) = made(nothing());
    while instance.life.tell(&Order::Ping { call: 1 }, NOTHING, NOT_AT_ALL).is_ok() {}
    let bound = lends_all(&made, &shares());
    let submitted = pending(&bound).expect("another thread waits");
    let outcome = submitted.wait(&Control::default());
    assert!(matches!(outcome, Err(BackendError::DeviceBusy(_))), "{outcome:?}");
    instance.life.end("the test is over");
}

#[test]
fn so_many_of_a_client_wait_for_the_process_and_no_more() {
    let (made, instance, _theirs) = made(nothing());
    instance.life.end("as the test wants it");
    let shares = Shares { copied: Quota::new(8, 2), ..shares() };
    let bound = lends_all(&made, &shares);
    let others = shares.copied.take(Control::default().client, 2).unwrap();
    assert!(matches!(pending(&bound), Err(BackendError::DeviceBusy(_))));
    drop(others);
    // No other process comes.
    let outcome = pending(&bound).expect("submitted").wait(&Control::default());
    assert!(matches!(outcome, Err(BackendError::DeviceLost(_))), "{outcome:?}");
    assert_eq!(shares.copied.held(), 0);
}

#[test]
fn what_describes_arguments_is_there_once_and_what_is_written_down_anew_is_counted() {
    let (interface, arguments, _) = arguments(true);
    let (made, instance, _theirs) = made(interface);
    let budget = crate::memory::Budget::new(64 << 20);
    let _account = budget.on_account_of(1);
    let described = arguments.request.footprint() as u64;
    let copies = Bound::new(&made, arguments, &shares()).unwrap();
    let lending = copies.lending.as_ref().expect("it is kept");
    assert!(Arc::ptr_eq(&copies.request, &lending.request) && Arc::ptr_eq(&copies.pools, &lending.memories));
    let places = 2 * ALIGNMENT as u64;
    assert!(budget.private().held_by(1) > places + described, "{} bytes", budget.private().held_by(1));
    let lends = lends_all(&made, &shares());
    let lending = lends.lending.as_ref().expect("all of it is lent");
    assert!(Arc::ptr_eq(&lends.request, &lending.request) && Arc::ptr_eq(&lends.pools, &lending.memories));
    instance.life.end("the test is over");
}

#[test]
fn what_is_written_down_counts_once_until_the_process_answers() {
    // So many that it goes over in a file.
    const MANY: usize = 10_000;
    let (made, instance, theirs) = made(nothing());
    let budget = crate::memory::Budget::new(64 << 20);
    let control = Control { client: 1, budget: Some(budget.clone()), ..Control::default() };
    let argument = Argument { pool: 0, offset: 0, length: 1, dims: Dims::from_slice(&[1]) };
    let request = Request { inputs: vec![Some(argument); MANY], outputs: Vec::new() };
    let arguments = Arguments { request, pools: vec![None], reused: true };
    let bound = Arc::new(Bound::new(&made, arguments, &shares()).unwrap());
    let lending = bound.lending.clone().expect("all of it is lent");
    let claimed = bound.claim().unwrap();
    let held = || budget.private().held_by(1);
    let before = held();
    let pending = bound.start(claimed, &lending, &instance, &control, FULL).unwrap();
    let (order, _) = receive(theirs.as_fd(), false).unwrap().expect("the service is there");
    let (_, written) = from_start::<Order>(&order).expect("an order");
    assert!(written.len() > FEW_BYTES);
    assert_eq!(held() - before, written.len() as u64);
    instance.life.end("the test is over");
    drop(pending);
    assert_eq!(held(), before);
}

/// Which numbers the process is told to let go of, until that of `last` comes.
fn released(theirs: &OwnedFd, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let (order, _) = receive(theirs.as_fd(), false).unwrap().expect("the service is there");
        match from_bytes(&order) {
            Some(Order::Release { number }) => numbers.push(number),
            _ => panic!("it is told something else"),
        }
    }
    numbers
}

#[test]
fn what_failed_as_it_ran_stays_bound_and_what_a_process_may_have_kept_of_what_was_not_bound_is_let_go_of() {
    let (made, first, _theirs) = made(nothing());
    let (life, theirs) = life::tests::idle();
    let second = Instance { life: Arc::new(life), number: new_number() };
    let bound = lends_all(&made, &shares());
    let ends = |instance: &Instance, keep, answer: Result<Answer, BackendError>| {
        let succeeds = matches!(answer, Ok(Answer::Ran(..)));
        assert_eq!(bound.outcome(answer, instance, keep).0.is_ok(), succeeds);
    };
    let done = || Ok(Answer::Ran(Outcome { outputs: Vec::new(), on_device: Duration::ZERO }, None));
    let failed = || Err(BackendError::Cancelled);
    let unbound = || Ok(Answer::Unbound(BackendError::Cancelled));
    let lost = || Err(BackendError::DeviceLost("as the test wants it".into()));
    let [old, new, newer, newest, mark] = [(); 5].map(|()| new_number());
    ends(&first, Some(old), done());
    first.life.end("as the test wants it");
    // The number of the process before is unknown to this one.
    ends(&second, Some(new), unbound());
    assert_eq!(bound.kept_by(&second.life), None);
    ends(&second, Some(newer), failed());
    assert_eq!(bound.kept_by(&second.life), Some(newer), "it would all be sent again");
    ends(&second, None, failed());
    assert_eq!(bound.kept_by(&second.life), Some(newer));
    ends(&second, None, unbound());
    assert_eq!(bound.kept_by(&second.life), None);
    ends(&second, Some(newest), lost());
    second.life.release(mark);
    assert_eq!(released(&theirs, mark), [new, newer, newest, mark]);
    assert!(lock(&bound.kept).is_none());
    second.life.end("the test is over");
}

#[test]
fn the_end_of_what_was_submitted_is_on_a_thread_of_its_client() {
    let (made, instance, theirs) = made(nothing());
    let bound = lends_all(&made, &shares());
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("reader".into());
        reader.spawn_scoped(scope, || instance.life.attend()).unwrap();
        for text in [10, 1 << 20] {
            let tell = tell.clone();
            let ended = move |_| tell.send(std::thread::current().name().map(String::from)).unwrap();
            pending(&bound).expect("submitted").then(&Watcher::new().unwrap(), Box::new(ended));
            let call = loop {
                let (order, _) = receive(theirs.as_fd(), false).unwrap().expect("the service is there");
                match from_start(&order) {
                    Some((Order::Run { call, .. }, _)) => break call,
                    Some((Order::Ping { .. }, _)) => {} // it is looked after meanwhile
                    _ => panic!("it is told something else"),
                }
            };
            let answer = Answer::Failed(BackendError::Failed("x".repeat(text)));
            send(theirs.as_fd(), &to_bytes(&message::Reply { call, answer }), &[]).unwrap();
            let name = told.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(name.as_deref(), Some("nnhal-reply"));
        }
        drop(theirs); // which ends the reader
    });
    instance.life.end("the test is over");
}
