//! The runtime's graph as the importer knows graphs.

use crate::abi::{self, AffineQuantization, Array};
use crate::params;
use crate::runtime::{no_tensor, text, Runtime, OTHER_LAYOUT};
use nnhal::tflite::graph::{Graph, Operator, Quantisation, Tensor, TensorType};
use nnhal::tflite::operator_name;
use std::borrow::Cow;

/// The nodes that run, and the graph of them: operator `i` is node `nodes[i]`.
pub struct Described<'r> {
    pub nodes: Vec<usize>,
    pub graph: Graph<'r>,
    /// Tensors whose size is known only when the graph runs.
    pub dynamic: Vec<bool>,
}

/// Reads the runtime's graph.
pub fn describe(runtime: &Runtime) -> Result<Described<'_>, String> {
    check(runtime)?;
    let nodes = runtime.plan()?;
    let tensors: Vec<Tensor> = runtime.tensors().iter().map(tensor).collect();
    let dynamic = runtime.tensors().iter().map(|t| t.allocation_type == abi::DYNAMIC).collect();
    let operators = nodes.iter().map(|&node| operator(runtime, node, tensors.len()));
    let operators = operators.collect::<Result<Vec<_>, _>>()?;
    Ok(Described { nodes, graph: Graph { tensors, operators, ..Default::default() }, dynamic })
}

/// Looks at what could not be so if the runtime laid out its structures otherwise, before any pointer in them is followed.
fn check(runtime: &Runtime) -> Result<(), String> {
    for tensor in runtime.tensors() {
        let plausible = (0..64).contains(&tensor.ty)
            && (0..32).contains(&tensor.allocation_type)
            && (0..32).contains(&tensor.quantization.kind)
            && tensor.is_variable <= 1
            && [tensor.dims.cast(), tensor.name.cast(), tensor.sparsity]
                .iter()
                .all(|p: &*const std::ffi::c_void| p.is_null() || *p as usize > 0xffff);
        if !plausible {
            return Err(OTHER_LAYOUT.into());
        }
        // SAFETY: null, or an array that stays while the delegate looks at the graph.
        let dims = unsafe { Array::elements(tensor.dims) };
        let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(usize::try_from(dim).ok()?));
        let element = match tensor.ty {
            1 | 2 => 4,
            3 | 6 | 9 => 1,
            4 => 8,
            10 => 2,
            _ => continue,
        };
        let expected = count.and_then(|count| count.checked_mul(element));
        let is_dense = tensor.sparsity.is_null() && tensor.allocation_type == abi::MMAP_RO;
        if is_dense && tensor.bytes != 0 && expected != Some(tensor.bytes) {
            return Err(OTHER_LAYOUT.into());
        }
    }
    Ok(())
}

fn tensor(tensor: &abi::Tensor) -> Tensor<'_> {
    // SAFETY: null, or an array that stays while the delegate looks at the graph.
    let dims = unsafe { Array::elements(tensor.dims) };
    // What the graph's preparation has computed is constant from then on, too.
    let is_constant = matches!(tensor.allocation_type, abi::MMAP_RO | abi::PERSISTENT_RO);
    let data = (is_constant && !tensor.data.is_null() && tensor.bytes > 0).then(|| {
        // SAFETY: the runtime keeps `bytes` bytes of a constant there, and nobody writes them.
        unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>().cast_const(), tensor.bytes) }
    });
    Tensor {
        // SAFETY: null, or a string of the model's.
        name: unsafe { text(tensor.name) },
        ty: tensor_type(tensor.ty),
        dims: dims.iter().map(|&d| u32::try_from(d).unwrap_or(0)).collect(),
        data: data.map(Cow::Borrowed),
        quantisation: quantisation(&tensor.quantization),
        variable: tensor.is_variable != 0,
        sparse: !tensor.sparsity.is_null(),
    }
}

/// The runtime numbers types in another order than the file format.
fn tensor_type(code: i32) -> TensorType {
    const FILE_CODES: [i8; 20] = [
        -1, // none
        0, 2, 3, 4, 5, 6, 7, 8, 9, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    ];
    let code = usize::try_from(code).ok().and_then(|i| FILE_CODES.get(i));
    TensorType::from_code(code.copied().unwrap_or(-1))
}

fn quantisation(quantization: &abi::Quantization) -> Quantisation {
    match quantization.kind {
        abi::NO_QUANTIZATION => return Quantisation::None,
        abi::AFFINE_QUANTIZATION if !quantization.params.is_null() => {}
        _ => return Quantisation::Other("by blocks or along several axes"),
    }
    // SAFETY: not null, and of this kind.
    let affine = unsafe { &*quantization.params.cast::<AffineQuantization>() };
    // SAFETY: null, or arrays of the model's that stay.
    let (scales, zero_points) =
        unsafe { (Array::elements(affine.scale), Array::elements(affine.zero_point)) };
    match *scales {
        [] => Quantisation::None,
        [scale] => Quantisation::Tensor { scale, zero_point: zero_points.first().copied().unwrap_or(0) },
        _ if zero_points.iter().any(|&zero_point| zero_point != 0) => {
            Quantisation::Other("per channel with a zero point")
        }
        _ => match u32::try_from(affine.quantized_dimension) {
            Ok(dim) => Quantisation::Channel { scales: scales.to_vec(), dim },
            Err(_) => Quantisation::Other("along a negative dimension"),
        },
    }
}

fn operator(runtime: &Runtime, index: usize, tensors: usize) -> Result<Operator, String> {
    let (node, registration) = runtime.node(index)?;
    let code = registration.builtin_code;
    let name = if code == abi::BUILTIN_CUSTOM {
        // SAFETY: null, or a string that lives as long as the node.
        format!("custom {}", unsafe { text(registration.custom_name) })
    } else {
        operator_name(code)
    };
    // SAFETY: the runtime's own arrays, which stay while the delegate looks at the graph.
    let (inputs, outputs) = unsafe { (Array::elements(node.inputs), Array::elements(node.outputs)) };
    let tensor = |&i: &i32| match usize::try_from(i) {
        Ok(i) if i < tensors => Ok(i),
        _ => Err(no_tensor(i as usize)),
    };
    // One that nobody reads may be left out. Where operators that are mapped leave one out, the importer misses it.
    let outputs = outputs.iter().filter(|i| **i != abi::NO_TENSOR).map(tensor);
    let inputs = inputs.iter().map(|i| if *i == abi::NO_TENSOR { Ok(None) } else { tensor(i).map(Some) });
    let options = if code == abi::BUILTIN_CUSTOM {
        None
    } else {
        // SAFETY: the structure is of the operator that the registration names.
        unsafe { params::read(&name, node.builtin_data) }
    };
    let custom = match usize::try_from(node.custom_initial_data_size) {
        Ok(size) if size > 0 && !node.custom_initial_data.is_null() => {
            // SAFETY: the runtime keeps so many bytes of the model there while the delegate looks at the graph.
            unsafe { std::slice::from_raw_parts(node.custom_initial_data.cast::<u8>(), size) }.to_vec()
        }
        _ => Vec::new(),
    };
    Ok(Operator {
        custom,
        inputs: inputs.collect::<Result<_, String>>()?,
        outputs: outputs.collect::<Result<_, String>>()?,
        name,
        options,
    })
}

/// Prints the graph as it was found.
pub fn print(described: &Described) {
    for (i, tensor) in described.graph.tensors.iter().enumerate() {
        let Tensor { name, ty, dims, data, quantisation, variable, .. } = tensor;
        let constant = data.as_deref().map_or(0, <[u8]>::len);
        eprintln!(
            "nnhal: tensor {i} {ty} {dims:?} constant {constant} variable {variable} {quantisation:?} {name}"
        );
    }
    for (node, operator) in described.nodes.iter().zip(&described.graph.operators) {
        let Operator { name, inputs, outputs, options, .. } = operator;
        let inputs: Vec<i64> = inputs.iter().map(|i| i.map_or(-1, |i| i as i64)).collect();
        eprintln!("nnhal: node {node} {name} {inputs:?} -> {outputs:?} {options:?}");
    }
}
