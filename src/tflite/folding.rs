//! Operators on few integers and truth values that are all constants: what steers loops, slices and shapes. Their results
//! are found by the driver's own plain evaluations of what they are mapped to.

use super::graph::{Graph, Operator, Tensor, TensorType};
use super::mapping;
use super::schema::Options;
use crate::client::builder::{Builder, OperandIndex};
use crate::memory::AlignedBuf;
use crate::ops::{evaluate::evaluate, Arg, NeverInterrupted};
use crate::tensor::element_count;
use std::collections::HashMap;

/// Elements of what is taken for few.
const FEW: usize = 64;

/// The bytes of each output of an operator of `graph`; `None` where they cannot be told.
pub fn results(graph: &Graph, operator: &Operator) -> Option<Vec<Vec<u8>>> {
    let tensor = |i: usize| &graph.tensors[i];
    let is_steering = |tensor: &Tensor| {
        matches!(tensor.ty, TensorType::Int32 | TensorType::Bool)
            && element_count(&tensor.dims).is_some_and(|count| count <= FEW)
    };
    let inputs: Vec<usize> = operator.inputs.iter().copied().flatten().collect();
    let by_dims_alone = matches!(operator.name.as_str(), "SHAPE" | "RANK");
    let is_known = |&i: &usize| is_steering(tensor(i)) && tensor(i).data.is_some();
    if !operator.outputs.iter().all(|&i| is_steering(tensor(i)))
        || !(by_dims_alone || inputs.iter().all(is_known))
    {
        return None;
    }
    if operator.name == "CONCATENATION" {
        // NNAPI has none of integers.
        return concatenated(graph, operator, &inputs).map(|bytes| vec![bytes]);
    }
    // A graph of just this operator: others have many tensors.
    let outputs = &operator.outputs;
    let tensors = inputs.iter().chain(outputs).map(|&i| tensor(i).clone()).collect();
    let alone = Graph { tensors, ..Graph::default() };
    let mut next = 0..inputs.len();
    let places = operator.inputs.iter().map(|i| i.and_then(|_| next.next())).collect();
    let outputs: Vec<usize> = (inputs.len()..inputs.len() + outputs.len()).collect();
    let operator = Operator { inputs: places, outputs: outputs.clone(), ..operator.clone() };
    let state = mapping::map_alone(&alone, &operator).ok()?;
    let values = evaluated(&state.builder)?;
    let bytes = |i: usize| bytes_of(&state.builder, &values, state.operands[i]?).map(<[u8]>::to_vec);
    outputs.into_iter().map(bytes).collect()
}

fn concatenated(graph: &Graph, operator: &Operator, inputs: &[usize]) -> Option<Vec<u8>> {
    let Some(Options::Concatenation(o)) = &operator.options else { return None };
    let are_lists = inputs.iter().all(|&i| graph.tensors[i].dims.len() == 1);
    let bytes: Vec<u8> =
        inputs.iter().filter_map(|&i| graph.tensors[i].data.as_deref()).flatten().copied().collect();
    (are_lists && matches!(o.axis, 0 | -1) && o.activation == 0).then_some(bytes)
}

/// What the operations of a model give whose operands are all constants.
fn evaluated(builder: &Builder) -> Option<HashMap<OperandIndex, AlignedBuf>> {
    let mut values = HashMap::new();
    for built in builder.operations() {
        let aligned = |&i: &OperandIndex| Some((i, AlignedBuf::copy_of(bytes_of(builder, &values, i)?)?));
        let inputs = built.inputs.iter().map(aligned).collect::<Option<Vec<_>>>()?;
        let args: Vec<_> = inputs
            .iter()
            .map(|(i, bytes)| Some(Arg { info: builder.info(*i), data: Some(&bytes[..]) }))
            .collect();
        let infos: Vec<_> = built.outputs.iter().map(|&i| builder.info(i).clone()).collect();
        let results = evaluate(built.ty.operation()?, &args, &infos, &NeverInterrupted).ok()?;
        for ((&i, info), result) in built.outputs.iter().zip(&infos).zip(results) {
            if result.dims != info.dims {
                return None;
            }
            values.insert(i, result.data);
        }
    }
    Some(values)
}

fn bytes_of<'v>(
    builder: &'v Builder,
    values: &'v HashMap<OperandIndex, AlignedBuf>,
    operand: OperandIndex,
) -> Option<&'v [u8]> {
    values.get(&operand).map(|value| &value[..]).or_else(|| builder.bytes(operand))
}
