//! A daemon that may have little memory: what asks for more is refused, and nobody else notices.

use crate::campaign::FIRST_USER;
use crate::common::{ashmem, bytes_of, floats, memfd, operand, request, status, Connection, PATIENCE};
use crate::daemon::{wait_until, Daemon};
use crate::innocent::innocent;
use nnhal::aidl::*;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the greedy client's process: the daemon's socket.
const GREEDY: &str = "NNHAL_TEST_GREEDY_CLIENT";
/// What each value of the greedy client's results is.
const VALUE: f32 = 2.5;
/// Memory that the daemon may have.
const ADDRESS_SPACE_MIB: u64 = 512;
const CGROUP_MIB: u64 = 384;
/// The weights of a model that has more than either leaves to one client.
const WEIGHTS_MIB: i32 = 600;
/// How long an innocent client looks on; the greedy one takes less.
const TIME: Duration = Duration::from_secs(6);

/// Fills a tensor of so many floats with one, and gives the largest.
fn filling_model(count: i32) -> Model {
    use OperandLifeTime as L;
    use OperandType as T;
    let constant = |ty, dims: &[i32], offset, length| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand(ty, dims, L::CONSTANT_COPY)
    };
    let operands = vec![
        constant(T::TENSOR_INT32, &[1], 0, 4),
        operand(T::FLOAT32, &[], L::SUBGRAPH_INPUT),
        operand(T::TENSOR_FLOAT32, &[count], L::TEMPORARY_VARIABLE),
        constant(T::TENSOR_INT32, &[1], 4, 4), // axis 0
        constant(T::BOOL, &[], 8, 1),          // keep no dimensions
        operand(T::TENSOR_FLOAT32, &[1], L::SUBGRAPH_OUTPUT),
    ];
    let operation = |ty, inputs, output| Operation { r#type: ty, inputs, outputs: vec![output] };
    let operations = vec![
        operation(OperationType::FILL, vec![0, 1], 2),
        operation(OperationType::REDUCE_MAX, vec![2, 3, 4], 5),
    ];
    let main = Subgraph { operands, operations, inputIndexes: vec![1], outputIndexes: vec![5] };
    let values = [&count.to_le_bytes()[..], &[0; 5]].concat();
    Model { main, operandValues: values, ..Default::default() }
}

/// A fully connected layer of so many MiB of weights, in memory of which its client fills nothing.
fn layer_of_nothing(mib: i32) -> Model {
    use OperandLifeTime as L;
    use OperandType as T;
    const INPUTS: i32 = 1 << 18;
    let bytes = i64::from(mib) << 20;
    let memory = memfd(&[]);
    memory.set_len(bytes as u64 + 4096).expect("a length");
    let constant = |ty, dims: &[i32], offset, length| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand(ty, dims, L::CONSTANT_POOL)
    };
    let operands = vec![
        operand(T::TENSOR_FLOAT32, &[1, INPUTS], L::SUBGRAPH_INPUT),
        constant(T::TENSOR_FLOAT32, &[mib, INPUTS], 0, bytes),
        constant(T::TENSOR_FLOAT32, &[mib], bytes, 4 * i64::from(mib)),
        constant(T::INT32, &[], bytes + 4092, 4),
        operand(T::TENSOR_FLOAT32, &[1, mib], L::SUBGRAPH_OUTPUT),
    ];
    let operation =
        Operation { r#type: OperationType::FULLY_CONNECTED, inputs: vec![0, 1, 2, 3], outputs: vec![4] };
    let main =
        Subgraph { operands, operations: vec![operation], inputIndexes: vec![0], outputIndexes: vec![4] };
    Model { main, pools: vec![ashmem(&memory, bytes + 4096)], ..Default::default() }
}

fn is_exhausted(status: ErrorStatus) -> bool {
    [ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT].contains(&status)
}

/// Runs models with tensors of 1 MiB and twice as much each time, to 1 GiB; how many of these runs were made, and how many
/// refused, be it as the model was prepared.
fn runs(connection: &Connection) -> (usize, usize) {
    let (mut made, mut refused) = (0, 0);
    for exponent in 18..=28 {
        let (launch, (told, model)) = connection.launch(&filling_model(1 << exponent));
        launch.expect("launched");
        let (request, output) = request(&floats(&[VALUE]), 4);
        let status = match model {
            Some(model) => status(&model.executeSynchronously(&request, false, -1, -1)),
            None => told,
        };
        match status {
            ErrorStatus::NONE => {
                assert_eq!(bytes_of(&output), floats(&[VALUE]), "the largest of 2^{exponent}");
                made += 1;
            }
            other => {
                assert!(is_exhausted(other), "2^{exponent} floats: {other:?}");
                refused += 1;
            }
        }
    }
    (made, refused)
}

/// Not a test by itself: a client that asks for more and more memory, some of it on several threads at once.
#[test]
#[ignore = "the greedy client of tests that limit the daemon"]
fn asks_for_more_and_more() {
    const THREADS: usize = 2;
    let Some(socket) = std::env::var_os(GREEDY) else { return };
    let connection = Connection::new(Path::new(&socket));
    let (made, refused) = runs(&connection);
    assert!(made > 0 && refused > 0, "{made} runs were made and {refused} refused");
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| assert!(runs(&connection).1 > 0, "it has all that it asks for"));
        }
    });
    // The call itself fails where so much cannot even be mapped.
    let (_, (told, _)) = connection.launch(&layer_of_nothing(WEIGHTS_MIB));
    assert!(is_exhausted(told), "{WEIGHTS_MIB} MiB of weights: {told:?}");
    wait_until("what it held is given back", || runs(&connection) == (made, refused));
}

/// Starts the greedy client, as another user where there is one.
fn start_greedy(daemon: &Daemon, is_root: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--ignored", "--exact", "limits::asks_for_more_and_more"])
        .env(GREEDY, daemon.socket())
        .stdout(Stdio::piped());
    if is_root {
        command.uid(FIRST_USER).gid(FIRST_USER);
    }
    command.spawn().expect("a client")
}

/// Has a greedy client ask a daemon that is limited by what a shell does for more than there is, beside an innocent one.
fn a_greedy_client_hurts_nobody(limit: &str) {
    let is_root = nix::unistd::geteuid().is_root();
    let daemon = Daemon::start_for_all_under(limit);
    daemon.serves_an_honest_client();
    let mut greedy = start_greedy(&daemon, is_root);
    let seen = innocent(&daemon, TIME, || ());
    let started = Instant::now();
    while greedy.try_wait().expect("a child").is_none() && started.elapsed() < 2 * PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = greedy.kill(); // it has ended, or takes too long
    let mut told = String::new();
    greedy.stdout.take().expect("piped").read_to_string(&mut told).expect("text");
    assert!(greedy.wait().expect("ended").success(), "the greedy client: {told}");
    seen.print("beside it", None);
    seen.assert_right("beside it", is_root);
    daemon.serves_an_honest_client();
}

#[test]
fn an_address_space_that_is_limited_is_shared_out() {
    a_greedy_client_hurts_nobody(&format!("ulimit -v {}", ADDRESS_SPACE_MIB << 10));
}

/// A cgroup below this process's, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// One that may have so much memory.
    fn new(bytes: u64) -> Self {
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("cgroups");
        let path_of = |line: &str| -> Option<(PathBuf, &'static str)> {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            match controllers {
                "memory" => Some((Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes")),
                "" => Some((Path::new("/sys/fs/cgroup").join(path), "memory.max")),
                _ => None,
            }
        };
        let made = own.lines().filter_map(path_of).find_map(|(parent, limit)| {
            let group = Cgroup(parent.join(format!("nnhal-test-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        });
        made.expect("a cgroup that limits memory")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes may take a moment to go.
        let start = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "makes a cgroup, as root: tests/ignored.sh cgroups"]
fn a_cgroup_that_is_limited_is_shared_out() {
    let group = Cgroup::new(CGROUP_MIB << 20);
    a_greedy_client_hurts_nobody(&format!("echo $$ > '{}'", group.0.join("cgroup.procs").display()));
}
