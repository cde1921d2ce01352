//! Operators on few integers and truth values that are all constants: what steers loops, slices and shapes. Their results
//! are found by the driver's own plain evaluations of what they are mapped to.

use super::call::State;
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

/// Makes constants of the outputs of an operator, where they can be told and have no operands yet.
pub fn fold(graph: &mut Graph, operator: &Operator, state: &State) -> bool {
    let is_free =
        |&i: &usize| graph.tensors[i].data.is_none() && state.operands[i].is_none() && !state.is_output[i];
    let values = match operator.outputs.iter().all(is_free) {
        true => results(graph, operator),
        false => None,
    };
    let is_known = values.is_some();
    for (&i, value) in operator.outputs.iter().zip(values.unwrap_or_default()) {
        graph.tensors[i].data = Some(value.into());
    }
    is_known
}

/// The bytes of each output of an operator of `graph`; `None` where they cannot be told.
pub fn results(graph: &Graph, operator: &Operator) -> Option<Vec<Vec<u8>>> {
    let tensor = |i: usize| &graph.tensors[i];
    let is_steering = |tensor: &Tensor| {
        matches!(tensor.ty, TensorType::Int32 | TensorType::Bool)
            && element_count(&tensor.dims).is_some_and(|count| count <= FEW)
    };
    if !operator.outputs.iter().all(|&i| is_steering(tensor(i))) {
        return None;
    }
    let inputs: Vec<usize> = operator.inputs.iter().copied().flatten().collect();
    let by_dims_alone = matches!(operator.name.as_str(), "SHAPE" | "RANK");
    let is_known = |&i: &usize| is_steering(tensor(i)) && (tensor(i).data.is_some() || tensor(i).is_empty());
    if !(by_dims_alone || inputs.iter().all(is_known)) {
        return None;
    }
    if operator.name == "CONCATENATION" {
        // NNAPI has none of integers.
        return concatenated(graph, operator, &inputs).map(|bytes| vec![bytes]);
    }
    if let Some(bytes) = of_single(graph, operator, &inputs) {
        return Some(vec![bytes]);
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
    let bytes = |i: usize| match alone.tensors[i].is_empty() {
        true => Some(Vec::new()),
        false => bytes_of(&state.builder, &values, state.operands[i]?).map(<[u8]>::to_vec),
    };
    outputs.into_iter().map(bytes).collect()
}

fn concatenated(graph: &Graph, operator: &Operator, inputs: &[usize]) -> Option<Vec<u8>> {
    let Some(Options::Concatenation(o)) = &operator.options else { return None };
    let are_lists = inputs.iter().all(|&i| graph.tensors[i].dims.len() == 1);
    let bytes: Vec<u8> =
        inputs.iter().filter_map(|&i| graph.tensors[i].data.as_deref()).flatten().copied().collect();
    (are_lists && matches!(o.axis, 0 | -1) && o.activation == 0).then_some(bytes)
}

/// What an operator gives of one number or truth value each: loops count by such in each round, and to map them takes
/// longer than all else of a round.
fn of_single(graph: &Graph, operator: &Operator, inputs: &[usize]) -> Option<Vec<u8>> {
    let value = |i: usize| -> Option<i32> {
        let tensor = &graph.tensors[i];
        match (tensor.ty, tensor.data.as_deref()?) {
            (TensorType::Int32, &[a, b, c, d]) => Some(i32::from_le_bytes([a, b, c, d])),
            (TensorType::Bool, &[truth]) => Some((truth != 0).into()),
            _ => None,
        }
    };
    let (&[x, y], &[output]) = (inputs, &operator.outputs[..]) else { return None };
    let ty = |i: usize| graph.tensors[i].ty;
    if ty(x) != ty(y) || element_count(&graph.tensors[output].dims) != Some(1) {
        return None;
    }
    let (are_truths, (x, y)) = (ty(x) == TensorType::Bool, (value(x)?, value(y)?));
    let plain = match &operator.options {
        Some(Options::Add(o)) => o.activation == 0,
        Some(Options::Sub(o)) => o.activation == 0,
        Some(Options::Mul(o)) => o.activation == 0,
        _ => true,
    };
    let number = match operator.name.as_str() {
        "ADD" => x.checked_add(y),
        "SUB" => x.checked_sub(y),
        "MUL" => x.checked_mul(y),
        _ => None,
    };
    if let Some(number) = number {
        let fits = plain && !are_truths && ty(output) == TensorType::Int32;
        return fits.then(|| number.to_le_bytes().to_vec());
    }
    let truth = match operator.name.as_str() {
        "LESS" if !are_truths => x < y,
        "LESS_EQUAL" if !are_truths => x <= y,
        "GREATER" if !are_truths => x > y,
        "GREATER_EQUAL" if !are_truths => x >= y,
        "LOGICAL_AND" if are_truths => x & y != 0,
        "LOGICAL_OR" if are_truths => x | y != 0,
        _ => return None,
    };
    (ty(output) == TensorType::Bool).then(|| vec![truth.into()])
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

#[cfg(test)]
mod tests {
    use super::super::graph::Quantisation;
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn single_values_give_what_lists_of_them_do() {
        let tensor = |ty, count: usize, value: Option<i32>| Tensor {
            name: "",
            ty,
            dims: vec![count as u32],
            data: value.map(|value| match ty {
                TensorType::Bool => Cow::Owned(vec![value as u8; count]),
                _ => Cow::Owned(value.to_le_bytes().repeat(count)),
            }),
            quantisation: Quantisation::None,
            variable: false,
            sparse: false,
        };
        let plain = |name: &str| match name {
            "ADD" => Some(Options::Add(Box::default())),
            "SUB" => Some(Options::Sub(Box::default())),
            "MUL" => Some(Options::Mul(Box::default())),
            _ => None,
        };
        let result = |name: &str, types: [TensorType; 2], count, [x, y]: [i32; 2]| {
            let [from, to] = types;
            let tensors =
                vec![tensor(from, count, Some(x)), tensor(from, count, Some(y)), tensor(to, count, None)];
            let graph = Graph { tensors, ..Graph::default() };
            let operator = Operator {
                name: name.into(),
                inputs: vec![Some(0), Some(1)],
                outputs: vec![2],
                options: plain(name),
                custom: vec![],
            };
            if count == 1 {
                assert!(of_single(&graph, &operator, &[0, 1]).is_some(), "{name}");
            }
            results(&graph, &operator).unwrap().remove(0)
        };
        use TensorType::{Bool, Int32};
        for [x, y] in [[3, 5], [5, 3], [4, 4], [-2, 1]] {
            for (name, to) in [
                ("ADD", Int32),
                ("SUB", Int32),
                ("MUL", Int32),
                ("LESS", Bool),
                ("LESS_EQUAL", Bool),
                ("GREATER", Bool),
                ("GREATER_EQUAL", Bool),
            ] {
                let (one, two) = (result(name, [Int32, to], 1, [x, y]), result(name, [Int32, to], 2, [x, y]));
                assert_eq!(one.repeat(2), two, "{x} {name} {y}");
            }
        }
        for [x, y] in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            for name in ["LOGICAL_AND", "LOGICAL_OR"] {
                let [one, two] = [1, 2].map(|count| result(name, [Bool, Bool], count, [x, y]));
                assert_eq!(one.repeat(2), two, "{x} {name} {y}");
            }
        }
    }
}
