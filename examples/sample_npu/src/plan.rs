//! Which operations the device takes, and why not.
//!
//! [`step`] is asked both when the driver wants to know what is supported and when it has a model compiled: what was
//! promised compiles, because it is the same code.

use crate::layout::Shape;
use crate::{EXTENSION, LOOKUP, TABLE};
use nnhal::model::{Constant, Lifetime, Model, Operand, Operation, OperationKind};
use nnhal::ops::OperationType;
use nnhal::tensor::requant::Activation;
use nnhal::tensor::TensorInfo;

/// Bytes of an engine's scratchpad, which all values of a model share.
pub const SCRATCH_BYTES: usize = 8 << 20;
/// Bytes of one value, and of a device buffer.
pub const MOST_BYTES: usize = 1 << 20;
/// Terms of a sum that cannot overflow 32 bits: each is at most 255 * 255.
const MOST_TERMS: usize = 32 << 10;

/// What the device does for one operation. Numbers are operands of the main subgraph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub kind: Kind,
    pub x: usize,
    pub to: usize,
    pub activation: Activation,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Add { y: usize },
    FullyConnected { weights: usize, bias: usize },
    Clamp,
    Lookup { table: usize },
}

/// For each operation of `model`: what the device does for it, or why it does not take it. A vendor's reasons are read by
/// people who wonder why their model runs on the CPU: they name the operand and the limit.
pub fn steps(model: &Model) -> Vec<Result<Step, String>> {
    let values = model.main.operands.iter().filter(|operand| is_value(operand));
    let sizes = values.map(|operand| padded(operand.info.byte_size().unwrap_or(usize::MAX)));
    let bytes = sizes.fold(0, usize::saturating_add); // they come from clients
    let mut arguments = model.main.inputs.iter().chain(&model.main.outputs);
    // A rule that the whole model breaks refuses each of its operations.
    let whole = match bytes <= SCRATCH_BYTES {
        true => arguments.try_for_each(|&operand| value(model, operand).map(drop)),
        false => {
            Err(format!("the model's values take {bytes} bytes; an engine has room for {SCRATCH_BYTES}"))
        }
    };
    let one = |operation: &Operation| step(model, operation).and_then(|step| whole.clone().map(|()| step));
    model.main.operations.iter().map(one).collect()
}

/// Values start at multiples of this in the scratchpad.
pub fn padded(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(64).unwrap_or(usize::MAX)
}

/// Whether the operand takes room in the scratchpad.
pub fn is_value(operand: &Operand) -> bool {
    matches!(operand.lifetime, Lifetime::Input | Lifetime::Output | Lifetime::Temporary)
}

fn step(model: &Model, operation: &Operation) -> Result<Step, String> {
    let input = |i: usize| operation.inputs.get(i).copied().ok_or_else(|| format!("input {i} is missing"));
    let (x, to) = (input(0)?, *operation.outputs.first().ok_or("an operation without outputs")?);
    let known = match &operation.kind {
        OperationKind::Known { operation, .. } => operation.ty,
        OperationKind::Extension { extension, code } if extension == EXTENSION && *code == LOOKUP => {
            let step = Step { kind: Kind::Lookup { table: input(1)? }, x, to, activation: Activation::None };
            // What the interface does not check, the extension's vendor must: nothing is known of such a call.
            return match (operation.inputs.len(), operation.outputs.len()) {
                (2, 1) => check_operands(model, step),
                _ => Err("a lookup has two inputs and one output".into()),
            };
        }
        OperationKind::Extension { extension, code } => {
            return Err(format!("operation {code} of {extension} does not exist"));
        }
        OperationKind::Unsupported(why) => return Err(why.clone()),
    };
    let (kind, activation) = match known {
        OperationType::ADD => (Kind::Add { y: input(1)? }, activation(model, input(2)?)?),
        OperationType::FULLY_CONNECTED => {
            (Kind::FullyConnected { weights: input(1)?, bias: input(2)? }, activation(model, input(3)?)?)
        }
        OperationType::RELU => (Kind::Clamp, Activation::Relu),
        OperationType::RELU1 => (Kind::Clamp, Activation::Relu1),
        OperationType::RELU6 => (Kind::Clamp, Activation::Relu6),
        // A copy: rows follow one another without gaps.
        OperationType::RESHAPE => constant(model, input(1)?).map(|_| (Kind::Clamp, Activation::None))?,
        other => return Err(format!("{other} is not an operation of this device")),
    };
    let step = check_operands(model, Step { kind, x, to, activation })?;
    // The operation's own rules, which the driver has in its table, must give the dimensions that the model declares.
    let (declared, dims) = (&model.main.operands[to].info.dims, model.main.dims_of_outputs(operation)?);
    let differ = || format!("its output is declared as {declared:?}, but will be {dims:?}");
    (dims == [declared.clone()]).then_some(step).ok_or_else(differ)
}

/// Gives the step back if its operands are of types and sizes that the device computes with.
fn check_operands(model: &Model, step: Step) -> Result<Step, String> {
    let (x, to) = (value(model, step.x)?, value(model, step.to)?);
    match step.kind {
        Kind::Add { y } if x.dims != value(model, y)?.dims || x.dims != to.dims => {
            Err("the device adds tensors of one shape only".into())
        }
        Kind::Clamp if (x.scale, x.zero_point) != (to.scale, to.zero_point) => {
            Err("its output has other units than its input".into())
        }
        Kind::FullyConnected { weights, bias } => {
            let (weights, _) = (&constant(model, weights)?.info, constant(model, bias)?);
            let shape = Shape::of(&weights.dims);
            if weights.ty == x.ty && shape.plain_len() <= MOST_BYTES && shape.channels <= MOST_TERMS {
                return Ok(step);
            }
            Err(format!(
                "weights {} of {:?}: expected {}, at most {MOST_BYTES} bytes and {MOST_TERMS} inputs",
                weights.ty, weights.dims, x.ty
            ))
        }
        Kind::Lookup { table } => {
            let Operand { extension, info, .. } = constant(model, table)?;
            if extension.as_ref().is_none_or(|extension| extension.ty != TABLE) || info.dims[..] != [256] {
                return Err(format!("operand {table} is not a table of 256 bytes"));
            }
            let same = (x.ty, &x.dims) == (to.ty, &to.dims);
            same.then_some(step).ok_or("a lookup's input and output are not of one type and shape".into())
        }
        _ => Ok(step),
    }
}

/// An operand that the device computes with: 8 bits, of known shape, not too large, not a constant.
fn value(model: &Model, index: usize) -> Result<&TensorInfo, String> {
    let operand = &model.main.operands[index];
    let info = &operand.info;
    if operand.extension.is_some() || !info.ty.is_quant8_asymm() {
        return Err(format!("operand {index} is a {}; the device computes in 8 bits", info.ty));
    }
    if !is_value(operand) {
        return Err(format!("operand {index} is a constant; the device has these as weights only"));
    }
    if !info.is_fully_specified() {
        return Err(format!("operand {index} has dimensions {:?}, which must be known", info.dims));
    }
    match info.byte_size() {
        Some(bytes) if bytes <= MOST_BYTES => Ok(info),
        _ => Err(format!("operand {index} of {:?} has more than {MOST_BYTES} bytes", info.dims)),
    }
}

fn constant(model: &Model, index: usize) -> Result<&Operand, String> {
    match &model.main.operands[index] {
        operand @ Operand { lifetime: Lifetime::Constant(_), .. } => Ok(operand),
        _ => Err(format!("operand {index} must be a constant: the device has it in its own layout")),
    }
}

fn activation(model: &Model, index: usize) -> Result<Activation, String> {
    let code = match &model.main.operands[index].lifetime {
        Lifetime::Constant(Constant::Private(bytes)) => bytes.first_chunk().map(|b| i32::from_le_bytes(*b)),
        _ => None,
    };
    let known = code.and_then(Activation::from_code);
    known.ok_or_else(|| format!("operand {index} must be a constant fused activation"))
}
