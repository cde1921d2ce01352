//! Processes that do what they should not: die, hang, or say what cannot be. Each is this program's test `child`, with a
//! fault that comes over it at a model of relaxed precision.

use crate::processes::wait_until;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::*;
use nnhal::isolation::{serve, Isolated};
use nnhal::memory::{client_of_thread, AlignedBuf, Budget, ClientSlice, Mapping};
use nnhal::model::Model;
use nnhal::testing::{standard_samples, Sample};
use smallvec::smallvec;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Set for the process: its fault, and a file without which it does not start.
const FAULT: &str = "NNHAL_TEST_FAULT";
const NEEDS: &str = "NNHAL_TEST_NEEDS";

fn start(fault: &'static str, needs: &Path) -> Isolated {
    let needs = needs.to_path_buf();
    let command = move || {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", "faulty::child"]).stderr(Stdio::null());
        command.env(FAULT, fault).env(NEEDS, &needs);
        command
    };
    Isolated::start(command).expect("a process")
}

#[test]
#[ignore = "a process of the other tests, which start it"]
fn child() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    if !std::env::var(NEEDS).is_ok_and(|path| Path::new(&path).exists()) {
        std::process::exit(1);
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the socket");
    let cpu = CpuBackend::new(1).expect("threads");
    let Err(why) = serve(Arc::new(Faulty { cpu, fault, socket }), Budget::new(1 << 30));
    panic!("it does not serve: {why}");
}

struct Faulty {
    cpu: CpuBackend,
    fault: String,
    socket: OwnedFd,
}

impl Backend for Faulty {
    fn info(&self) -> Info {
        self.cpu.info()
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        match (model.relaxed, self.fault.as_str()) {
            (true, "is silent about operations") => Vec::new(),
            (true, "tells whom it works for") => {
                vec![Err(client_of_thread().to_string()); model.main.operations.len()]
            }
            _ => self.cpu.support(model, control),
        }
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let compiled = self.cpu.compile(model, options, control)?;
        if !model.relaxed {
            return Ok(compiled);
        }
        match self.fault.as_str() {
            "aborts" => std::process::abort(),
            "panics" => panic!("as it should"),
            "hangs" => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            "babbles" => {
                nnhal::memory::send(self.socket.as_fd(), b"what is this", &[]).expect("sent");
                Ok(compiled)
            }
            "answers what nobody asked" => {
                // A message of the right form: call 1000000, answer 6.
                let mut message = 1_000_000u64.to_le_bytes().to_vec();
                message.push(6);
                nnhal::memory::send(self.socket.as_fd(), &message, &[]).expect("sent");
                Ok(compiled)
            }
            fault => {
                Ok(Arc::new(Lying { interface: interface(&compiled, fault), compiled, lies: fault.into() }))
            }
        }
    }
}

fn interface(compiled: &Arc<dyn Executable>, fault: &str) -> Interface {
    let mut interface = compiled.interface().clone();
    if fault == "lies of its interface" {
        interface.inputs[0].scale = f32::NAN;
    }
    interface
}

struct Lying {
    compiled: Arc<dyn Executable>,
    interface: Interface,
    lies: String,
}

struct LyingBinding(Arc<dyn Binding>, String);

impl Executable for Lying {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        let binding = self.compiled.clone().bind(arguments)?;
        Ok(Arc::new(LyingBinding(binding, self.lies.clone())))
    }

    fn artifact(&self, _: &Control) -> Result<Option<Artifact>, BackendError> {
        let data = vec![vec![(0, AlignedBuf::zeroed(10).expect("memory").into())]; 3];
        Ok(Some(Artifact { models: Vec::new(), data }))
    }
}

impl Binding for LyingBinding {
    fn submit(self: Arc<Self>, fences: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        self.0.clone().submit(fences, control)
    }

    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        let mut outcome = self.0.clone().run(control)?;
        match self.1.as_str() {
            "lies of dimensions" => outcome.outputs[0].dims = smallvec![u32::MAX; 9],
            "lies of sizes" => outcome.outputs[0].dims[0] += 1,
            "has no outputs" => outcome.outputs.clear(),
            "dies as it runs" => std::process::abort(),
            _ => {}
        }
        Ok(outcome)
    }
}

fn memory(bytes: &[u8]) -> Memory {
    let mapping = Arc::new(Mapping::anonymous(bytes.len()).expect("memory"));
    ClientSlice::whole(mapping.clone()).write(bytes).expect("written");
    Memory::Mapped(mapping)
}

/// Runs a sample; checks what comes of it.
fn run(executable: &Arc<dyn Executable>, sample: &Sample) -> Result<(), BackendError> {
    let main = &sample.model.main;
    let place = |values: &[Vec<u8>], list: &[usize]| -> Vec<_> {
        let dims = list.iter().map(|&i| main.operands[i].info.dims.clone());
        values.iter().zip(dims).map(|(bytes, dims)| Some((memory(bytes), dims))).collect()
    };
    let empty: Vec<_> = sample.outputs.iter().map(|bytes| vec![0; bytes.len()]).collect();
    let outputs = place(&empty, &main.outputs);
    let arguments = Arguments::in_own_memories(place(&sample.inputs, &main.inputs), outputs.clone());
    executable.clone().bind(arguments)?.run(&Control::default())?;
    for (output, expected) in outputs.into_iter().flatten().zip(&sample.outputs) {
        let (Memory::Mapped(mapping), _) = output else { panic!("another memory") };
        assert_eq!(ClientSlice::whole(mapping).to_private().expect("read")[..], expected[..]);
    }
    Ok(())
}

fn cases() -> (Sample, Sample) {
    let good =
        standard_samples().into_iter().find(|sample| sample.name.starts_with("CHAIN")).expect("a sample");
    let mut bad = good.clone();
    bad.model.relaxed = true;
    (good, bad)
}

fn compile(
    backend: &Isolated,
    sample: &Sample,
    control: &Control,
) -> Result<Arc<dyn Executable>, BackendError> {
    backend.compile(&sample.model, &CompileOptions::default(), control)
}

#[track_caller]
fn assert_lost<T>(answer: Result<T, BackendError>, fault: &str) {
    match answer {
        Err(BackendError::DeviceLost(_)) => {}
        Err(other) => panic!("{fault}: {other}"),
        Ok(_) => panic!("{fault}: nobody notices"),
    }
}

#[test]
fn whatever_it_does_costs_what_is_in_flight_and_no_more() {
    let here = std::env::current_exe().expect("this program");
    let (good, bad) = cases();
    for fault in [
        "aborts",
        "babbles",
        "answers what nobody asked",
        "lies of its interface",
        "lies of dimensions",
        "lies of sizes",
        "has no outputs",
        "dies as it runs",
    ] {
        let backend = start(fault, &here);
        let model = compile(&backend, &good, &Control::default()).expect("compiled");
        run(&model, &good).expect("executed");
        let process = backend.process();
        match compile(&backend, &bad, &Control::default()) {
            Ok(compiled) if fault == "babbles" || fault == "answers what nobody asked" => drop(compiled),
            Ok(compiled) => assert_lost(run(&compiled, &bad), fault),
            lost => assert_lost(lost, fault),
        }
        wait_until(fault, || backend.process().is_some_and(|now| Some(now) != process));
        run(&model, &good).unwrap_or_else(|why| panic!("{fault}: {why}"));
    }
    let backend = start("is silent about operations", &here);
    let verdicts = backend.support(&bad.model, &Control::default());
    assert!(verdicts.len() == bad.model.main.operations.len() && verdicts.iter().all(Result::is_err));
    let backend = start("panics", &here);
    let panicked = compile(&backend, &bad, &Control::default()).err().expect("an error").to_string();
    assert!(panicked.contains("panicked"), "{panicked}");
    let backend = start("saves nonsense", &here);
    let compiled = compile(&backend, &bad, &Control::default()).expect("compiled");
    let saved = compiled.artifact(&Control::default()).map(drop).expect_err("nonsense").to_string();
    assert!(saved.contains("makes no sense"), "{saved}");
}

#[test]
fn one_that_hangs_keeps_nobody_else_waiting_and_is_ended() {
    let backend = Arc::new(start("hangs", &std::env::current_exe().expect("this program")));
    let (good, bad) = cases();
    let model = compile(&backend, &good, &Control::default()).expect("compiled");
    let hanging = std::thread::spawn({
        let backend = backend.clone();
        move || {
            let deadline_ns = Some(boottime_ns() + 100_000_000);
            compile(&backend, &bad, &Control { deadline_ns, ..Control::default() }).err()
        }
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        run(&model, &good).expect("executed meanwhile");
    }
    let end = hanging.join().expect("no panic");
    assert!(matches!(end, Some(BackendError::DeviceLost(_))), "{end:?}");
    run(&model, &good).expect("executed by the next");
}

#[test]
fn one_that_does_not_start_any_more_is_tried_less_and_less_and_comes_back() {
    let needed = tempfile::NamedTempFile::new().expect("a file");
    let backend = start("none", needed.path());
    let (good, _) = cases();
    let model = compile(&backend, &good, &Control::default()).expect("compiled");
    let path = needed.into_temp_path();
    let hidden = path.with_extension("hidden");
    std::fs::rename(&path, &hidden).expect("renamed");
    kill(Pid::from_raw(backend.process().expect("there") as i32), Signal::SIGKILL).expect("killed");
    wait_until("its end", || backend.process().is_none());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert_lost(run(&model, &good), "no process");
        assert_lost(compile(&backend, &good, &Control::default()), "no process");
        assert!(backend.support(&good.model, &Control::default()).iter().all(Result::is_err));
    }
    std::fs::rename(&hidden, &path).expect("renamed");
    wait_until("its return", || backend.process().is_some());
    run(&model, &good).expect("executed");
}

#[test]
fn what_a_question_takes_is_on_the_account_of_who_asks() {
    let backend = start("tells whom it works for", &std::env::current_exe().expect("this program"));
    let (good, bad) = cases();
    let budget = Budget::new(1 << 30);
    for client in [7, 8] {
        let _account = budget.on_account_of(client);
        let told = backend.support(&bad.model, &Control::default());
        assert!(told.into_iter().all(|told| told == Err(client.to_string())), "client {client}");
    }
    assert!(backend.support(&good.model, &Control::default()).iter().all(Result::is_ok));
    let gone = Control { cancelled: Stop::already(), ..Control::default() };
    assert!(backend.support(&good.model, &gone).iter().all(Result::is_err), "nobody hears the answer");
}
