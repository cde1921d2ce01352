//! What a device refuses before it compiles, and who counts while it is asked.

use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::Backend;
use crate::model::{Constant, Lifetime};
use crate::ops::Interrupt;
use crate::scheduler::limits;
use crate::service::Driver;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What is small is copied anyway.
const LENGTH: i64 = 1 << 20;

/// FLOOR of constants that lie in a pool.
fn model() -> Model {
    let fd = nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = std::fs::File::from(fd);
    file.set_len(LENGTH as u64).unwrap();
    let operand = |lifetime| Operand {
        r#type: OperandType::TENSOR_FLOAT32,
        dimensions: vec![LENGTH as i32 / 4],
        lifetime,
        ..Default::default()
    };
    let mut constant = operand(OperandLifeTime::CONSTANT_POOL);
    constant.location.length = LENGTH;
    let operation = Operation { r#type: OperationType::FLOOR, inputs: vec![0], outputs: vec![1] };
    let main = Subgraph {
        operands: vec![constant, operand(OperandLifeTime::SUBGRAPH_OUTPUT)],
        operations: vec![operation],
        inputIndexes: Vec::new(),
        outputIndexes: vec![1],
    };
    let pool = Ashmem { fd: Some(ParcelFileDescriptor::new(file)), size: LENGTH };
    Model { main, pools: vec![Memory::Ashmem(pool)], ..Default::default() }
}

#[test]
fn constants_are_copied_where_the_client_has_too_many_memories_mapped() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let core = driver.core();
    let are_private = || {
        let (preference, priority) = (ExecutionPreference::FAST_SINGLE_ANSWER, Priority::MEDIUM);
        let compilation =
            Compilation::new(core, &model(), preference, priority, -1, &Control::default()).unwrap();
        let lifetime = &compilation.model.main.operands[0].lifetime;
        let is_private = matches!(lifetime, Lifetime::Constant(Constant::Private(_)));
        assert_eq!(compilation.mappings.is_none(), is_private);
        is_private
    };
    assert!(!are_private());
    let all = limits::MAPPINGS.quota().per_client() as usize;
    let held = core.quotas.mappings(ipc::calling_uid(), all).unwrap();
    assert!(are_private());
    drop(held);
    assert!(!are_private());
}

/// How many models are being checked.
fn checked(core: &Core) -> u64 {
    let quotas = core.quotas.all();
    quotas.iter().find(|(what, _)| *what == limits::CHECKS.what).unwrap().1.held()
}

/// Each turn to check arguments, all of other clients.
fn all_turns(core: &Core) -> Vec<Control> {
    let turns = (std::thread::available_parallelism().unwrap().get() / 2).max(2) as u32;
    let check = |client| core.call_turns.check(&Control { client, ..Control::default() });
    (1..=turns).map(check).inspect(|other| other.yield_point().unwrap()).collect()
}

/// Returns once a call waits for such a turn.
fn wait_for_a_wait(core: &Core) {
    let began = Instant::now();
    while core.call_turns.load().waiting == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it needs no turn");
        std::thread::yield_now();
    }
}

#[test]
fn who_asks_how_the_driver_is_takes_a_turn() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let core = driver.core();
    let (diagnostics, others) = (crate::service::diagnostics::new_binder(core.clone()), all_turns(core));
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| diagnostics.status().unwrap());
        wait_for_a_wait(core);
        drop(others);
        assert!(asks.join().unwrap().starts_with('{'));
    });
}

#[test]
fn who_waits_for_a_turn_to_copy_constants_counts_as_checking_a_model() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let core = driver.core();
    let all = limits::MAPPINGS.quota().per_client() as usize;
    let _mapped = core.quotas.mappings(ipc::calling_uid(), all).unwrap();
    let others = all_turns(core);
    std::thread::scope(|scope| {
        let (preference, priority) = (ExecutionPreference::FAST_SINGLE_ANSWER, Priority::MEDIUM);
        let copies = scope.spawn(move || {
            Compilation::new(core, &model(), preference, priority, -1, &Control::default()).map(drop)
        });
        wait_for_a_wait(core);
        assert_eq!(checked(core), 1);
        drop(others);
        copies.join().unwrap().unwrap();
    });
    assert_eq!(checked(core), 0);
}

/// A backend that looks how many models are being checked while it is asked what it takes.
struct Looks {
    backend: CpuBackend,
    core: OnceLock<Arc<Core>>,
}

impl Backend for Looks {
    fn info(&self) -> backend::Info {
        self.backend.info()
    }

    fn support(&self, _: &model::Model, _: &Control) -> Vec<Result<(), String>> {
        vec![Err(checked(self.core.get().unwrap()).to_string())]
    }

    fn compile(
        &self,
        model: &model::Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn backend::Executable>, backend::BackendError> {
        self.backend.compile(model, options, control)
    }
}

#[test]
fn who_waits_for_the_backend_to_say_what_it_takes_counts_as_checking_a_model() {
    let backend = Arc::new(Looks { backend: CpuBackend::new(1).unwrap(), core: OnceLock::new() });
    let driver = Driver::builder(backend.clone()).build().unwrap();
    assert!(backend.core.set(driver.core().clone()).is_ok());
    assert_eq!(driver.core().support(&model()).unwrap(), [Err("1".to_string())]);
    assert_eq!(checked(driver.core()), 0);
}

#[test]
fn cache_files_are_counted_before_their_job_stands_in_line() {
    let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
    let device = Device { core: driver.core().clone() };
    let files = || {
        let fd = || nix::sys::memfd::memfd_create(c"cache", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let file = |_| ParcelFileDescriptor::new(std::fs::File::from(fd()));
        let files = |count: u32| (0..count).map(file).collect::<Vec<_>>();
        let counts = device.core.info.cache_files;
        let (models, data) = (files(counts.models), files(counts.data));
        device.files(device.core.cache_place(&[1; 32], &models, &data).unwrap())
    };
    let one = files().unwrap();
    let left = limits::CACHE_FILES.quota().per_client() as usize - 2;
    let _others = device.core.quotas.cache_files(ipc::calling_uid(), left).unwrap();
    assert!(matches!(files(), Err(ServiceError::Refused(_))));
    drop(one);
    assert!(files().is_ok());
}
