//! Watched runs as a trace that Perfetto and Chrome read: JSON of trace events, a slice for each run, operation, and
//! thread that worked on one.

use crate::backend::{Activity, Description, Noted, OperationId, Span};
use crate::tflite::Imported;
use crate::tool::error::ToolError;
use crate::tool::naming;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes what was noted of runs of a model, which says `description` of itself, to a file.
pub fn write<'n>(
    path: &Path,
    noted: impl IntoIterator<Item = &'n Noted>,
    description: &Description,
    imported: &Imported,
) -> Result<(), ToolError> {
    let process = std::process::id();
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": process, "tid": process, "args": { "name": "nnhal" }
    })];
    let (mut spans, mut names) = (Vec::new(), BTreeMap::new());
    for noted in noted {
        spans.extend_from_slice(&noted.spans);
        names.extend(noted.threads.iter().map(|(&thread, name)| (thread, name.as_str())));
    }
    let threads: BTreeSet<u32> = spans.iter().map(|span| span.thread).collect();
    events.extend(threads.into_iter().map(|thread| {
        let name = names.get(&thread).map_or_else(|| format!("thread {thread}"), |name| name.to_string());
        json!({
            "ph": "M", "name": "thread_name", "pid": process, "tid": thread,
            "args": { "name": name }
        })
    }));
    // What encloses comes first.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    events.extend(spans.iter().map(|span| event(span, process, description, imported)));
    let file = |why| ToolError::File { path: path.into(), why };
    let mut writer = BufWriter::new(File::create(path).map_err(file)?);
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    serde_json::to_writer(&mut writer, &trace).map_err(|why| file(why.into()))?;
    writer.flush().map_err(file)
}

fn event(span: &Span, process: u32, description: &Description, imported: &Imported) -> Value {
    let (name, category, arguments) = match span.activity {
        Activity::Run => ("run".into(), "run", json!({})),
        Activity::Operation(id) => (name(id, imported), "operation", arguments(id, description, imported)),
        Activity::Part(id) => (name(id, imported), "part", arguments(id, description, imported)),
    };
    let microseconds = |ns: u64| ns as f64 / 1e3;
    json!({
        "ph": "X", "name": name, "cat": category, "pid": process, "tid": span.thread,
        "ts": microseconds(span.start), "dur": microseconds(span.end.saturating_sub(span.start)),
        "args": arguments
    })
}

fn name(id: OperationId, imported: &Imported) -> String {
    match id.subgraph {
        0 => format!("{} {}", id.index, naming::operation_type(imported, id.index as usize)),
        subgraph => format!("{} of subgraph {subgraph}", id.index),
    }
}

fn arguments(id: OperationId, description: &Description, imported: &Imported) -> Value {
    let index = id.index as usize;
    let steps = description.subgraphs.get(id.subgraph as usize).map_or(&[][..], |subgraph| &subgraph.steps);
    let kernel =
        steps.iter().find(|step| step.operations.contains(&index)).map(|step| step.kernel.to_string());
    match id.subgraph {
        0 => json!({ "operation": index, "operator": naming::operator(imported, index), "kernel": kernel }),
        subgraph => json!({ "subgraph": subgraph, "operation": index, "kernel": kernel }),
    }
}
