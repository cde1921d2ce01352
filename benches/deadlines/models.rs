//! Whole models, by a client of the daemon.
//!
//! Each of NNHAL_RUNS executions (200) is given between 1 and 20 milliseconds, or less where the whole model takes less:
//! so the deadline passes in any of its operations. Late is what passes between the deadline and the client's return.

use crate::common::{model, ms, setting, Daemon, Figures};
use nnhal::aidl::{self, ErrorStatus, IPreparedModel};
use nnhal::backend::boottime_ns;
use nnhal::client::shared::Shared;
use nnhal::client::{ConnectOptions, Driver, PrepareOptions};
use nnhal::tflite::{Imported, Port};
use std::time::{Duration, Instant};

const MODELS: [&str; 5] = [
    "bert_l4_h256_s128_f32.tflite",
    "deeplab_mnv2_256_int8.tflite",
    "lstm_kws_f32.tflite",
    "mobilenet_v1_1.0_224_int8.tflite",
    "mobilenet_v2_1.0_224_f32.tflite",
];
const LONGEST: Duration = Duration::from_millis(20);
const SHORTEST: Duration = Duration::from_millis(1);

pub fn measure() {
    let runs = setting("NNHAL_RUNS", 200);
    let daemon = Daemon::start();
    let driver = Driver::connect(&daemon.address(), &ConnectOptions::default()).expect("a driver");
    println!("| model | without a deadline, ms | late: median, ms | p99, ms | longest, ms | missed |");
    println!("|---|---|---|---|---|---|");
    for name in MODELS {
        let imported = model(name);
        let prepared = driver.prepare(&imported.model, &PrepareOptions::default()).expect("a prepared model");
        let request = request(&imported);
        let execute = |deadline| prepared.executeSynchronously(&request, false, deadline, -1);
        let mut whole: Vec<_> = (0..5)
            .map(|_| {
                let start = Instant::now();
                execute(-1).expect("executed");
                start.elapsed()
            })
            .collect();
        let whole = Figures::of(&mut whole).expect("runs").median;
        let longest = LONGEST.min(whole.mul_f64(0.8)).max(SHORTEST);
        let mut late: Vec<_> = (0..runs)
            .filter_map(|i| {
                let time = SHORTEST + (longest - SHORTEST).mul_f64(i as f64 / runs as f64);
                let deadline = boottime_ns() + time.as_nanos() as u64;
                let error = execute(deadline as i64).err()?;
                let late = boottime_ns().saturating_sub(deadline);
                let missed =
                    [ErrorStatus::MISSED_DEADLINE_TRANSIENT.0, ErrorStatus::MISSED_DEADLINE_PERSISTENT.0];
                assert!(missed.contains(&error.service_specific_error()), "{error:?}");
                Some(Duration::from_nanos(late))
            })
            .collect();
        let missed = late.len();
        let Some(Figures { median, p99, most }) = Figures::of(&mut late) else { continue };
        let [whole, median, p99, most] = [whole, median, p99, most].map(ms);
        println!("| {name} | {whole:.1} | {median:.3} | {p99:.3} | {most:.3} | {missed} of {runs} |");
    }
}

/// A request of zeros, with all inputs and outputs in one memory.
fn request(imported: &Imported) -> aidl::Request {
    let mut end = 0;
    let mut argument = |port: &Port| {
        let size = port.info.byte_size().expect("known dimensions");
        let offset = end;
        end += size.next_multiple_of(64) as i64;
        aidl::RequestArgument {
            location: aidl::DataLocation { offset, length: size as i64, ..Default::default() },
            ..Default::default()
        }
    };
    let inputs = imported.inputs.iter().map(&mut argument).collect();
    let outputs = imported.outputs.iter().map(&mut argument).collect();
    let memory = Shared::new(end as u64).and_then(|shared| shared.memory()).expect("memory");
    aidl::Request { inputs, outputs, pools: vec![aidl::RequestMemoryPool::Pool(memory)] }
}
