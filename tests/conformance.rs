//! The conformance tool over every backend that a driver of the tests can have: which one, [`common::BACKEND`] says, and
//! `NNHAL_SERVICE` may name another driver instead.
//!
//! A small corpus is run always. The whole one takes minutes, and is run over each backend, the sample NPU among them, by
//!
//!     tests/every_backend.sh CORPUS
//!
//! or over one of them by
//!
//!     NNHAL_TEST_BACKEND=asynchronous NNHAL_VTS=CORPUS cargo test --locked --test conformance -- --ignored --nocapture

#![cfg(feature = "tool")]

mod common;

use common::corpus::{assert_ends, text, Corpus};
use common::Harness;
use std::path::Path;
use std::process::Command;

/// The tool over a corpus, which a driver with the backend asked for computes.
fn conformance(harness: &Harness, corpus: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    let service = harness.endpoint().to_string();
    command.args(["--service", &service, "conformance"]).arg(corpus).env_remove("RUST_LOG");
    command
}

#[test]
fn a_small_corpus_passes_every_way() {
    let (harness, corpus) = (Harness::new(), Corpus::new(3, [-1.0, 1.0]));
    let output = conformance(&harness, corpus.dir.path()).output().expect("the tool starts");
    let told = text(&output.stdout);
    assert_ends(&output, 0, "15 passed, 0 failed, 0 skipped");
    // Every way of execution is the driver's own, whatever its backend.
    let executed = told.lines().find(|line| line.starts_with("executed by:")).expect("the ways");
    for way in ["sync", "reusable", "burst", "fenced", "fenced-reusable", "fmq"] {
        assert!(executed.contains(&format!(" {way}")), "{way}: {told}");
    }
}

#[test]
#[ignore = "takes minutes: tests/every_backend.sh runs it"]
fn the_whole_corpus_passes() {
    let corpus = std::env::var_os("NNHAL_VTS").expect("NNHAL_VTS names the directory of the corpus");
    let harness = Harness::new();
    let status = conformance(&harness, Path::new(&corpus)).status().expect("the tool starts");
    assert!(status.success(), "{status}");
}
