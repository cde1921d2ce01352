//! Imports TensorFlow Lite models: reads a file, or takes a graph from elsewhere, and maps its operators onto NNAPI's
//! operations.
//!
//! What NNAPI lacks is rewritten onto what it has, without loss beyond a rounding; what cannot be mapped is refused
//! by the operator's name and index. A damaged file gives an error.

mod call;
mod convolution;
mod detection;
mod elementwise;
mod error;
mod flexbuffer;
mod folding;
mod gelu;
pub mod graph;
mod image;
mod known;
mod loops;
#[cfg(test)]
mod loops_tests;
mod mapping;
mod matmul;
mod movement;
mod names;
mod normalisation;
mod recurrent;
mod reduction;
mod registry;
#[cfg(test)]
mod rewrite_tests;
mod rows;
pub mod schema;
mod selection;
mod shape;
mod slice;
mod sparse;
#[cfg(test)]
mod steering_tests;
#[cfg(test)]
mod tests;
mod verify;
mod wide;

pub use error::ImportError;
pub use names::name as operator_name;

use crate::aidl;
use crate::client::builder::{Builder, Mapped, OperandIndex};
use crate::client::PrepareOptions;
use crate::tensor::TensorInfo;
use call::{Call, State};
use error::Refusal;
use graph::{Graph, Operator};
use std::ops::Range;

/// An imported model.
pub struct Imported {
    /// What a driver compiles.
    pub model: aidl::Model,
    /// What the model takes: the graph's inputs, then its states.
    pub inputs: Vec<Port>,
    /// What the model gives: the graph's outputs, then its states.
    pub outputs: Vec<Port>,
    /// How many operators the file has.
    pub operators: usize,
    /// The model's operations that each operator became.
    pub operations: Vec<Range<usize>>,
    /// Whether the file means that inputs of products be [rounded to bytes](crate::model::hints::DYNAMIC_RANGE), as its weights are.
    pub dynamic_range: bool,
}

impl Imported {
    /// How a driver is to prepare it, unless somebody wants it otherwise.
    pub fn prepare_options(&self) -> PrepareOptions {
        PrepareOptions { dynamic_range: self.dynamic_range, ..PrepareOptions::default() }
    }
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The tensor's name.
    pub name: String,
    /// Dimensions as the file gives them: none for a scalar.
    pub dims: Vec<u32>,
    /// Type, dimensions and quantisation as NNAPI sees them.
    pub info: TensorInfo,
}

/// Imports the main subgraph of a .tflite file, with what it runs of the others.
pub fn import(bytes: &[u8]) -> Result<Imported, ImportError> {
    import_into(read(bytes)?, Builder::default())
}

/// The same, with large constants left in the file: a driver reads them there.
pub fn import_mapped(mapped: Mapped) -> Result<Imported, ImportError> {
    import_into(read(mapped.bytes)?, Builder::over(mapped))
}

/// The graph of a file, with the dimensions that files leave out, and without loops.
fn read(bytes: &[u8]) -> Result<Graph<'_>, ImportError> {
    let mut graph = loops::unrolled(Graph::read(bytes)?)?;
    for operator in graph.operators.iter().filter(|operator| operator.name == detection::NAME) {
        detection::set_dims(&mut graph.tensors, operator);
    }
    Ok(graph)
}

/// Imports a graph.
pub fn import_graph(graph: &Graph) -> Result<Imported, ImportError> {
    import_into(graph.clone(), Builder::default())
}

fn import_into<'a>(mut graph: Graph<'a>, builder: Builder<'a>) -> Result<Imported, ImportError> {
    let ports = |list: &[usize], what: &str| -> Result<Vec<Port>, ImportError> {
        list.iter().map(|&i| port(&graph, i).map_err(|why| at(what, i, why))).collect()
    };
    let (mut inputs, mut outputs) = (ports(&graph.inputs, "input")?, ports(&graph.outputs, "output")?);
    let states = ports(&graph.states, "state")?;
    let mut state = State::new(&graph, builder);
    for &i in &graph.outputs {
        if std::mem::replace(&mut state.is_output[i], true) {
            return Err(at("output", i, "it is listed twice, which NNAPI does not allow".into()));
        }
    }
    let mut input_operands = Vec::new();
    for (&i, port) in graph.inputs.iter().zip(&inputs).chain(graph.states.iter().zip(&states)) {
        if state.operands[i].is_some() || graph.tensors[i].data.is_some() {
            return Err(at("input", i, "it is a constant, or listed twice".into()));
        }
        let operand = state.builder.input(port.info.clone());
        state.operands[i] = Some(operand);
        input_operands.push(operand);
    }
    let operators = std::mem::take(&mut graph.operators);
    let mut operations = Vec::with_capacity(operators.len());
    for (index, operator) in operators.iter().enumerate() {
        let first = state.builder.operations().len();
        if folding::fold(&mut graph, operator, &state) {
            operations.push(first..first);
            continue;
        }
        mapping::map(&graph, operator, &mut state).map_err(|Refusal(why)| ImportError::Operator {
            index,
            name: operator.name.clone(),
            tensor: operator.outputs.first().map(|&i| graph.tensors[i].name.into()).unwrap_or_default(),
            why,
        })?;
        operations.push(first..state.builder.operations().len());
    }
    let mut output_operands = output_operands(&graph, &mut state)?;
    for &i in &graph.states {
        output_operands.push(state.kept[i].ok_or_else(|| at("state", i, "no operator writes it".into()))?);
    }
    inputs.extend_from_slice(&states);
    outputs.extend(states);
    let dynamic_range = state.rounds_inputs && !state.widens_weights;
    let model = state.builder.finish(input_operands, output_operands)?;
    Ok(Imported { model, inputs, outputs, operators: operators.len(), operations, dynamic_range })
}

/// Why operator `index` of a graph cannot be mapped, whatever stands around it; `None` where it can be.
pub fn refusal(graph: &Graph, index: usize) -> Option<String> {
    mapping::map_alone(graph, &graph.operators[index]).err().map(|Refusal(why)| why)
}

fn output_operands<'a>(graph: &Graph<'a>, state: &mut State<'a>) -> Result<Vec<OperandIndex>, ImportError> {
    let mut operands = Vec::with_capacity(graph.outputs.len());
    for &i in &graph.outputs {
        let written = state.operands[i].filter(|&operand| state.builder.is_output(operand));
        operands.push(match written {
            Some(operand) => operand,
            None => copied(graph, state, i).map_err(|why| at("output", i, why))?,
        });
    }
    Ok(operands)
}

/// A copy of an input or a constant: NNAPI gives what an operation makes, and nothing else.
fn copied<'a>(graph: &Graph<'a>, state: &mut State<'a>, i: usize) -> Result<OperandIndex, Refusal> {
    if state.operands[i].is_none() && graph.tensors[i].data.is_none() {
        return Err("no operator writes it".into());
    }
    let operator = Operator {
        name: String::new(),
        inputs: vec![Some(i)],
        outputs: Vec::new(),
        options: None,
        custom: Vec::new(),
    };
    let first = state.builder.operations().len();
    let mut call = Call { graph, operator: &operator, state };
    let (from, info) = (call.input(0)?, call::info(&graph.tensors[i])?);
    let to = call.builder().output(info);
    call.reshape(from, to);
    verify::verify(&state.builder, first)?;
    Ok(to)
}

fn port(graph: &Graph, i: usize) -> Result<Port, Refusal> {
    let tensor = &graph.tensors[i];
    Ok(Port { name: tensor.name.into(), dims: tensor.dims.clone(), info: call::info(tensor)? })
}

fn at(what: &str, tensor: usize, why: Refusal) -> ImportError {
    ImportError::Graph(format!("{what} (tensor {tensor}): {}", why.0))
}
