//! The kit for backends, over the CPU in a process of its own: alone in its process, as it counts what that holds.

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nnhal::isolation::Isolated;
use nnhal::testing::Kit;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_backend_in_a_process_of_its_own_keeps_to_every_rule() {
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nnhald"));
        command.args(["--threads", "2", "--serve-backend"]);
        command
    };
    let backend = Arc::new(Isolated::start(command).expect("a process"));
    let process = backend.clone();
    let lose = move || {
        // Stopped first: whatever is executed then does not end before the process does.
        let process = Pid::from_raw(process.process().expect("it is there") as i32);
        kill(process, Signal::SIGSTOP).expect("stopped");
        std::thread::sleep(Duration::from_millis(100));
        kill(process, Signal::SIGKILL).expect("killed");
    };
    let report = Kit::new(backend).losing(lose).check().passed();
    println!("{report}");
    assert!(report.refused.is_empty() && report.untried.is_empty(), "{report}");
}
