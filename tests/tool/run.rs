//! The tool as a process: the ways to run a model, and an output that nobody reads.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MODES: [&str; 5] = ["sync", "fenced", "burst", "reusable", "fmq"];
const MODEL: &str = "models/digits_int8.tflite";

fn nnhal(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("RUST_LOG");
    command
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {out}{err}", output.status);
    out.into_owned()
}

fn digits() -> Vec<PathBuf> {
    let found = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/digits"));
    let mut files: Vec<_> = found.expect("the digits").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn every_mode_gives_the_same_outputs() {
    let dir = tempfile::tempdir().expect("a directory");
    let digit = digits().into_iter().find(|file| file.extension().is_some_and(|e| e == "png"));
    let digit = digit.expect("a digit").display().to_string();
    let outputs = MODES.map(|mode| {
        let to = dir.path().join(mode);
        let to = to.to_str().expect("a name in UTF-8");
        let arguments = ["run", MODEL, "--input", &digit, "--runs", "3", "--mode", mode, "--output-dir", to];
        let told = succeeded(&nnhal(&arguments).output().expect("started"));
        assert!(told.contains("ran 3 times"), "{mode}: {told}");
        std::fs::read(Path::new(to).join("output0.npy")).expect("an output")
    });
    for (mode, output) in MODES.iter().zip(&outputs) {
        assert_eq!(output, &outputs[0], "{mode}");
    }
}

#[test]
fn a_bench_runs_as_often_as_it_is_told_in_every_mode() {
    for mode in MODES {
        let output = nnhal(&["bench", MODEL, "--runs", "20", "--mode", mode, "--json"]).output();
        let told = succeeded(&output.expect("started"));
        assert!(told.contains("ran 20 times"), "{mode}: {told}");
        let figures: serde_json::Value =
            serde_json::from_str(told.lines().last().expect("a line")).expect("JSON");
        assert!(figures["p99_ms"].as_f64().expect("a number") > 0.0, "{mode}: {told}");
    }
}

#[test]
fn it_ends_quietly_where_nobody_reads() {
    for arguments in [&["run", MODEL][..], &["bench", MODEL, "--runs", "1"]] {
        let mut child =
            nnhal(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ended");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
