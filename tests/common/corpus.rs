//! Small corpora, and the tool run over them.

use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// A model of one operation that works on operands of `data`.
pub fn model(name: &str, operation: &str, kinds: &[&str], operands: &[Value]) -> Value {
    let last = operands.len() - 1;
    let inputs: Vec<usize> = (0..last).collect();
    json!({
        "name": name, "folder": "V1_0", "spec": "spec", "aidl_version": 0, "feature_level": 1,
        "relaxed": false,
        "expect_failure": kinds.contains(&"cts_expect_failure"), "multinomial_tolerance": 0.0,
        "f32_tolerance": "f32", "quant8_atol": 1, "kinds": kinds, "ops": [operation],
        "main": {
            "inputs": inputs, "outputs": [last], "operands": operands,
            "operations": [{"type": operation, "inputs": inputs, "outputs": [last]}],
        },
    })
}

/// An operand whose bytes are at `at`.
pub fn operand(name: &str, ty: &str, dims: &[u32], at: usize) -> Value {
    let lifetime = if name == "out" { "SUBGRAPH_OUTPUT" } else { "SUBGRAPH_INPUT" };
    let length = 4 * dims.iter().product::<u32>();
    json!({
        "name": name, "type": ty, "dims": dims, "lifetime": lifetime, "consumers": 1, "data": [at, length],
    })
}

/// `count` models FLOOR([-0.5, 1.5]), with this for an expected value.
pub fn write_floors(path: &Path, count: usize, expected: [f32; 2]) {
    let kinds = ["general", "dynamic_shape", "validation", "deadline"];
    let operands = [operand("in", "TENSOR_FLOAT32", &[2], 0), operand("out", "TENSOR_FLOAT32", &[2], 8)];
    let models = (0..count).map(|i| model(&format!("floor_{i}"), "FLOOR", &kinds, &operands));
    let values = [-0.5f32, 1.5, expected[0], expected[1]];
    write_corpus(path, models, &values.map(f32::to_le_bytes).concat());
}

pub fn write_corpus(path: &Path, models: impl Iterator<Item = Value>, blob: &[u8]) {
    let lines: Vec<String> = models.map(|model| model.to_string()).collect();
    let json = lines.join("\n");
    let blob_at = (64 + json.len()).next_multiple_of(64);
    let mut file = b"NNTCORP1".to_vec();
    file.extend(1u32.to_le_bytes());
    file.extend((lines.len() as u32).to_le_bytes());
    for word in [64, json.len(), blob_at, blob.len()] {
        file.extend((word as u64).to_le_bytes());
    }
    file.resize(64, 0);
    file.extend(json.as_bytes());
    file.resize(blob_at, 0);
    file.extend(blob);
    std::fs::write(path, file).expect("write the corpus");
}

/// A directory with a corpus.
pub struct Corpus {
    pub dir: tempfile::TempDir,
}

impl Corpus {
    pub fn new(count: usize, expected: [f32; 2]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        write_floors(&dir.path().join("floor.nnt"), count, expected);
        Corpus { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
        command.arg("conformance").arg(self.dir.path()).args(more).env_remove("RUST_LOG");
        command
    }

    pub fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().expect("the tool starts")
    }
}

/// What was printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub fn assert_ends(output: &Output, code: i32, last_line: &str) {
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{all}");
    assert_eq!(text(&output.stdout).lines().last(), Some(last_line), "{all}");
}

/// A process that ends with this.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
