//! The report of a conformance run, as it is sent around, and what is told of two of them.
use crate::common::corpus::*;
use serde_json::{json, Value};
use std::path::Path;
use std::process::{Command, Output};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn report(corpus: &Corpus, name: &str) -> std::path::PathBuf {
    let directory = corpus.path(name);
    let suites = "general,deadline";
    corpus.run(&["--suite", suites, "--paths", "sync", "--report", directory.to_str().expect("UTF-8")]);
    directory
}

fn diff(before: &Path, after: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    command.args(["conformance", "--diff"]).arg(before).arg(after).env_remove("RUST_LOG");
    command.output().expect("the tool starts")
}

#[test]
fn a_failure_is_laid_out_and_repeats() {
    let corpus = Corpus::new(2, [-1.0, 2.0]);
    let directory = report(&corpus, "report");
    let json: Value = serde_json::from_str(&read(&directory.join("report.json"))).expect("JSON");
    assert_eq!((&json["passed"], &json["failed"]), (&json!(0), &json!(4)));
    assert!(json["driver"]["version"].as_str().is_some_and(|version| !version.is_empty()), "{json}");
    assert!(json["driver"]["performance"].as_array().is_some_and(|rows| rows.len() > 4), "{json}");
    let floor =
        json!({"operation": "FLOOR", "type": "TENSOR_FLOAT32", "passed": 0, "failed": 4, "skipped": 0});
    let mut row = json["operations"][0].clone();
    assert!(row.as_object_mut().and_then(|row| row.remove("seconds")).is_some());
    assert_eq!(row, floor);

    let failure = directory.join("failures/general/floor_1");
    assert_eq!(json["results"][3]["directory"], json!("failures/general/floor_1"));
    for (name, values) in [("input0", [-0.5f32, 1.5]), ("expected0", [-1.0, 2.0]), ("actual0", [-1.0, 1.0])] {
        let bytes = std::fs::read(failure.join(format!("{name}.npy"))).expect(name);
        assert!(bytes.ends_with(&values.map(f32::to_le_bytes).concat()), "{name}");
    }
    assert!(read(&failure.join("why.txt")).contains("element 1 is 1, expected 2"));
    // The tool is where the user's PATH says.
    let tool = Path::new(env!("CARGO_BIN_EXE_nnhal")).parent().expect("a directory");
    let path = format!("{}:{}", tool.display(), std::env::var("PATH").unwrap_or_default());
    let repeated = Command::new("sh").arg(failure.join("repeat.sh")).env("PATH", path).output();
    assert_ends(&repeated.expect("sh"), 1, "0 passed, 1 failed, 0 skipped");

    let page = read(&directory.join("report.html"));
    for part in ["0 passed, 4 failed, 0 skipped", "floor_1", "FLOOR", "failures/general/floor_1/why.txt"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
}

#[test]
fn a_report_is_not_mixed_with_another() {
    let corpus = Corpus::new(1, [-1.0, 1.0]);
    let directory = report(&corpus, "report");
    let again = corpus.run(&["--report", directory.to_str().expect("UTF-8")]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("has a report already"));
}

#[test]
fn what_changed_is_told_and_new_failures_fail() {
    let (right, wrong) = (Corpus::new(2, [-1.0, 1.0]), Corpus::new(1, [-1.0, 2.0]));
    let good = report(&right, "report").join("report.json");
    let bad = report(&wrong, "report").join("report.json");
    let worse = diff(&good, &bad);
    let last = "2 newly failing, 0 newly passing, 0 newly skipped, 2 missing, 0 slower, 0 unchanged";
    assert_ends(&worse, 1, last);
    let stdout = text(&worse.stdout);
    assert!(stdout.contains("NEWLY FAILING deadline/floor_0: passed -> failed (sync, deadline"), "{stdout}");
    assert!(stdout.contains("missing general/floor_1"), "{stdout}");
    let better = diff(&bad, &good);
    let last = "0 newly failing, 2 newly passing, 0 newly skipped, 0 missing, 0 slower, 0 unchanged";
    assert_ends(&better, 0, last);
    assert!(text(&better.stdout).contains("new general/floor_1"));
    assert_eq!(diff(&good, &good).status.code(), Some(0));
    let missing = diff(&good, Path::new("/nonexistent/report.json"));
    assert_eq!((missing.status.code(), text(&missing.stderr).lines().count()), (Some(2), 1));
}
