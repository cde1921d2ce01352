//! What the backend's process reads by turns, lets go of, and cannot say.

use super::super::model::pack;
use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Binding, Completer, Executable, Interface, Pending, Request};
use crate::memory::{receive, send_with_body, Counted};
use crate::model::{Lifetime, Model, Operand, Subgraph};
use crate::ops::NeverInterrupted;
use crate::tensor::{OperandType, TensorInfo};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
use std::sync::mpsc::{channel, Sender};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of a process whose service is this test.
fn server(turns: &CallTurns) -> (Arc<Server>, OwnedFd) {
    let (socket, service) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let (backend, budget) = (Arc::new(CpuBackend::new(1).unwrap()), Budget::new(1 << 30));
    (Server::new(backend, budget, turns.clone(), socket).unwrap(), service)
}

/// What the service hears next.
fn hears(service: &OwnedFd) -> Answer {
    let (reply, _) = receive(service.as_fd(), true).unwrap().unwrap();
    from_bytes::<Reply>(&reply).unwrap().answer
}

/// What the reader leaves to be done of an order that the service gives.
fn ordered(server: &Arc<Server>, service: &OwnedFd, order: &Order, body: &[u8]) -> Option<Job> {
    send_with_body(service.as_fd(), &to_bytes(order), body, &[]).unwrap();
    let (message, files) = receive_unread(server.socket.as_fd(), true).unwrap().unwrap();
    let (order, body) = Body::of(message).expect("it makes sense");
    server.begin(order, body, files)
}

/// To execute nothing by executable 1000, over so many arguments.
fn run(call: u64, arguments: usize, control: &Control) -> (Order, Vec<u8>) {
    let request = Request { inputs: vec![None; arguments], outputs: Vec::new() }.into();
    let (keep, executable, memories, reused) = (Some(7), 1000, Vec::new(), true);
    let what = Bound::New { keep, executable, request, memories, reused };
    (Order::Run { call, terms: Terms::of(control) }, to_bytes(&what))
}

const MANY: usize = 100_000;

/// The same of what others say, on threads of theirs.
fn hears_in_time(service: &OwnedFd) -> Answer {
    let mut comes = [PollFd::new(service.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut comes, 20_000u16), Ok(1), "nothing comes");
    hears(service)
}

#[test]
fn what_is_long_is_read_by_a_turn_while_others_are_read_and_stops_when_it_is_cancelled() {
    let turns = CallTurns::new(1);
    let others: Vec<_> = [1, 2]
        .map(|client| turns.check(&Control { client, ..Control::default() }))
        .into_iter()
        .inspect(|other| other.yield_point().unwrap())
        .collect();
    let (server, service) = server(&turns);
    let order = |call, arguments| {
        let (order, what) = run(call, arguments, &Control::default());
        ordered(&server, &service, &order, &what).expect("it may take long")
    };
    let long = order(1, MANY);
    std::thread::scope(|scope| {
        let server = &server;
        // The reader goes on, and does the next.
        order(2, 1)(server);
        assert!(matches!(hears(&service), Answer::Unbound(BackendError::Failed(_))), "of no model");
        let cancel = scope.spawn(move || {
            let began = Instant::now();
            while server.turns.load().waiting == 0 {
                assert!(began.elapsed() < PATIENCE, "it takes no turn");
                std::thread::yield_now();
            }
            assert!(server.begin(Order::Cancel { call: 1 }, Body::Here(Vec::new()), Vec::new()).is_none());
        });
        long(server);
        cancel.join().unwrap();
        assert!(matches!(hears(&service), Answer::Unbound(BackendError::Cancelled)));
    });
    drop(others);
}

/// Does nothing over as many arguments as are wanted.
struct Nothing(Interface);

impl Nothing {
    fn new() -> Arc<Self> {
        Arc::new(Nothing(Interface { inputs: Vec::new(), outputs: Vec::new(), may_loop: false }))
    }
}

impl Executable for Nothing {
    fn interface(&self) -> &Interface {
        &self.0
    }

    fn bind(self: Arc<Self>, _: Arguments) -> std::result::Result<Arc<dyn Binding>, BackendError> {
        Ok(self)
    }
}

impl Binding for Nothing {
    fn submit(
        self: Arc<Self>,
        _: Vec<OwnedFd>,
        _: &Control,
    ) -> std::result::Result<Submission, BackendError> {
        Ok(Submission::Done(Outcome { outputs: Vec::new(), on_device: Duration::ZERO }))
    }
}

#[test]
fn what_is_to_be_executed_is_on_the_clients_account_as_long_as_it_is_bound() {
    let (server, service) = server(&CallTurns::new(1));
    server.things().executables.insert(1000, (1, Nothing::new()));
    let held = || server.budget.private().held_by(1);
    let recorder = Some(Arc::new(Recorder::new(1)));
    let control = Control { client: 1, recorder, ..Control::default() };
    let (order, what) = run(1, MANY, &control);
    let job = ordered(&server, &service, &order, &what).expect("it may take long");
    assert_eq!(held(), 0, "the reader has counted something");
    {
        let _account = server.budget.on_account_of(1);
        let most = server.budget.private().per_client() as usize;
        let _all = Counted::take(most - what.len() / 2).expect("there is nothing else");
        job(&server);
        assert!(matches!(hears(&service), Answer::Unbound(BackendError::OutOfMemory(_))));
    }
    ordered(&server, &service, &order, &what).expect("it may take long")(&server);
    assert!(matches!(hears(&service), Answer::Ran(_, Some(_))));
    let bound = held();
    let described = Request { inputs: vec![None; MANY], outputs: Vec::new() }.footprint() as u64;
    assert!((described..2 * described).contains(&bound), "{bound} bytes for {described}");
    assert!(ordered(&server, &service, &Order::Release { number: 7 }, &[]).is_none());
    let began = Instant::now();
    while held() > 0 {
        assert!(began.elapsed() < PATIENCE, "it is kept");
        std::thread::yield_now();
    }
}

/// Tells who tries it of each execution that is handed over, and of each that is to be stopped.
struct HandedOver(Interface, Sender<Completer>, Sender<()>);

impl Executable for HandedOver {
    fn interface(&self) -> &Interface {
        &self.0
    }

    fn bind(self: Arc<Self>, _: Arguments) -> std::result::Result<Arc<dyn Binding>, BackendError> {
        Ok(self)
    }
}

impl Binding for HandedOver {
    fn submit(
        self: Arc<Self>,
        _: Vec<OwnedFd>,
        _: &Control,
    ) -> std::result::Result<Submission, BackendError> {
        let (completer, pending) = Pending::promised();
        self.1.send(completer).unwrap();
        let stops = self.2.clone();
        Ok(Submission::Pending(pending.on_cancel(move || stops.send(()).unwrap())))
    }
}

#[test]
fn a_client_has_so_many_threads_for_executions_and_the_backend_has_what_comes_beyond_that() {
    let (server, service) = server(&CallTurns::new(1));
    let ((handed, over), (stops, stopped)) = (channel(), channel());
    let model = HandedOver(Nothing::new().0.clone(), handed, stops);
    server.things().executables.insert(1000, (1, Arc::new(model)));
    let mut call = 0;
    let mut run = |client, arguments| {
        call += 1;
        let (order, what) = run(call, arguments, &Control { client, ..Control::default() });
        ordered(&server, &service, &order, &what)
    };
    let most = limits::RUNS.total() / limits::RUNS.parts;
    let threads: Vec<_> = std::iter::from_fn(|| run(1, 1)).collect();
    assert_eq!(threads.len() as u64, most);
    assert!(run(2, 1).is_some(), "another client has its own");
    let done = || Ok(Outcome { outputs: Vec::new(), on_device: Duration::ZERO });
    over.recv_timeout(PATIENCE).unwrap().complete(done());
    assert!(matches!(hears_in_time(&service), Answer::Ran(..)));
    // One that is long to read is read on a thread of its client, too.
    assert!(run(1, MANY).is_none());
    let completer = over.recv_timeout(PATIENCE).unwrap();
    let call = most + 3;
    assert!(server.begin(Order::Cancel { call }, Body::Here(Vec::new()), Vec::new()).is_none());
    stopped.recv_timeout(PATIENCE).unwrap();
    completer.complete(Err(BackendError::Cancelled));
    assert!(matches!(hears_in_time(&service), Answer::Failed(BackendError::Cancelled)));
    drop(threads);
    assert!(run(1, 1).is_some());
}

#[test]
fn a_model_is_on_the_clients_account_for_as_long_as_it_is_there() {
    const OPERANDS: usize = 20_000;
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let operand = Operand { info, lifetime: Lifetime::Temporary, extension: None };
    let operands = vec![operand; OPERANDS];
    let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
    let model = Model { main, referenced: vec![], relaxed: false };
    let bytes = pack(&model, Ok, &NeverInterrupted).unwrap().0.bytes;
    let least = (OPERANDS * size_of::<Operand>()) as u64;
    for (share, fits) in [(least / 2, false), (2 * least, true)] {
        let budget = Budget::new(2 * share);
        let control = Control { client: 1, budget: Some(budget.clone()), ..Control::default() };
        let (server, _account) = (server(&CallTurns::new(1)).0, control.on_account());
        let unpacked = server.unpacked(Body::Here(bytes.clone()), &[], &control);
        assert_eq!(budget.private().held_by(1) >= least, fits);
        match unpacked {
            Ok(unpacked) => assert!(fits && unpacked.main.operands.len() == OPERANDS),
            Err(why) => assert!(!fits && matches!(why, BackendError::Memory { .. }), "{why}"),
        }
        assert_eq!(budget.private().held(), 0);
    }
}

/// Panics as it is bound.
struct Panics(Interface);

impl Executable for Panics {
    fn interface(&self) -> &Interface {
        &self.0
    }

    fn bind(self: Arc<Self>, _: Arguments) -> std::result::Result<Arc<dyn Binding>, BackendError> {
        panic!("as it should")
    }
}

#[test]
fn the_service_hears_that_what_panicked_as_it_was_bound_is_not_bound() {
    let (server, service) = server(&CallTurns::new(1));
    let interface = Interface { inputs: Vec::new(), outputs: Vec::new(), may_loop: false };
    server.things().executables.insert(1000, (1, Arc::new(Panics(interface))));
    let (order, what) = run(1, 0, &Control::default());
    ordered(&server, &service, &order, &what).expect("it may take long")(&server);
    let answer = hears(&service);
    assert!(matches!(&answer, Answer::Unbound(BackendError::Failed(why)) if why.contains("panicked")));
    assert!(server.things().bindings.is_empty());
}

#[test]
fn an_answer_that_is_too_long_is_an_error_of_its_call_and_no_end_of_the_process() {
    let (server, service) = server(&CallTurns::new(1));
    let why = "x".repeat(LONGEST_REPLY);
    server.say(1, Answer::Support(vec![Err(why)]), &[]);
    assert!(matches!(hears(&service), Answer::Failed(BackendError::Failed(why)) if why.contains("too long")));
}

/// What tells on which thread it is let go of.
struct LetGo(Sender<Option<String>>);

impl Drop for LetGo {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().name().map(String::from));
    }
}

impl Binding for LetGo {
    fn submit(
        self: Arc<Self>,
        _: Vec<OwnedFd>,
        _: &Control,
    ) -> std::result::Result<Submission, BackendError> {
        unreachable!("it is only let go of")
    }
}

#[test]
fn what_may_be_large_is_let_go_of_beside_the_reader_and_in_its_clients_line() {
    let (server, _service) = server(&CallTurns::new(1));
    let release = |number| {
        assert!(server.begin(Order::Release { number }, Body::Here(Vec::new()), Vec::new()).is_none())
    };
    let (tell, told) = channel();
    let (hold, held) = channel::<()>();
    server.releases.run(1, move || assert!(held.recv().is_err(), "it is let go of by being dropped"));
    for (number, client) in [(1, 1), (2, 2)] {
        let (binding, _counted) = (Arc::new(LetGo(tell.clone())), Counted::take(0).unwrap());
        server.things().bindings.insert(number, Arc::new(Kept { client, binding, _counted }));
        release(number);
    }
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Some("nnhal-release".into())));
    assert!(told.try_recv().is_err(), "the first client's waits");
    drop(hold);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Some("nnhal-release".into())));
    for (number, len) in [(3, 1), (4, 1 << 20)] {
        let mapping = Arc::new(Mapping::anonymous(len).unwrap());
        let (weak, (hold, held)) = (Arc::downgrade(&mapping), channel::<()>());
        server.releases.run(3, move || assert!(held.recv().is_err(), "it is let go of by being dropped"));
        server.things().memories.insert(number, (3, Ok(Memory::Mapped(mapping))));
        release(number);
        assert!(weak.upgrade().is_some(), "{len}");
        drop(hold);
        let began = Instant::now();
        while weak.upgrade().is_some() {
            assert!(began.elapsed() < PATIENCE, "it is kept");
            std::thread::yield_now();
        }
    }
}
