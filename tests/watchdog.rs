//! What the log says of calls that hang: alone in its process, whose log it reads.

mod common;

use common::loops::loop_model;
use common::{argument, request, Connection, PATIENCE};
use log::{LevelFilter, Log, Metadata, Record};
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::*;
use nnhal::daemon::embedded::{start_with, Options};
use nnhal::isolation::Isolated;
use nnhal::model::Model;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The processor, as a device that executes one model at a time.
struct OneAtATime(CpuBackend);

impl Backend for OneAtATime {
    fn info(&self) -> Info {
        Info { depth: Some(1), ..self.0.info() }
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

/// Lines of the log.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Reader;

impl Log for Reader {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

fn line_of(parts: &[&str]) -> Option<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
}

#[test]
fn a_call_that_hangs_is_told_with_what_it_waits_for() {
    log::set_logger(&Reader).expect("no other log");
    log::set_max_level(LevelFilter::Info);
    let one_at_a_time = Arc::new(OneAtATime(CpuBackend::new(2).expect("threads")));
    assert_two_are_told_of(one_at_a_time, " ms waiting for a place in the device's queue");
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nnhald"));
        command.args(["--threads", "2", "--serve-backend"]);
        command
    };
    let elsewhere = Arc::new(Isolated::start(command).expect("a process"));
    assert_two_are_told_of(elsewhere, " ms waiting for the device");
}

/// Has two calls of a driver with this backend last, of which the log must say what one waits for.
fn assert_two_are_told_of(backend: Arc<dyn Backend>, waiting: &str) {
    let driver = start_with(backend, &Options::default()).expect("a driver");
    let connection = Connection::new(driver.socket());
    let model = connection.prepare(&loop_model());
    // Whether it goes on for ever, and its one value.
    let endless = || {
        let (mut request, output) = request(&[1, 0, 0, 0, 0, 0, 0, 0], 4);
        request.inputs = vec![argument(0, 0, 1), argument(0, 4, 4)];
        (request, output)
    };
    std::thread::scope(|scope| {
        // The one has the device where there is room for one only, and the other waits for it; no other call comes.
        for _ in 0..2 {
            scope.spawn(|| {
                let (request, _output) = endless();
                let ended = model.executeSynchronously(&request, false, -1, 4_000_000_000);
                assert!(ended.is_err(), "it has no end");
            });
        }
        let until = Instant::now() + PATIENCE;
        let told = ["executeSynchronously of uid ", waiting, "(and lasts)"];
        while line_of(&told).is_none() {
            assert!(Instant::now() < until, "the log has {:?}", LINES.lock().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    connection.close();
}
