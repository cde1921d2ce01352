//! Scheduling: how long one client's urgent executions take while another floods the driver with unimportant ones.
//!
//!     cargo bench --bench fairness
//!
//! The flood is a process of its own with several threads, each executing at low priority without a pause; as root, it
//! runs under a uid of its own, as another app does. NNHAL_MODEL is the model of both, NNHAL_FLOOD the number of threads
//! (4), NNHAL_FRAMES how many urgent executions are timed (500).
//!
//! An execution that is under way gives way between two operations: so an urgent one may be late by the longest
//! operation of the model, which is timed as well, each operation as a model of its own.

mod common;

use common::{model, ms, setting, Daemon, Figures, Process};
use nnhal::aidl::{self, OperandLifeTime, Priority};
use nnhal::client::{Address, Mode, PrepareOptions};
use nnhal::ops::OperationType;
use nnhal::tensor::{OperandType, TensorInfo};
use nnhal::tflite::{self, Imported, Port};
use nnhal::tool::driver::{ServiceName, ServiceOptions};
use nnhal::tool::run::session::Session;
use nnhal::tool::run::values;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The flag by which this program is the flood.
const FLOOD: &str = "--flood";
/// An app's uid, as good as any other.
const FLOOD_UID: u32 = 10_123;
/// Between two urgent executions.
const PAUSE: Duration = Duration::from_millis(5);
const WARM_UP: usize = 20;
/// Runs of one operation.
const RUNS: usize = 15;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [FLOOD, socket, threads] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return flood(Path::new(socket), threads.parse().expect("a number"));
    }
    let name = std::env::var("NNHAL_MODEL").unwrap_or("mobilenet_v2_1.0_224_int8.tflite".into());
    let (threads, frames) = (setting("NNHAL_FLOOD", 4), setting("NNHAL_FRAMES", 500));
    let imported = model(&name);
    let daemon = Daemon::start();
    let mut urgent = session(&imported, &daemon.service(), Priority::HIGH);

    let alone = time(&mut urgent, &imported, frames);
    let flood = Flood::start(daemon.socket(), &name, threads);
    let flooded = time(&mut urgent, &imported, frames);
    drop(flood);
    let (operation, longest) = longest_operation(&mut model(&name), &daemon.service());

    let uids = if is_root() { "another uid" } else { "the same uid, as this is not root" };
    println!("{name}: {frames} urgent executions; a flood of {threads} threads under {uids}");
    println!("| high-priority executions | median, ms | p99, ms | longest, ms |\n|---|---|---|---|");
    for (what, Figures { median, p99, most }) in [("alone", alone), ("in the flood", flooded)] {
        println!("| {what} | {:.3} | {:.3} | {:.3} |", ms(median), ms(p99), ms(most));
    }
    println!("the longest operation, {operation}: {:.3} ms", ms(longest));
    println!("p99 grew by {:.3} ms", ms(flooded.p99.saturating_sub(alone.p99)));
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

fn session(imported: &Imported, service: &ServiceName, priority: Priority) -> Session {
    let prepare = PrepareOptions { priority, ..Default::default() };
    let mut session =
        Session::with_options(imported, service, &ServiceOptions::default(), &prepare).expect("a session");
    session.set_mode(Mode::Burst).expect("the way is open");
    session
}

fn inputs(imported: &Imported) -> Vec<Vec<u8>> {
    imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect()
}

fn time(session: &mut Session, imported: &Imported, frames: usize) -> Figures {
    let inputs = inputs(imported);
    let mut run = |_| {
        std::thread::sleep(PAUSE);
        session.run(&inputs).expect("a run").1
    };
    for i in 0..WARM_UP {
        run(i);
    }
    Figures::of(&mut (0..frames).map(run).collect::<Vec<_>>()).expect("frames")
}

/// The other client, until dropped.
struct Flood {
    _process: Process,
}

impl Flood {
    fn start(socket: &Path, model: &str, threads: usize) -> Self {
        if is_root() {
            // The other uid has to get to the socket.
            let mode = |path: &Path, mode| {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
            };
            mode(socket, 0o666);
            mode(socket.parent().expect("a directory"), 0o755);
        }
        // By this name, and with the model on its standard input, as the other uid may not see where they lie.
        let mut command = Command::new("/proc/self/exe");
        command.arg(FLOOD).arg(socket).arg(threads.to_string());
        let file = std::fs::File::open(common::model_path(model)).expect("the model");
        command.stdin(file).stdout(Stdio::piped());
        if is_root() {
            command.gid(FLOOD_UID).uid(FLOOD_UID);
        }
        let mut process = Process::start(&mut command);
        let mut told = BufReader::new(process.child().stdout.take().expect("its output"));
        for _ in 0..threads {
            let mut line = String::new();
            told.read_line(&mut line).expect("a line");
            assert_eq!(line, "floods\n", "the flood has failed");
        }
        Flood { _process: process }
    }
}

/// Executes on so many threads, until killed.
fn flood(socket: &Path, threads: usize) {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).expect("the model");
    let imported = tflite::import(&bytes).expect("a model");
    let service = ServiceName::At(Address::Unix(socket.into()));
    let run = || {
        let mut session = session(&imported, &service, Priority::LOW);
        let inputs = inputs(&imported);
        session.run(&inputs).expect("a run");
        println!("floods");
        loop {
            session.run(&inputs).expect("a run");
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
}

/// The operation that takes longest, and how long.
fn longest_operation(imported: &mut Imported, service: &ServiceName) -> (String, Duration) {
    let main = std::mem::take(&mut imported.model.main);
    let timed = main.operations.iter().enumerate().map(|(i, operation)| {
        single(imported, &main, operation);
        let mut session = session(imported, service, Priority::HIGH);
        let inputs = inputs(imported);
        let mut times: Vec<_> = (0..RUNS).map(|_| session.run(&inputs).expect("a run").1).collect();
        let name = OperationType::from_code(operation.r#type.0).map_or("unknown", |ty| ty.name());
        (format!("{i} ({name})"), Figures::of(&mut times).expect("runs").median)
    });
    timed.max_by_key(|(_, time)| *time).expect("a model has operations")
}

/// Makes of `imported`, whose graph is `main`, a model of this operation alone.
fn single(imported: &mut Imported, main: &aidl::Subgraph, operation: &aidl::Operation) {
    let mut graph = aidl::Subgraph::default();
    let mut kept = Vec::new();
    let mut keep = |old: i32, lifetime: OperandLifeTime, graph: &mut aidl::Subgraph| -> i32 {
        if let Some(new) = kept.iter().position(|&kept| kept == old) {
            return new as i32;
        }
        kept.push(old);
        let operand = aidl::Operand { lifetime, ..main.operands[old as usize].clone() };
        let new = graph.operands.len() as i32;
        match lifetime {
            OperandLifeTime::SUBGRAPH_INPUT => graph.inputIndexes.push(new),
            OperandLifeTime::SUBGRAPH_OUTPUT => graph.outputIndexes.push(new),
            _ => {}
        }
        graph.operands.push(operand);
        new
    };
    let computed = [OperandLifeTime::TEMPORARY_VARIABLE, OperandLifeTime::SUBGRAPH_OUTPUT];
    let mut alone = aidl::Operation { r#type: operation.r#type, ..Default::default() };
    for &input in &operation.inputs {
        let lifetime = main.operands[input as usize].lifetime;
        let lifetime = if computed.contains(&lifetime) { OperandLifeTime::SUBGRAPH_INPUT } else { lifetime };
        alone.inputs.push(keep(input, lifetime, &mut graph));
    }
    for &output in &operation.outputs {
        alone.outputs.push(keep(output, OperandLifeTime::SUBGRAPH_OUTPUT, &mut graph));
    }
    let ports = |indices: &[i32]| indices.iter().map(|&i| port(&graph.operands[i as usize])).collect();
    (imported.inputs, imported.outputs) = (ports(&graph.inputIndexes), ports(&graph.outputIndexes));
    graph.operations.push(alone);
    imported.model.main = graph;
}

fn port(operand: &aidl::Operand) -> Port {
    let dims: Vec<u32> = operand.dimensions.iter().map(|&dim| dim as u32).collect();
    let ty = OperandType::from_code(operand.r#type.0).expect("a type");
    let info = TensorInfo::quantised(ty, &dims, operand.scale, operand.zeroPoint);
    Port { name: String::new(), dims, info }
}
