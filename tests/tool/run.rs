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

/// The last line of what the tool prints, which is JSON.
#[track_caller]
fn json(arguments: &[&str]) -> serde_json::Value {
    let told = succeeded(&nnhal(arguments).output().expect("started"));
    serde_json::from_str(told.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn a_run_as_json_has_its_times_and_what_came_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = dir.path().to_str().expect("a name in UTF-8");
    for (arguments, hit) in [
        (&["run", MODEL, "--runs", "3", "--json"][..], serde_json::Value::Null),
        (&["run", MODEL, "--runs", "3", "--json", "--cache", cache], false.into()),
        (&["run", MODEL, "--runs", "3", "--json", "--cache", cache], true.into()),
    ] {
        let told = json(arguments);
        assert_eq!((&told["runs"], &told["cache_hit"]), (&3.into(), &hit), "{told}");
        let time = |name: &str| told[name].as_f64().unwrap_or_else(|| panic!("{name}: {told}"));
        assert!(0.0 < time("fastest_ms") && time("fastest_ms") <= time("median_ms"), "{told}");
        assert!(time("median_ms") <= time("slowest_ms") && time("compile_ms") > 0.0, "{told}");
        let [output] = &told["outputs"].as_array().expect("outputs")[..] else { panic!("{told}") };
        assert_eq!(
            (&output["type"], &output["dims"]),
            (&"TENSOR_QUANT8_ASYMM_SIGNED".into(), &serde_json::json!([1, 10]))
        );
        assert!(
            output["values"].as_array().is_some_and(|values| values.iter().all(|v| v.is_f64())),
            "{output}"
        );
        let classes = output["classes"].as_array().expect("classes");
        assert!(
            classes.len() == 5 && classes.is_sorted_by_key(|c| -c["score"].as_f64().expect("a score")),
            "{output}"
        );
        assert!(told.get("inputs").is_none() && told.get("accuracy").is_none(), "{told}");
    }
}

#[test]
fn runs_on_many_inputs_as_json_have_a_line_for_each() {
    let told = json(&["run", MODEL, "--input", "tests/data/digits", "--json"]);
    let inputs = told["inputs"].as_array().expect("inputs");
    assert!(inputs.len() > 1 && told.get("outputs").is_none(), "{told}");
    assert_eq!(told["runs"], inputs.len());
    let right = inputs.iter().filter(|input| input["label"] == input["best"]["class"]).count();
    assert!(inputs.iter().all(|input| input["file"].is_string() && input["label"].is_u64()), "{told}");
    assert_eq!(told["accuracy"], serde_json::json!({ "right": right, "labelled": inputs.len() }));
}

#[test]
fn a_model_that_is_not_cached_yet_is_no_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = dir.path().to_str().expect("a name in UTF-8");
    for expected in ["cache miss: compiled and saved", "cache hit"] {
        let output = nnhal(&["run", MODEL, "--cache", cache]).output().expect("started");
        let told = succeeded(&output);
        assert!(told.contains(expected), "{told}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn times_are_told_where_a_file_beside_them_cannot_be_written() {
    for (arguments, named) in [
        (&["run", MODEL, "--output-dir", "/dev/null/out"][..], "/dev/null/out"),
        (&["run", MODEL, "--trace", "/nonexistent/trace"], "/nonexistent/trace"),
        (&["bench", MODEL, "--runs", "5", "--trace", "/nonexistent/trace"], "/nonexistent/trace"),
    ] {
        let output = nnhal(&[arguments, &["--json"]].concat()).output().expect("started");
        let (told, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}{why}");
        assert!(why.contains(named) && why.lines().count() == 1, "{why}");
        let figures: serde_json::Value =
            serde_json::from_str(told.lines().last().expect("a line")).expect("JSON");
        assert!(told.contains("ran ") && figures["median_ms"].as_f64() > Some(0.0), "{told}");
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

#[test]
fn a_benchmark_of_a_compilation_at_the_first_run_loads_from_files_all_the_same() {
    let output = nnhal(&["bench", MODEL, "--runs", "5", "--just-in-time"]).output().expect("started");
    let (told, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("loaded from cache in"), "{told}{faults}");
}
