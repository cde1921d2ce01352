//! Executions, fenced ones above all, on a device whose every step the test sees.

use super::*;
use crate::aidl;
use crate::backend::cpu::CpuBackend;
use crate::backend::{
    Arguments, Backend, Binding, CompileOptions, Completer, Executable, Info, Interface as Takes, Pending,
};
use crate::compiler::{Compiled, Unsaved};
use crate::memory::Pool;
use crate::model::Model;
use crate::service::arguments::Span;
use crate::service::prepared::Prepared;
use crate::service::run::Purpose;
use crate::service::terms::Terms;
use crate::service::Driver;
use crate::tensor::{OperandType, TensorInfo};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

const PATIENCE: Duration = Duration::from_secs(20);

/// What is seen of a device.
#[derive(Debug, PartialEq)]
enum Seen {
    /// An execution that waits for so many fences and has this deadline.
    Submitted(usize, Option<u64>),
    Cancelled,
}

/// The device, and its one model, of one float in and out. An execution ends when it is cancelled, and not before.
struct Device {
    seen: Mutex<Sender<Seen>>,
    /// Called when an execution was submitted, before the driver gets hold of it.
    submitted: Box<dyn Fn(&Control) + Send + Sync>,
    interface: Takes,
}

impl Executable for Device {
    fn interface(&self) -> &Takes {
        &self.interface
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(self)
    }
}

impl Device {
    fn see(&self, seen: Seen) {
        let _ = self.seen.lock().unwrap().send(seen); // the test may be over before its executions are
    }
}

impl Binding for Device {
    fn submit(self: Arc<Self>, fences: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        self.see(Seen::Submitted(fences.len(), control.deadline_ns));
        (self.submitted)(control);
        let (completer, pending) = Pending::promised();
        let completer = Mutex::new(Some(completer));
        let cancel = move || {
            if let Some(completer) = completer.lock().unwrap().take() {
                self.see(Seen::Cancelled);
                completer.complete(Err(BackendError::Cancelled));
            }
        };
        Ok(Submission::Pending(pending.on_cancel(cancel)))
    }
}

/// A backend that says what the test wants of its device. It compiles nothing: models are made by the tests.
struct Says(CpuBackend, fn(Info) -> Info);

impl Backend for Says {
    fn info(&self) -> Info {
        (self.1)(self.0.info())
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        self.0.support(model, control)
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        self.0.compile(model, options, control)
    }
}

fn says(what: fn(Info) -> Info) -> Says {
    Says(CpuBackend::new(1).unwrap(), what)
}

/// A model on a device that does not stop when it is told to: its executions end when the test says so.
struct Stubborn {
    completer: Mutex<Option<Completer>>,
    interface: Takes,
}

impl Executable for Stubborn {
    fn interface(&self) -> &Takes {
        &self.interface
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(self)
    }
}

impl Binding for Stubborn {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, _: &Control) -> Result<Submission, BackendError> {
        let (completer, pending) = Pending::promised();
        *self.completer.lock().unwrap() = Some(completer);
        Ok(Submission::Pending(pending))
    }
}

fn driver(backend: impl Backend + 'static) -> Driver {
    Driver::builder(Arc::new(backend)).build().unwrap()
}

/// An execution on a device of `driver`, and what is seen there.
fn execution(
    driver: &Driver,
    measure: bool,
    submitted: impl Fn(&Control) + Send + Sync + 'static,
) -> (Arc<Execution>, Receiver<Seen>) {
    let (seen, sees) = channel();
    let device =
        Device { seen: Mutex::new(seen), submitted: Box::new(submitted), interface: float_in_and_out() };
    (execution_of(driver, Arc::new(device), measure), sees)
}

fn float_in_and_out() -> Takes {
    let float = vec![TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1])];
    Takes { inputs: float.clone(), outputs: float, may_loop: false }
}

fn execution_of(driver: &Driver, executable: Arc<dyn Executable>, measure: bool) -> Arc<Execution> {
    let (core, options) = (driver.core(), CompileOptions::default());
    let compiled = Compiled { executable, options, unsaved: Unsaved::new(1, None, None) };
    let place = core.quotas.model(1).unwrap();
    let prepared = Arc::new(Prepared::new(core.clone(), compiled, core.lives.of(0), place, 0));
    let memfd = nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let mut file = std::fs::File::from(memfd);
    file.write_all(&[0; 8]).unwrap();
    let argument = |offset| RequestArgument {
        location: DataLocation { poolIndex: 0, offset, length: 4, padding: 0 },
        ..Default::default()
    };
    let pool = aidl::Memory::Ashmem(Ashmem { fd: Some(ParcelFileDescriptor::new(file)), size: 8 });
    let request = aidl::Request {
        inputs: vec![argument(0)],
        outputs: vec![argument(4)],
        pools: vec![RequestMemoryPool::Pool(pool)],
    };
    let purpose = Purpose { terms: Terms::new(measure, -1).unwrap(), fenced: true, reused: false };
    let find = |_, pool: &Pool| core.memory(pool, Span::Longer);
    Arc::new(Execution::new(&prepared, &request, purpose, &find).unwrap())
}

#[test]
fn a_device_is_asked_to_stop_at_a_deadline_that_passes_while_it_is_handed_the_execution() {
    let driver = driver(CpuBackend::new(1).unwrap());
    let watcher = driver.core().watcher.clone();
    // The driver's own watch for that deadline comes first.
    let submitted = move |control: &Control| {
        let (tell, passed) = channel();
        let deadline = control.deadline_ns.unwrap();
        let _key = watcher.at(deadline + 1, Box::new(move || tell.send(()).unwrap()));
        passed.recv_timeout(PATIENCE).unwrap();
    };
    let (execution, sees) = execution(&driver, false, submitted);
    let deadline = boottime_ns() + 50_000_000;
    let times = Times::new(deadline as i64, -1).unwrap();
    let result = launch(execution, &[], times, None).unwrap();
    assert_eq!(sees.recv_timeout(PATIENCE), Ok(Seen::Submitted(0, Some(deadline))));
    assert_eq!(sees.recv_timeout(PATIENCE), Ok(Seen::Cancelled));
    drop(result);
}

#[test]
fn a_duration_counts_from_when_the_last_fence_is_signalled_whoever_waits_for_it() {
    const DURATION: u64 = 3_600_000_000_000;
    let driver = driver(says(|info| Info { waits_for_fences: true, ..info }));
    for (measure, duration, device_waits) in
        [(false, None, true), (true, None, false), (false, Some(DURATION), false)]
    {
        let (execution, sees) = execution(&driver, measure, |_| {});
        let (fence, mut signal) = UnixStream::pair().unwrap();
        let fences = [ParcelFileDescriptor::new(fence)];
        let times = Times::new(-1, duration.map_or(-1, |duration| duration as i64)).unwrap();
        let result = launch(execution, &fences, times, None).unwrap();
        if device_waits {
            assert_eq!(sees.recv_timeout(PATIENCE), Ok(Seen::Submitted(1, None)));
        } else {
            assert!(sees.try_recv().is_err(), "its fence is not signalled yet");
            let now = boottime_ns();
            signal.write_all(&[1]).unwrap();
            let Ok(Seen::Submitted(0, deadline)) = sees.recv_timeout(PATIENCE) else {
                panic!("not submitted")
            };
            assert_eq!(deadline.is_some(), duration.is_some());
            assert!(
                deadline.is_none_or(|deadline| deadline >= now + DURATION),
                "{deadline:?}, signalled at {now}"
            );
        }
        // Nobody can learn of the outcome any more.
        drop(result);
        assert_eq!(sees.recv_timeout(PATIENCE), Ok(Seen::Cancelled));
    }
}

fn this_thread() -> String {
    thread::current().name().unwrap_or_default().into()
}

#[test]
fn a_few_executions_begin_where_their_fence_is_seen_and_all_others_of_their_client_in_its_line() {
    const FEW: usize = 8;
    let driver = driver(CpuBackend::new(1).unwrap());
    let (tell, told) = channel();
    for (count, at_once) in [(1, 1), (4 * FEW, FEW)] {
        let (fence, mut signal) = UnixStream::pair().unwrap();
        let launched = (0..count).map(|_| {
            let (fence, tell) = (fence.try_clone().unwrap(), Mutex::new(tell.clone()));
            let submitted = move |_: &Control| tell.lock().unwrap().send(this_thread()).unwrap();
            let (execution, sees) = execution(&driver, false, submitted);
            let times = Times::new(-1, -1).unwrap();
            (launch(execution, &[ParcelFileDescriptor::new(fence)], times, None).unwrap(), sees)
        });
        let launched: Vec<_> = launched.collect();
        signal.write_all(&[1]).unwrap();
        let threads: Vec<_> = (0..count).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
        let on = |name| threads.iter().filter(|&thread| thread == name).count();
        let seen = (on("nnhal-watcher"), on("nnhal-errand"));
        assert_eq!(seen, (at_once, count - at_once), "{threads:?}");
        for (result, sees) in launched {
            drop(result); // which cancels it
            while sees.recv_timeout(PATIENCE).unwrap() != Seen::Cancelled {}
        }
        // The last may be about to give its place back.
        let began = Instant::now();
        while driver.core().at_once.held() > 0 {
            assert!(began.elapsed() < PATIENCE);
            thread::yield_now();
        }
    }
}

#[test]
fn a_model_that_its_last_execution_ends_with_is_let_go_of_beside_the_watch() {
    struct Model(Sender<String>);
    impl Drop for Model {
        fn drop(&mut self) {
            self.0.send(this_thread()).unwrap();
        }
    }
    let driver = driver(CpuBackend::new(1).unwrap());
    let (tell, told) = channel();
    let model = Mutex::new(Model(tell));
    let (execution, _sees) = execution(&driver, false, move |_| drop(model.lock()));
    let (fence, _never_signalled) = UnixStream::pair().unwrap();
    let times = Times::new((boottime_ns() + 500_000_000) as i64, -1).unwrap();
    let _result = launch(execution, &[ParcelFileDescriptor::new(fence)], times, None).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "nnhal-errand");
}

#[test]
fn a_device_has_its_place_until_it_is_done_with_an_execution_that_its_caller_gave_up() {
    let driver = driver(says(|info| Info { depth: Some(1), ..info }));
    let device = Arc::new(Stubborn { completer: Mutex::default(), interface: float_in_and_out() });
    let execution = execution_of(&driver, device.clone(), false);
    let control = execution.control(Some(boottime_ns() + 500_000_000), Arc::default());
    assert!(execution.run(&control, Instant::now()).is_err(), "it does not end");
    let running = || driver.core().queue().unwrap().running;
    assert_eq!(running(), 1, "another would be handed over");
    let completer = device.completer.lock().unwrap().take().unwrap();
    completer.complete(Err(BackendError::Cancelled));
    assert_eq!(running(), 0);
}

/// A device that tells on which thread an execution is cancelled.
struct Tells {
    interface: Takes,
    told: Sender<String>,
}

impl Executable for Tells {
    fn interface(&self) -> &Takes {
        &self.interface
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(self)
    }
}

impl Binding for Tells {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, _: &Control) -> Result<Submission, BackendError> {
        self.told.send("submitted".into()).unwrap();
        let (completer, pending) = Pending::promised();
        let completer = Mutex::new(Some(completer));
        let cancel = move || {
            if let Some(completer) = completer.lock().unwrap().take() {
                self.told.send(this_thread()).unwrap();
                completer.complete(Err(BackendError::Cancelled));
            }
        };
        Ok(Submission::Pending(pending.on_cancel(cancel)))
    }
}

#[test]
fn an_execution_is_cancelled_in_its_clients_line_at_its_deadline_and_when_it_is_given_up() {
    let driver = driver(CpuBackend::new(1).unwrap());
    let core = driver.core();
    let (tell, told) = channel();
    let device = Arc::new(Tells { interface: float_in_and_out(), told: tell });
    for at_once in [true, false] {
        let places = if at_once { None } else { Some(core.at_once.take(1, 8).unwrap()) };
        for is_given_up in [false, true] {
            let execution = execution_of(&driver, device.clone(), false);
            let deadline = if is_given_up { -1 } else { (boottime_ns() + 500_000_000) as i64 };
            let result = launch(execution, &[], Times::new(deadline, -1).unwrap(), None).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("submitted"));
            let result = (!is_given_up).then_some(result);
            assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("nnhal-errand"));
            drop(result);
        }
        drop(places);
        // The last may be about to give its place back.
        let began = Instant::now();
        while core.at_once.held() > 0 {
            assert!(began.elapsed() < PATIENCE);
            thread::yield_now();
        }
    }
}

#[test]
fn fences_that_are_not_signalled_hold_few_places_of_a_device_that_waits_for_them() {
    let one = driver(says(|info| Info { waits_for_fences: true, depth: Some(1), ..info }));
    let eight = driver(says(|info| Info { waits_for_fences: true, depth: Some(8), ..info }));
    for (driver, places, on_the_device) in [(one, 1, 0), (eight, 8, 2)] {
        let (fence, mut signal) = UnixStream::pair().unwrap();
        let launch = |is_fenced: bool| {
            let (execution, sees) = execution(&driver, false, |_| {});
            let fence = is_fenced.then(|| ParcelFileDescriptor::new(fence.try_clone().unwrap()));
            (launch(execution, fence.as_slice(), Times::new(-1, -1).unwrap(), None).unwrap(), sees)
        };
        let mut fenced: Vec<_> = (0..2 * places).map(|_| launch(true)).collect();
        fenced[..on_the_device].iter().for_each(|(_, sees)| {
            assert_eq!(sees.recv_timeout(PATIENCE), Ok(Seen::Submitted(1, None)));
        });
        assert_eq!(driver.core().queue().unwrap().running, on_the_device);
        let without = launch(false);
        assert_eq!(without.1.recv_timeout(PATIENCE), Ok(Seen::Submitted(0, None)));
        drop(without);
        // The driver waits for the fences of the others, of which one is not given up.
        fenced.truncate(on_the_device + 1);
        signal.write_all(&[1]).unwrap();
        assert_eq!(fenced[on_the_device].1.recv_timeout(PATIENCE), Ok(Seen::Submitted(0, None)));
    }
}
