//! Drivers that crash, hang or are killed under the conformance runner: each is a line of its report, and the run goes on.
use crate::common::corpus::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{Backend, BackendError, CompileOptions, Control, Executable, Info, Saved};
use nnhal::daemon::{self, Endpoint, Flags};
use nnhal::model::{Model, OperationKind};
use serde_json::Value;
use std::sync::Arc;

/// Where the faulty driver serves.
const SOCKET: &str = "NNHAL_TEST_FAULTY_SOCKET";

/// The CPU, but for an operation that ends the process, one that never comes back, and one that it promises to take and does
/// not compile.
struct Faulty(CpuBackend);

impl Backend for Faulty {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        let OperationKind::Known { operation, .. } = &model.main.operations[0].kind else {
            return self.0.support(model, control);
        };
        match operation.ty.name() {
            "TANH" => std::process::exit(3),
            "LOGISTIC" => loop {
                std::thread::park();
            },
            _ => self.0.support(model, control),
        }
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        if let OperationKind::Known { operation, .. } = &model.main.operations[0].kind {
            if operation.ty.name() == "ABS" {
                return Err(BackendError::Failed("as the test wants it".into()));
            }
        }
        self.0.compile(model, options, control)
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        self.0.load(saved, options, control)
    }
}

#[test]
#[ignore = "the driver of the other tests"]
fn faulty_driver() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let service = Endpoint::Unix(socket.into());
    let flags = Flags { service, data: None, store: Some(0), threads: Some(2), ..Flags::default() };
    daemon::run(&flags, |_| CpuBackend::new(2).map(Faulty)).expect("served until it is told to end");
}

/// `count` models of FLOOR, and one of each of these operations in between, of this kind.
fn corpus(count: usize, operations: &[&str], kind: &str) -> Corpus {
    let corpus = Corpus::new(count, [-1.0, 1.0]);
    let operands = [operand("in", "TENSOR_FLOAT32", &[2], 0), operand("out", "TENSOR_FLOAT32", &[2], 8)];
    let models = operations.iter().map(|operation| model("faulty", operation, &[kind], &operands));
    for (model, operation) in models.zip(operations) {
        let mut model = model;
        model["name"] = format!("faulty_{operation}").into();
        write_corpus(&corpus.path(&format!("a_{operation}.nnt")), std::iter::once(model), &[0; 16]);
    }
    corpus
}

struct Ended {
    output: std::process::Output,
    report: Value,
}

/// Runs the models of a suite against the faulty driver, which the runner starts itself.
fn run(corpus: &Corpus, suite: &str, more: &[&str]) -> Ended {
    let socket = corpus.path("nn.sock");
    let this = std::env::current_exe().expect("this program");
    let restart = format!("exec {} --ignored --exact conformance_faulty::faulty_driver", this.display());
    let service = format!("unix:{}", socket.display());
    let json = corpus.path("out.json");
    let mut command = corpus.command(&["--suite", suite, "--service", &service, "--restart", &restart]);
    command.args(["--json", json.to_str().expect("UTF-8"), "--jobs", "2"]).args(more).env(SOCKET, &socket);
    let output = command.output().expect("the tool starts");
    let report = std::fs::read(json).expect("a report");
    Ended { output, report: serde_json::from_slice(&report).expect("JSON") }
}

fn reason<'r>(report: &'r Value, model: &str) -> &'r str {
    let results = report["results"].as_array().expect("results");
    let line = results.iter().find(|line| line["model"] == model);
    line.and_then(|line| line["reason"].as_str()).unwrap_or_default()
}

#[test]
fn a_driver_that_crashes_is_a_line_and_the_run_goes_on() {
    let Ended { output, report } = run(&corpus(30, &["TANH"], "general"), "general", &[]);
    assert_ends(&output, 1, "30 passed, 1 failed, 0 skipped");
    assert_eq!(reason(&report, "faulty_TANH"), "the driver died during getSupportedOperations");
    let losses = report["losses"].as_array().expect("losses");
    assert_eq!(losses.len(), 2, "once beside another model, once alone: {losses:?}");
    assert!(losses.iter().all(|loss| loss["back_after_seconds"].is_number()), "{losses:?}");
    assert!(text(&output.stdout).contains("LOST the driver died during"), "{}", text(&output.stdout));
}

#[test]
fn a_driver_that_hangs_is_a_line_and_the_run_goes_on() {
    let Ended { output, report } = run(&corpus(30, &["LOGISTIC"], "general"), "general", &["--timeout", "2"]);
    assert_ends(&output, 1, "30 passed, 1 failed, 0 skipped");
    let expected = "the driver gave no answer to getSupportedOperations within 2 s";
    assert_eq!(reason(&report, "faulty_LOGISTIC"), expected);
}

#[test]
fn a_driver_that_is_killed_comes_back_and_every_model_is_run() {
    // Far more than are run before the end.
    let corpus = Corpus::new(1500, [-1.0, 1.0]);
    let killer = std::thread::spawn({
        let socket = corpus.path("nn.sock");
        move || {
            let address = nnhal::client::Address::Unix(socket);
            let driver = loop {
                match nnhal::client::Driver::connect(&address, &Default::default()) {
                    Ok(driver) => break driver,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
                }
            };
            std::thread::sleep(std::time::Duration::from_millis(300));
            let process = i32::try_from(driver.process().expect("its process")).expect("a number");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL)
                .expect("killed");
        }
    });
    let Ended { output, report } = run(&corpus, "general", &[]);
    killer.join().expect("it killed");
    assert_ends(&output, 1, "1500 passed, 0 failed, 0 skipped");
    assert_eq!(report["losses"].as_array().map(Vec::len), Some(1));
    assert!(text(&output.stderr).contains("the driver died or hung 1 times"), "{}", text(&output.stderr));
}

#[test]
fn a_driver_that_should_say_no_must_say_so() {
    // One operation that it computes, where it should refuse it, and one that it refuses.
    let suite = "cts_expect_failure";
    let corpus = corpus(0, &["FLOOR", "ABS"], suite);
    let Ended { output, report } = run(&corpus, suite, &[]);
    assert_ends(&output, 1, "1 passed, 1 failed, 0 skipped");
    assert!(reason(&report, "faulty_FLOOR").contains("the execution succeeded"), "{report}");
}
