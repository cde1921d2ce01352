//! `nnhal inspect`, and what `bench` and `run` tell and write of a model's operations, by the tool as a process.
//! Larger models are those of `NNHAL_MODELS` or ../shared/models; without them the tests say so.

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DIGITS: [&str; 2] = ["models/digits_int8.tflite", "models/digits_f32.tflite"];

fn nnhal(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nnhal"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("RUST_LOG");
    command.output().expect("started")
}

#[track_caller]
fn told(arguments: &[&str]) -> String {
    let output = nnhal(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {:?}: {out}{err}", output.status);
    assert!(!out.contains('\u{1b}'), "colours where nobody sees them: {out}");
    out.into_owned()
}

/// The last line, which is JSON.
#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let out = told(arguments);
    serde_json::from_str(out.lines().last().expect("a line")).expect("JSON")
}

/// The models of this repository, and larger ones where there are any.
fn models() -> Vec<String> {
    let directory = std::env::var_os("NNHAL_MODELS").map_or("../shared/models".into(), PathBuf::from);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut models: Vec<String> = DIGITS.map(String::from).to_vec();
    match std::fs::read_dir(&directory) {
        Ok(entries) => models.extend(
            entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.extension().is_some_and(|extension| extension == "tflite"))
                .map(|path| path.display().to_string()),
        ),
        Err(why) => eprintln!("larger models are left out: {}: {why}", directory.display()),
    }
    models
}

#[test]
fn the_lines_name_operations_kernels_and_places() {
    let out = told(&["inspect", DIGITS[0]]);
    let first = out.lines().next().expect("a line");
    assert!(first.starts_with("input ") && first.contains("[1, 8, 8, 1]"), "{first}");
    let is_conv = |line: &&str| line.contains("CONV_2D (operator 0): TENSOR_QUANT8_ASYMM");
    let conv = out.lines().find(is_conv).unwrap_or_else(|| panic!("{out}"));
    assert!(conv.contains(" constant, ") && conv.contains(" -> ") && conv.contains(" 8-bit]"), "{conv}");
    assert!(out.contains("client memory, otherwise arena "), "{out}");
    assert!(out.contains(" bytes, in its kernel's own form"), "{out}");
    assert!(out.lines().any(|line| line.contains(" operations taken, of ")), "{out}");
    let arena = out.lines().find(|line| line.starts_with("the arena has ")).expect("the arena");
    assert!(!arena.contains(" 0 bytes"), "{arena}");
}

#[test]
fn json_has_a_field_for_each_thing() {
    for model in models() {
        let lines = json(&["inspect", &model, "--json"]);
        let lines = lines.as_array().expect("a list");
        assert!(!lines.is_empty(), "{model}");
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(
                (line["operation"].as_u64(), &line["taken"]),
                (Some(i as u64), &Value::Bool(true)),
                "{model}"
            );
            assert!(
                line["operator"].is_u64() && line["type"].is_string() && line["kernel"].is_string(),
                "{line}"
            );
            assert_eq!(
                line["input_places"].as_array().map(Vec::len),
                line["inputs"].as_array().map(Vec::len)
            );
            assert!(line.get("median_ms").is_none(), "nobody asked for times: {line}");
            for place in line["output_places"].as_array().expect("places") {
                let kind = place["place"].as_str().expect("a kind");
                assert!(["arena", "client", "own", "constant", "nowhere"].contains(&kind), "{place}");
                assert_eq!(place["offset"].is_u64(), ["arena", "client"].contains(&kind), "{place}");
            }
        }
        let products = lines.iter().filter(|line| line["multiply_adds"].as_u64().is_some_and(|n| n > 0));
        assert!(products.count() > 0, "{model}");
    }
}

/// The elements of a drawing that is well-formed: each with its attributes as text.
fn elements(svg: &str) -> Vec<(String, String)> {
    let (mut open, mut found, mut rest) = (Vec::new(), Vec::new(), svg);
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>'), "a stray >: {text}");
        let end = start + rest[start..].find('>').expect("a tag that ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        if !tag.ends_with('/') {
            open.push(name.clone());
        }
        found.push((name, tag.to_string()));
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
    for part in svg.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|name| part.starts_with(name)), "&{part}");
    }
    found
}

fn number(tag: &str, name: &str) -> f64 {
    let start = tag.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
    tag[start..].split('"').next().and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn the_drawing_has_a_box_for_each_tensor_in_the_arena() {
    let directory = tempfile::tempdir().expect("a directory");
    // A name that would break a drawing.
    let odd = directory.path().join("a <b> & \"c\".tflite");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(root.join(DIGITS[0]), &odd).expect("copied");
    for model in models().into_iter().chain([odd.display().to_string()]) {
        let file = directory.path().join("arena.svg");
        let path = file.to_str().expect("UTF-8");
        let out = told(&["inspect", &model, "--svg", path]);
        let svg = std::fs::read_to_string(&file).expect("a drawing");
        let elements = elements(&svg);
        assert_eq!(elements[0].0, "svg", "{model}");
        let size = (number(&elements[0].1, "width"), number(&elements[0].1, "height"));
        let boxes: Vec<_> =
            elements.iter().filter(|(name, tag)| name == "rect" && tag.contains("stroke")).collect();
        let lines = out.lines().filter(|line| {
            line.starts_with("operand ") && line.contains("arena ") && !line.contains("in another's place")
        });
        assert_eq!(boxes.len(), lines.count(), "{model}");
        for (_, tag) in boxes {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(tag, name));
            assert!(x >= 0.0 && y >= 0.0 && x + width <= size.0 && y + height <= size.1, "{model}: {tag}");
        }
    }
}

#[test]
fn the_graph_for_model_explorer_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("graph.json");
    let path = file.to_str().expect("UTF-8");
    for model in models() {
        told(&["inspect", &model, "--model-explorer", path]);
        let graph: Value = serde_json::from_slice(&std::fs::read(&file).expect("a graph")).expect("JSON");
        let graphs = graph["graphs"].as_array().expect("graphs");
        assert!(graph["label"].is_string() && graphs.len() == 1 && graphs[0]["id"].is_string());
        let nodes = graphs[0]["nodes"].as_array().expect("nodes");
        let id = |value: &Value| value.as_str().expect("text").to_string();
        let ids = |list: &Value| -> HashSet<String> {
            list.as_array().expect("a list").iter().map(|item| id(&item["id"])).collect()
        };
        let outputs: HashMap<String, HashSet<String>> =
            nodes.iter().map(|node| (id(&node["id"]), ids(&node["outputsMetadata"]))).collect();
        assert_eq!(outputs.len(), nodes.len(), "{model}: each has an id of its own");
        let mut edges = 0;
        for node in nodes {
            assert!(node["label"].is_string() && node["namespace"].is_string(), "{node}");
            let inputs = ids(&node["inputsMetadata"]);
            for edge in node["incomingEdges"].as_array().expect("edges") {
                let from = outputs.get(&id(&edge["sourceNodeId"])).expect("a node that is there");
                assert!(from.contains(&id(&edge["sourceNodeOutputId"])), "{model}: {edge}");
                assert!(inputs.contains(&id(&edge["targetNodeInputId"])), "{model}: {edge}");
                edges += 1;
            }
            let attributes = node["attrs"].as_array().expect("attributes");
            assert!(attributes.iter().all(|a| a["key"].is_string() && a["value"].is_string()), "{node}");
        }
        assert!(edges >= nodes.len() - 1, "{model}: {edges} edges of {} nodes", nodes.len());
    }
}

#[test]
fn times_are_told_where_they_are_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("graph.json");
    let path = file.to_str().expect("UTF-8");
    let lines = json(&["inspect", DIGITS[0], "--profile", "--model-explorer", path, "--json"]);
    let times = lines.as_array().expect("lines").iter().filter_map(|line| line["median_ms"].as_f64());
    assert!(times.sum::<f64>() > 0.0, "{lines}");
    let graph = std::fs::read_to_string(&file).expect("a graph");
    assert!(graph.contains("time (ms)"), "{graph}");
}

#[test]
fn a_profile_accounts_for_the_time_of_a_call() {
    for model in DIGITS {
        let arguments = ["bench", model, "--runs", "40", "--profile", "--threads", "2", "--json"];
        let figures = json(&arguments);
        let profile = &figures["profile"];
        let field = |name: &str| profile[name].as_f64().unwrap_or_else(|| panic!("{name} of {profile}"));
        assert_eq!(profile["runs"], 40);
        assert_eq!(profile["missed"], 0);
        let (call, operations) = (field("call_ms"), field("operations_ms"));
        assert!(0.0 < operations && operations < call, "{profile}");
        assert!(field("between_ms") >= 0.0 && field("around_ms") > 0.0, "{profile}");
        let rows = profile["operations"].as_array().expect("operations");
        assert!(rows.len() > 2, "{profile}");
        for row in rows {
            assert!(
                row["median_ms"].as_f64().is_some_and(|ms| ms >= 0.0) && row["kernel"].is_string(),
                "{row}"
            );
        }
        let order: Vec<_> = rows.iter().map(|row| row["operation"].as_u64().expect("an index")).collect();
        assert!(order.is_sorted(), "{order:?}");
        let sum: u64 = profile["kernels"]
            .as_array()
            .expect("kernels")
            .iter()
            .map(|kernel| kernel["operations"].as_u64().expect("a count"))
            .sum();
        assert_eq!(sum, rows.len() as u64);
        assert_eq!(profile["peaks"]["threads"], 2);
        assert!(profile["peaks"]["float_gops"].as_f64().is_some_and(|gops| gops > 0.01), "{profile}");
    }
    let out = told(&["bench", DIGITS[0], "--runs", "20", "--profile"]);
    for part in ["the heaviest:", "by kernel:", "outside of them", "peaks of this machine"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_trace_has_a_slice_for_each_operation_of_each_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace.json");
    let path = file.to_str().expect("UTF-8");
    for command in [["bench", DIGITS[0], "--runs", "7"], ["run", DIGITS[0], "--runs", "7"]] {
        told(&[&command[..], &["--trace", path]].concat());
        let trace: Value = serde_json::from_slice(&std::fs::read(&file).expect("a trace")).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events");
        let of = |category: &str| events.iter().filter(|event| event["cat"] == category).count();
        assert_eq!(of("run"), 7, "{command:?}");
        let lines = json(&["inspect", DIGITS[0], "--json"]);
        // What runs as one has one slice, and its bytes are told of the first operation of it.
        let steps = lines.as_array().expect("lines").iter().filter(|line| line["bytes"].is_u64()).count();
        assert!(steps > 5, "{lines}");
        assert_eq!(of("operation"), 7 * steps, "{command:?}");
        let named: HashSet<_> =
            events.iter().filter(|e| e["name"] == "thread_name").map(|e| e["tid"].as_u64()).collect();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            assert!(event["ts"].as_f64().is_some_and(|ts| ts >= 0.0) && event["dur"].is_f64(), "{event}");
            assert!(named.contains(&event["tid"].as_u64()), "{event}");
        }
    }
}
