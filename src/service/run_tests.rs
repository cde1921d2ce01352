//! What an execution over very many arguments in device buffers holds while it claims and binds them.

use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{CompileOptions, Executable, Interface, Submission};
use crate::buffer::{BufferHandle, Direction, Plan, Role};
use crate::compiler::{Compiled, Unsaved};
use crate::ipc;
use crate::memory::Pool;
use crate::service::core::Core;
use crate::service::Driver;
use crate::tensor::OperandType;
use std::fs::File;
use std::os::fd::OwnedFd;

const MANY: usize = 4000;

/// A model of very many inputs, which notes whether a check has a turn as it is bound, and as it runs.
struct Notes {
    interface: Interface,
    core: Arc<Core>,
    turns: Mutex<Vec<usize>>,
}

impl Notes {
    fn note(&self) {
        self.turns.lock().unwrap().push(self.core.call_turns.load().running);
    }
}

impl Executable for Notes {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        assert!(arguments.request.inputs.iter().flatten().all(|input| input.length == 4), "not claimed");
        self.note();
        Ok(self)
    }
}

impl Binding for Notes {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, _: &Control) -> Result<Submission, BackendError> {
        self.note();
        Ok(Submission::Done(Outcome { outputs: Vec::new(), on_device: Duration::ZERO }))
    }
}

/// An execution of so many inputs in one device buffer, on a model that takes notes.
fn execution(driver: &Driver, count: usize) -> (Execution, Arc<Notes>, BufferHandle) {
    let (core, client) = (driver.core(), ipc::calling_uid());
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let inputs = vec![info.clone(); count];
    let interface = Interface { inputs, outputs: Vec::new(), may_loop: false };
    let notes = Arc::new(Notes { interface, core: core.clone(), turns: Mutex::default() });
    let (executable, options) = (notes.clone(), CompileOptions::default());
    let compiled = Compiled { executable, options, unsaved: Unsaved::new(client, None, None) };
    let place = core.quotas.model(client).unwrap();
    let prepared = Arc::new(Prepared::new(core.clone(), compiled, core.lives.of(0), place, 0));
    let roles = (0..count).map(|index| Role { model: prepared.id, direction: Direction::Input, index });
    let plan = Plan { info, roles: roles.collect() };
    let buffer = core.buffers.allocate(buffer::caller(), plan, Arc::new(|_| Ok(None))).unwrap();
    let memfd = nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = File::from(memfd);
    file.set_len(4).unwrap();
    let fd = Some(ipc::ParcelFileDescriptor::new(file));
    let value = aidl::Memory::Ashmem(aidl::Ashmem { fd, size: 4 });
    buffer.copy_from(&Pool::new(&value).unwrap(), &[1], &NeverInterrupted).unwrap();
    let argument = aidl::RequestArgument {
        location: aidl::DataLocation { poolIndex: 0, ..Default::default() },
        dimensions: vec![1],
        ..Default::default()
    };
    let request = aidl::Request {
        inputs: vec![argument; count],
        outputs: Vec::new(),
        pools: vec![aidl::RequestMemoryPool::Token(buffer.token())],
    };
    let terms = Terms::new(false, -1).unwrap();
    let purpose = Purpose { terms, fenced: true, reused: false };
    let execution = Execution::new(&prepared, &request, purpose, &|_, _| unreachable!("all are buffers"));
    (execution.unwrap(), notes, buffer)
}

#[test]
fn very_many_arguments_in_device_buffers_are_claimed_and_bound_by_a_turn_and_counted_for_a_run() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let core = driver.core();
    for (count, turns) in [(1, 0), (MANY, 1)] {
        let _account = core.budget.on_account_of(ipc::calling_uid());
        let (execution, notes, _buffer) = execution(&driver, count);
        assert!(core.budget.private().held() >= (WITH_RUNS * execution.described_by) as u64);
        let control = execution.control(None, Arc::default());
        execution.run(&control, Instant::now()).unwrap();
        drop(execution.claim(&control).unwrap());
        assert_eq!(*notes.turns.lock().unwrap(), [turns, 0, turns], "{count}");
        assert_eq!(core.call_turns.load().running, 0);
    }
}

#[test]
fn device_buffers_of_very_many_arguments_are_looked_at_within_a_place() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let [few, many] = [1, MANY].map(|count| execution(&driver, count));
    let place = || driver.core().quotas.execution(ipc::calling_uid()).ok();
    let places: Vec<_> = std::iter::from_fn(place).collect();
    assert!(few.0.check_buffers().is_ok());
    assert!(matches!(many.0.check_buffers(), Err(ServiceError::Refused(_))));
    drop(places);
    assert!(many.0.check_buffers().is_ok());
}
