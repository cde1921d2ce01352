//! A model as a graph that Model Explorer reads: a collection of one graph, whose nodes name those that they get their
//! inputs from.

use super::line::Line;
use super::tensors::{shape, words};
use crate::backend::Description;
use crate::tflite::Imported;
use serde::Serialize;
use std::collections::HashMap;

/// What a file holds.
#[derive(Serialize)]
pub struct Collection {
    label: String,
    graphs: Vec<Graph>,
}

#[derive(Serialize)]
struct Graph {
    id: String,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    label: String,
    /// Nodes of one namespace are drawn in a box: the operations that one operator of the file has become.
    namespace: String,
    attrs: Vec<Attribute>,
    incoming_edges: Vec<Edge>,
    inputs_metadata: Vec<Metadata>,
    outputs_metadata: Vec<Metadata>,
}

#[derive(Serialize)]
struct Attribute {
    key: &'static str,
    value: String,
}

/// Where an input comes from: an output of another node, by its number there.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edge {
    source_node_id: String,
    source_node_output_id: String,
    target_node_input_id: String,
}

/// Of an input or output, by its number.
#[derive(Serialize)]
struct Metadata {
    id: String,
    attrs: Vec<Attribute>,
}

/// The graph of `imported`; `lines` are its operations, with times where they were measured.
pub fn collection(
    label: &str,
    imported: &Imported,
    lines: &[Line],
    description: Option<&Description>,
) -> Collection {
    let main = &imported.model.main;
    let places = description.and_then(|description| description.subgraphs.first()).map(|main| &main.places);
    let metadata = |id: usize, operand: i32| {
        let operand = usize::try_from(operand).unwrap_or(usize::MAX);
        let mut attrs = vec![attribute("operand", operand)];
        if let Some(operand) = main.operands.get(operand) {
            // The name that the explorer labels edges by.
            attrs.push(attribute("tensor_shape", shape(operand)));
        }
        if let Some(place) = places.and_then(|places| places.get(operand)) {
            attrs.push(attribute("place", words(place)));
        }
        Metadata { id: id.to_string(), attrs }
    };
    let all =
        |operands: &[i32]| operands.iter().enumerate().map(|(i, &v)| metadata(i, v)).collect::<Vec<_>>();
    // By operand: the node that gives it, and as which of its outputs.
    let mut sources: HashMap<i32, (String, usize)> = HashMap::new();
    let mut nodes = Vec::new();
    for (i, &operand) in main.inputIndexes.iter().enumerate() {
        let id = format!("input {i}");
        sources.insert(operand, (id.clone(), 0));
        let port = imported.inputs.get(i).map_or(String::new(), |port| port.name.clone());
        nodes.push(Node {
            outputs_metadata: all(&[operand]),
            ..node(id.clone(), id, vec![attribute("name", port)])
        });
    }
    for (i, operation) in main.operations.iter().enumerate() {
        for (output, &operand) in operation.outputs.iter().enumerate() {
            sources.insert(operand, (i.to_string(), output));
        }
    }
    let edges = |operands: &[i32]| -> Vec<Edge> {
        let edge = |(i, operand): (usize, &i32)| {
            let (id, output) = sources.get(operand)?;
            Some(Edge {
                source_node_id: id.clone(),
                source_node_output_id: output.to_string(),
                target_node_input_id: i.to_string(),
            })
        };
        operands.iter().enumerate().filter_map(edge).collect()
    };
    for (line, operation) in lines.iter().zip(&main.operations) {
        let siblings = imported.operations.get(line.operator).map_or(1, |range| range.len());
        nodes.push(Node {
            namespace: if siblings > 1 { format!("operator {}", line.operator) } else { String::new() },
            incoming_edges: edges(&operation.inputs),
            inputs_metadata: all(&operation.inputs),
            outputs_metadata: all(&operation.outputs),
            ..node(line.operation.to_string(), line.ty.clone(), attributes(line))
        });
    }
    for (i, &operand) in main.outputIndexes.iter().enumerate() {
        let id = format!("output {i}");
        let port = imported.outputs.get(i).map_or(String::new(), |port| port.name.clone());
        nodes.push(Node {
            incoming_edges: edges(&[operand]),
            inputs_metadata: all(&[operand]),
            ..node(id.clone(), id, vec![attribute("name", port)])
        });
    }
    Collection { label: label.into(), graphs: vec![Graph { id: "main".into(), nodes }] }
}

/// A node at the root, that nothing comes to or from yet.
fn node(id: String, label: String, attrs: Vec<Attribute>) -> Node {
    let namespace = String::new();
    let (incoming_edges, inputs_metadata, outputs_metadata) = (Vec::new(), Vec::new(), Vec::new());
    Node { id, label, namespace, attrs, incoming_edges, inputs_metadata, outputs_metadata }
}

fn attributes(line: &Line) -> Vec<Attribute> {
    let mut attrs = vec![
        attribute("operation", line.operation),
        attribute("operator", line.operator),
        attribute("taken", line.taken),
    ];
    let optional = [
        ("why not taken", line.why.clone()),
        ("kernel", line.kernel.clone()),
        ("multiply-adds", line.multiply_adds.map(|count| count.to_string())),
        ("bytes", line.bytes.map(|bytes| bytes.to_string())),
        ("time (ms)", line.median_ms.map(|ms| format!("{ms:.4}"))),
        ("share (%)", line.share.map(|share| format!("{share:.1}"))),
    ];
    attrs.extend(optional.into_iter().filter_map(|(key, value)| Some(attribute(key, value?))));
    attrs
}

fn attribute(key: &'static str, value: impl ToString) -> Attribute {
    Attribute { key, value: value.to_string() }
}
