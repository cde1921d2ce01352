//! The models, all of them, as a test of the workspace.

use std::process::Command;

#[test]
fn every_model_holds() {
    let status = Command::new(env!("CARGO_BIN_EXE_models")).status().expect("the models start");
    assert!(status.success(), "{status}");
}
