//! The conformance runner as scripts use it: what it prints, and its exit code, when models pass, fail, are left out, and
//! when the driver dies under it.
use crate::common::corpus::*;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn right_results_pass_in_every_suite() {
    let corpus = Corpus::new(3, [-1.0, 1.0]);
    let json = corpus.path("report.json");
    let suites = "general,dynamic_shape,validation,deadline";
    let output = corpus.run(&["--suite", suites, "--json", json.to_str().expect("UTF-8"), "--jobs", "2"]);
    assert_ends(&output, 0, "12 passed, 0 failed, 0 skipped");
    let report = std::fs::read_to_string(&json).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["passed"], 12);
    assert_eq!(report["suites"]["validation"]["passed"], 3);
    assert_eq!(report["results"].as_array().map(Vec::len), Some(12));
    assert!(report["paths"].as_array().is_some_and(|paths| paths.contains(&json!("sync"))));
}

#[test]
fn wrong_results_fail_and_say_why() {
    let corpus = Corpus::new(2, [-1.0, 2.0]);
    let output = corpus.run(&["--suite", "general,deadline", "--paths", "sync"]);
    assert_ends(&output, 1, "0 passed, 4 failed, 0 skipped");
    let stdout = text(&output.stdout);
    let line = "FAILED general/floor_0: sync: output 0 (out): element 1 is 1, expected 2 (1 of 2 wrong)";
    assert!(stdout.lines().any(|l| l == line), "{stdout}");
    assert!(stdout.contains("left out: sync-config: not asked for"), "{stdout}");
}

#[test]
fn a_filter_chooses_and_nothing_chosen_is_no_run() {
    let corpus = Corpus::new(3, [-1.0, 1.0]);
    let output = corpus.run(&["--suite", "general", "--filter", "_[01]$"]);
    assert_ends(&output, 0, "2 passed, 0 failed, 0 skipped");
    let output = corpus.run(&["--filter", "nothing_like_it"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn our_driver_stands_what_no_honest_client_sends() {
    let corpus = Corpus::new(1, [-1.0, 1.0]);
    let output = corpus.run(&["--suite", "hostile"]);
    assert_ends(&output, 0, "33 passed, 0 failed, 0 skipped");
}

#[test]
fn bad_arguments_and_files_are_one_line_and_no_run() {
    let corpus = Corpus::new(1, [-1.0, 1.0]);
    std::fs::write(corpus.path("broken.nnt"), b"NNTCORP2 and so on").expect("write");
    let output = corpus.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.lines().count() == 1 && stderr.contains("broken.nnt: not a corpus file"), "{stderr}");
    let output = corpus.run(&["--service", "unix:/nonexistent/nn.sock"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn results_are_printed_where_they_cannot_be_written() {
    let corpus = Corpus::new(2, [-1.0, 1.0]);
    let output = corpus.run(&["--suite", "general", "--json", "/nonexistent/report.json"]);
    assert_ends(&output, 2, "2 passed, 0 failed, 0 skipped");
    assert!(text(&output.stderr).contains("/nonexistent/report.json"), "{}", text(&output.stderr));
}

#[test]
fn what_a_driver_is_asked_to_refuse_is_not_logged() {
    let corpus = Corpus::new(0, [-1.0, 1.0]);
    let operands = [
        operand("lookups", "TENSOR_INT32", &[1], 0),
        operand("values", "TENSOR_FLOAT32", &[2, 1], 4),
        operand("out", "TENSOR_FLOAT32", &[1, 1], 12),
    ];
    let model = model("no_such_row", "EMBEDDING_LOOKUP", &["cts_expect_failure"], &operands);
    write_corpus(&corpus.path("lookup.nnt"), std::iter::once(model), &[9; 16]);
    let output = corpus.run(&["--suite", "cts_expect_failure"]);
    assert_ends(&output, 0, "1 passed, 0 failed, 0 skipped");
    assert_eq!(text(&output.stderr), "");
    let output = corpus.command(&["--suite", "cts_expect_failure"]).env("RUST_LOG", "warn").output();
    let stderr = text(&output.expect("the tool starts").stderr);
    assert!(stderr.contains("EMBEDDING_LOOKUP"), "there is something to be silent of: {stderr}");
}

#[test]
fn nobody_reading_is_a_quiet_end() {
    let corpus = Corpus::new(3, [-1.0, 2.0]);
    let mut info = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    info.arg("info").env_remove("RUST_LOG");
    for mut command in [corpus.command(&["--suite", "general"]), info] {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the tool ends");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), String::new()));
    }
}

#[test]
fn a_driver_killed_in_the_middle_is_named_and_nothing_hangs() {
    // Far more models than are run before the end, each with a line of its own.
    let corpus = Corpus::new(20_000, [-1.0, 2.0]);
    let socket = corpus.path("nn.sock");
    let service = format!("unix:{}", socket.display());
    let daemon = Command::new(env!("CARGO_BIN_EXE_nnhald"))
        .args(["--service", &service, "--data"])
        .arg(corpus.path("data"))
        .stderr(Stdio::null())
        .spawn();
    let mut daemon = Killed(daemon.expect("the daemon starts"));
    let start = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the daemon does not serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut command = corpus.command(&["--suite", "general", "--service", &service, "--wait", "0"]);
    let mut runner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
    let mut lines = BufReader::new(runner.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.starts_with("FAILED general/floor_"), "{first}");
    daemon.0.kill().expect("kill the daemon");
    lines.for_each(|line| drop(line.expect("UTF-8")));
    let output = runner.wait_with_output().expect("the runner ends");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the driver died during"), "{stderr}");
    assert!(stderr.contains("while running general/floor_"), "{stderr}");
}
