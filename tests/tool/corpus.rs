//! Corpora made of a checkout: what the tool reads of example sources, and what it says where it cannot.
use crate::common::corpus::{assert_ends, text};
use serde_json::{json, Value};
use std::path::Path;
use std::process::{Command, Output};

/// An operand as a generator writes it.
fn operand(label: &str, ty: &str, lifetime: &str, dims: &str, data: &str, more: &[(&str, &str)]) -> String {
    let value =
        |name, default| more.iter().find(|(field, _)| *field == name).map_or(default, |(_, value)| *value);
    format!(
        "{{ // {label}\n.type = TestOperandType::{ty},\n.dimensions = {{{dims}}},\n.numberOfConsumers = {},\n\
         .scale = {},\n.zeroPoint = {},\n.lifetime = TestOperandLifeTime::{lifetime},\n.channelQuant = {},\n\
         .isIgnored = {},\n.data = TestBuffer::createFromVector<{data}\n}}",
        value("consumers", "1"),
        value("scale", "0.0f"),
        value("zeroPoint", "0"),
        value("channelQuant", "{}"),
        value("isIgnored", "false"),
    )
}

fn graph(operands: &[String], operation: &str, inputs: &str, outputs: &str, main: (&str, &str)) -> String {
    format!(
        ".operands = {{{}}},\n.operations = {{{{\n.type = TestOperationType::{operation},\n.inputs = {{{inputs}}},\n\
         .outputs = {{{outputs}}}\n}}}},\n.inputIndexes = {{{}}},\n.outputIndexes = {{{}}}\n",
        operands.join(", "),
        main.0,
        main.1
    )
}

fn source(name: &str, graph: &str, referenced: &str, relaxed: bool, version: &str) -> String {
    format!(
        "namespace generated_tests::x {{\n\nconst TestModel& get_{name}() {{\n    static TestModel model = {{\n\
         .main = {{\n{graph}}},\n.referenced = {referenced},\n.isRelaxed = {relaxed},\n\
         .expectedMultinomialDistributionTolerance = 0,\n.expectFailure = false,\n\
         .minSupportedVersion = TestHalVersion::{version}\n    }};\n    return model;\n}}\n\n\
         const auto dummy_{name} = TestModelManager::get().add(\"{name}\", get_{name}());\n\n\
         }}  // namespace generated_tests::x\n\n"
    )
}

fn tool(from: &Path, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    command.arg("corpus").arg("--from").arg(from).arg("--out").arg(out).env_remove("RUST_LOG");
    command.output().expect("the tool starts")
}

/// The models of a corpus file, and its operand bytes.
fn read(path: &Path) -> (Vec<Value>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let json = std::str::from_utf8(&bytes[word(16)..word(16) + word(24)]).expect("UTF-8");
    let models = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(bytes.len(), word(32) + word(40));
    (models, bytes[word(32)..].to_vec())
}

fn bytes<'b>(blob: &'b [u8], operand: &Value) -> &'b [u8] {
    let place = |i: usize| operand["data"][i].as_u64().expect("data") as usize;
    &blob[place(0)..place(0) + place(1)]
}

#[test]
fn examples_become_a_corpus_that_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let specs = dir.path().join("runtime/test/generated/spec_V1_2");
    std::fs::create_dir_all(&specs).expect("made");
    let floors = |first: &str, lifetime: &str, data: &str| {
        [
            operand("x", first, lifetime, "2", data, &[]),
            operand("y", first, "SUBGRAPH_OUTPUT", "2", "float>({-1.0f, 1.0f})", &[("consumers", "0")]),
        ]
    };
    let plain = floors("TENSOR_FLOAT32", "SUBGRAPH_INPUT", "float>({-0.5f, 1.5f})");
    let plain = source("floors", &graph(&plain, "FLOOR", "0", "1", ("0", "1")), "{}", false, "V1_0");
    // The same, with its input computed.
    let mut made = floors("TENSOR_FLOAT32", "TEMPORARY_VARIABLE", "float>({})").to_vec();
    made.push(operand("x_new", "TENSOR_FLOAT32", "SUBGRAPH_INPUT", "2", "float>({-0.5f, 1.5f})", &[]));
    made.push(operand("placeholder", "TENSOR_FLOAT32", "CONSTANT_COPY", "1", "float>({0.0f})", &[]));
    made.push(operand("param", "INT32", "CONSTANT_COPY", "", "int32_t>({0})", &[]));
    let made = graph(&made, "FLOOR", "0", "1", ("2", "1")).replace(
        ".operations = {{",
        ".operations = {{\n.type = TestOperationType::ADD,\n.inputs = {2, 3, 4},\n.outputs = {0}\n}, {",
    );
    let made = source("floors_all_inputs_as_internal", &made, "{}", false, "V1_0");
    let quant = [
        operand(
            "a",
            "TENSOR_QUANT8_ASYMM",
            "SUBGRAPH_INPUT",
            "2",
            "uint8_t>({128, 130})",
            &[("scale", "0.1f"), ("zeroPoint", "128")],
        ),
        operand(
            "b",
            "TENSOR_FLOAT16",
            "SUBGRAPH_OUTPUT",
            "2",
            "_Float16>({0.0f, 0.2f})",
            &[("consumers", "0"), ("isIgnored", "true")],
        ),
    ];
    let quant = graph(&quant, "DEQUANTIZE", "0", "1", ("0", "1"));
    let quant = source("floors_other", &quant, "{}", true, "UNKNOWN");
    std::fs::write(specs.join("floors.example.cpp"), plain + &made + &quant).expect("written");

    let out = dir.path().join("corpus");
    let output = tool(dir.path(), &out);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (models, blob) = read(&out.join("V1_2/floors.nnt"));
    let [plain, made, other] = &models[..] else { panic!("{models:?}") };
    let kinds = json!(["general", "memory_domain", "fenced", "deadline", "dynamic_shape", "validation"]);
    assert_eq!(plain["kinds"], kinds);
    assert_eq!(
        (&plain["feature_level"], &plain["f32_tolerance"], &plain["variant"]),
        (&json!(1), &json!("f32"), &json!(""))
    );
    let x = &plain["main"]["operands"][0];
    assert_eq!(
        (&x["name"], bytes(&blob, x)),
        (&json!("x"), &[-0.5f32, 1.5].map(f32::to_le_bytes).concat()[..])
    );
    assert_eq!(
        (&made["auto"], &made["base"], &made["moved"], &made["variant"]),
        (&json!(["all_inputs_as_internal"]), &json!("floors"), &json!([0]), &json!("all_inputs_as_internal"))
    );
    assert!(made["main"]["operands"][0].get("data").is_none(), "{made}");
    assert_eq!(
        (&other["feature_level"], &other["f32_tolerance"], &other["min_version"]),
        (&json!(3), &json!("f16"), &json!("UNKNOWN"))
    );
    let [a, b] = [&other["main"]["operands"][0], &other["main"]["operands"][1]];
    assert_eq!((&a["zero_point"], a["scale"].as_f64()), (&json!(128), Some(f64::from(0.1f32))));
    assert_eq!((&b["ignored"], bytes(&blob, b)), (&json!(true), &[0, 0, 0x66, 0x32][..]));

    let mut run = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    run.arg("conformance").arg(&out).args(["--suite", "general", "--paths", "sync"]);
    assert_ends(&run.output().expect("the tool starts"), 0, "3 passed, 0 failed, 0 skipped");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_written() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let specs = dir.path().join("spec_V1_0");
    std::fs::create_dir_all(&specs).expect("made");
    let write = |name: &str, data: &str| {
        let operands = [
            operand("x", "TENSOR_FLOAT32", "SUBGRAPH_INPUT", "2", data, &[]),
            operand("y", "TENSOR_FLOAT32", "SUBGRAPH_OUTPUT", "2", "float>({0.0f, 0.0f})", &[]),
        ];
        let text = source(name, &graph(&operands, "FLOOR", "0", "1", ("0", "1")), "{}", false, "V1_0");
        std::fs::write(specs.join(format!("{name}.example.cpp")), text).expect("written");
    };
    write("good", "float>({0.0f, 0.5f})");
    write("short", "float>({0.0f})");
    write("unknown", "double>({0.0, 0.5})");
    let out = dir.path().join("corpus");
    let output = tool(dir.path(), &out);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("short.example.cpp:4: line 6: 4 bytes for TENSOR_FLOAT32 of [2]"), "{stdout}");
    assert!(
        stdout.contains("unknown.example.cpp:4: line 6: TestBuffer::createFromVector<double>"),
        "{stdout}"
    );
    assert!(stdout.contains("1 files, 1 models"), "{stdout}");
    assert!(out.join("V1_0/good.nnt").exists() && !out.join("V1_0/short.nnt").exists());
    let nothing = tool(&out, &out);
    assert_eq!((nothing.status.code(), text(&nothing.stderr).lines().count()), (Some(2), 1));
}
