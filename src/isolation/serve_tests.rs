//! What the backend's process reads by turns, lets go of, and cannot say.

use super::super::model::pack;
use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Interface, Request, Submission};
use crate::model::{Lifetime, Model, Operand, Subgraph};
use crate::ops::NeverInterrupted;
use crate::tensor::{OperandType, TensorInfo};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
use std::sync::mpsc::{channel, Sender};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of a process whose service is this test.
fn server(turns: &CallTurns) -> (Server, OwnedFd) {
    let (socket, service) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let (backend, budget) = (Arc::new(CpuBackend::new(1).unwrap()), Budget::new(1 << 30));
    let (reading, readers, things) = (Mutex::new(()), AtomicUsize::new(1), Mutex::default());
    let (turns, releases) = (turns.clone(), Errands::new("nnhal-release"));
    (Server { backend, budget, turns, socket, releases, reading, readers, things }, service)
}

/// What the service hears next.
fn hears(service: &OwnedFd) -> Answer {
    let (reply, _) = receive(service.as_fd(), true).unwrap().unwrap();
    from_bytes::<Reply>(&reply).unwrap().answer
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
        let request = Request { inputs: vec![None; arguments], outputs: Vec::new() };
        let (keep, memories, reused) = (Some(7), Vec::new(), true);
        let what = Bound::New { keep, executable: 1000, request, memories, reused };
        Order::Run { call, what: Blob(to_bytes(&what)), terms: Terms::of(&Control::default()) }
    };
    let long = server.begin(order(1, MANY_BYTES + 1), Vec::new()).expect("it may take long");
    std::thread::scope(|scope| {
        let server = &server;
        // The reader goes on, and does the next.
        let short = server.begin(order(2, 1), Vec::new()).expect("it may take long");
        short(server);
        assert!(matches!(hears(&service), Answer::Unbound(BackendError::Failed(_))), "of no model");
        let cancel = scope.spawn(move || {
            let began = Instant::now();
            while server.turns.load().waiting == 0 {
                assert!(began.elapsed() < PATIENCE, "it takes no turn");
                std::thread::yield_now();
            }
            assert!(server.begin(Order::Cancel { call: 1 }, Vec::new()).is_none());
        });
        long(server);
        cancel.join().unwrap();
        assert!(matches!(hears(&service), Answer::Unbound(BackendError::Cancelled)));
    });
    drop(others);
}

#[test]
fn a_model_is_on_the_clients_account_for_as_long_as_it_is_there() {
    const OPERANDS: usize = 20_000;
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let operand = Operand { info, lifetime: Lifetime::Temporary, extension: None };
    let operands = vec![operand; OPERANDS];
    let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
    let model = Model { main, referenced: vec![], relaxed: false };
    let bytes = pack(&model, Ok, &NeverInterrupted).unwrap().0.bytes.0;
    let least = (OPERANDS * size_of::<Operand>()) as u64;
    for (share, fits) in [(least / 2, false), (2 * least, true)] {
        let budget = Budget::new(2 * share);
        let control = Control { client: 1, budget: Some(budget.clone()), ..Control::default() };
        let (server, _account) = (server(&CallTurns::new(1)).0, control.on_account());
        let unpacked = server.unpacked(Blob(bytes.clone()), &[], &control);
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
    server.things().executables.insert(1, Arc::new(Panics(interface)));
    let request = Request { inputs: Vec::new(), outputs: Vec::new() };
    let what = Bound::New { keep: Some(7), executable: 1, request, memories: Vec::new(), reused: true };
    let terms = Terms::of(&Control::default());
    let order = Order::Run { call: 1, what: Blob(to_bytes(&what)), terms };
    server.begin(order, Vec::new()).expect("it may take long")(&server);
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
fn what_may_be_large_is_let_go_of_beside_the_reader() {
    let (server, _service) = server(&CallTurns::new(1));
    let (tell, told) = channel();
    server.things().bindings.insert(1, Arc::new(LetGo(tell)));
    assert!(server.begin(Order::Release { number: 1 }, Vec::new()).is_none());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Some("nnhal-release".into())));
    for (number, len, beside) in [(2, SMALL, false), (3, SMALL + 1, true)] {
        let mapping = Arc::new(Mapping::anonymous(len).unwrap());
        let (weak, (hold, held)) = (Arc::downgrade(&mapping), channel::<()>());
        server.releases.run(0, move || assert!(held.recv().is_err(), "it is let go of by being dropped"));
        server.things().memories.insert(number, Ok(Memory::Mapped(mapping)));
        assert!(server.begin(Order::Release { number }, Vec::new()).is_none());
        assert_eq!(weak.upgrade().is_some(), beside, "{len}");
        drop(hold);
        let began = Instant::now();
        while weak.upgrade().is_some() {
            assert!(began.elapsed() < PATIENCE, "it is kept");
            std::thread::yield_now();
        }
    }
}
