//! Rules for a subgraph: its inputs and outputs, its operations, and the order they stand in.

use super::context::{within, Context};
use super::{extensions, operand};
use super::{Constant, Lifetime, ModelError, Operand, Operation, OperationKind, Subgraph, LOOK};
use crate::aidl;
use crate::ops::pace::Pace;
use crate::ops::{self, signature, Arg, Args, Few, NeverInterrupted, OpError, OperationType, Run};
use crate::tensor::{Dims, TensorInfo};

/// Elementary steps that it takes at least to decode an operand, to look at an argument of an operation, and to check the
/// operation, about.
const OPERAND: usize = 128;
const ARGUMENT: usize = 64;
const OPERATION: usize = 512;
/// Inputs and outputs of one operation that the driver takes, many times as many as models have: between two looks whether
/// to stop, an operation's list of them is gone through many times.
const MOST_OPERANDS: usize = 8192;

pub(super) fn decode(subgraph: &aidl::Subgraph, context: &mut Context) -> Result<Subgraph, ModelError> {
    if subgraph.operands.is_empty() || subgraph.operations.is_empty() {
        return Err(ModelError::invalid("a subgraph needs operands and operations"));
    }
    let mut operands = Vec::with_capacity(subgraph.operands.len());
    for (i, operand) in subgraph.operands.iter().enumerate() {
        context.pace.spend(OPERAND + described_by(operand))?;
        operands.push(operand::decode(operand, context).map_err(|e| within(&format!("operand {i}"), e))?);
    }
    let pace = &mut context.pace;
    let inputs = listed(&subgraph.inputIndexes, &operands, "inputs", |l| matches!(l, Lifetime::Input), pace)?;
    let outputs =
        listed(&subgraph.outputIndexes, &operands, "outputs", |l| matches!(l, Lifetime::Output), pace)?;
    let mut operations = Vec::with_capacity(subgraph.operations.len());
    for (i, operation) in subgraph.operations.iter().enumerate() {
        context.pace.spend(steps(operation, &operands))?;
        let name = OperationType::from_code(operation.r#type.0).map_or("unknown", |ty| ty.name());
        operations.push(
            decode_operation(operation, &operands, context)
                .map_err(|e| within(&format!("operation {i} ({name})"), e))?,
        );
    }
    check_order(&operands, &operations, &mut context.pace)?;
    Ok(Subgraph { operands, operations, inputs, outputs })
}

/// How many numbers describe an operand.
fn described_by(operand: &aidl::Operand) -> usize {
    let parameters = match &operand.extraParams {
        Some(aidl::OperandExtraParams::ChannelQuant(quant)) => quant.scales.len(),
        Some(aidl::OperandExtraParams::Extension(bytes)) => bytes.len(),
        None => 0,
    };
    operand.dimensions.len() + parameters
}

/// Elementary steps that it takes to check `operation`, about. Very many may name the same large operand.
fn steps(operation: &aidl::Operation, operands: &[Operand]) -> usize {
    let argument = |&index: &i32| {
        let operand = usize::try_from(index).ok().and_then(|i| operands.get(i));
        ARGUMENT + operand.map_or(0, Operand::steps)
    };
    operation.inputs.iter().chain(&operation.outputs).map(argument).fold(OPERATION, usize::saturating_add)
}

impl Operand {
    /// Elementary steps that it takes to look at all of its description, and at its value if that is copied.
    pub(super) fn steps(&self) -> usize {
        let scales = self.info.channel_quant.as_ref().map_or(0, |quant| quant.scales.len());
        let value = arg(self).and_then(|arg| arg.data).map_or(0, <[u8]>::len);
        self.info.dims.len() + scales + value / size_of::<i32>()
    }
}

/// Checks a list of the subgraph's inputs or outputs: it names exactly the operands of that lifetime, each once.
fn listed(
    list: &[i32],
    operands: &[Operand],
    what: &str,
    belongs: fn(&Lifetime) -> bool,
    pace: &mut Pace,
) -> Result<Vec<usize>, ModelError> {
    let mut seen = vec![false; operands.len()];
    let mut indices = Vec::with_capacity(list.len());
    for &index in list {
        pace.spend(LOOK)?;
        let i = operand_index(index, operands)?;
        if !belongs(&operands[i].lifetime) {
            return Err(ModelError::invalid(format!("{what} list operand {i}, which has another lifetime")));
        }
        if std::mem::replace(&mut seen[i], true) {
            return Err(ModelError::invalid(format!("{what} list operand {i} twice")));
        }
        indices.push(i);
    }
    for (i, (operand, seen)) in operands.iter().zip(seen).enumerate() {
        pace.spend(LOOK)?;
        if belongs(&operand.lifetime) && !seen {
            return Err(ModelError::invalid(format!(
                "{what} do not list operand {i}, whose lifetime says so"
            )));
        }
    }
    Ok(indices)
}

fn operand_index(index: i32, operands: &[Operand]) -> Result<usize, ModelError> {
    usize::try_from(index).ok().filter(|&i| i < operands.len()).ok_or_else(|| {
        ModelError::invalid(format!("operand {index} does not exist; the subgraph has {}", operands.len()))
    })
}

fn decode_operation(
    operation: &aidl::Operation,
    operands: &[Operand],
    context: &Context,
) -> Result<Operation, ModelError> {
    let indices = |list: &[i32]| -> Result<_, ModelError> {
        let mut indices = Vec::with_capacity(list.len());
        for &i in list {
            indices.push(operand_index(i, operands)?);
        }
        Ok(indices)
    };
    let (inputs, outputs) = (indices(&operation.inputs)?, indices(&operation.outputs)?);
    let code = operation.r#type.0;
    let kind = match OperationType::from_code(code) {
        None => match context.extensions.of_type(code) {
            Some(name) if context.extensions.is_known(name) => {
                OperationKind::Extension { extension: name.into(), code: (code & 0xffff) as u16 }
            }
            Some(name) => {
                let name = extensions::shown(name);
                OperationKind::Unsupported(format!("operation {} of extension {name}", code & 0xffff))
            }
            None => return Err(ModelError::invalid(format!("operation type {code} does not exist"))),
        },
        Some(ty) => match ty.operation() {
            None => OperationKind::Unsupported(format!("{ty} is not supported")),
            Some(known) => {
                let signature_index =
                    check_call(known, &inputs, &outputs, operands).map_err(ModelError::Invalid)?;
                match inputs.len() + outputs.len() {
                    count if count > MOST_OPERANDS => OperationKind::Unsupported(format!(
                        "it has {count} operands, more than the {MOST_OPERANDS} that are supported"
                    )),
                    _ => OperationKind::Known { operation: known, signature_index },
                }
            }
        },
    };
    Ok(Operation { kind, inputs, outputs })
}

/// Checks a call against its operation's signature and rules; gives the signature that it matches.
fn check_call(
    operation: &'static ops::Operation,
    inputs: &[usize],
    outputs: &[usize],
    operands: &[Operand],
) -> Result<usize, String> {
    // What is handed to a subgraph may be of any type. Its rules look into other subgraphs and come when all are decoded.
    let hands_over = matches!(operation.run, Run::ControlFlow);
    let of_extension = |&&i: &&usize| operands[i].extension.is_some();
    if let Some(i) = inputs.iter().chain(outputs).find(of_extension).filter(|_| !hands_over) {
        return Err(format!("operand {i} is of an extension's type, which {} does not take", operation.ty));
    }
    let as_operand = |&i: &usize| match operands[i].lifetime {
        Lifetime::NoValue => signature::Operand::Omitted(Some(&operands[i].info)),
        _ => signature::Operand::Present(&operands[i].info),
    };
    let input_operands: Few<_> = inputs.iter().map(as_operand).collect();
    let output_operands: Few<_> = outputs.iter().map(as_operand).collect();
    let signature_index =
        signature::find(operation.signatures, &input_operands, &output_operands)?.signature_index;
    if hands_over {
        return Ok(signature_index);
    }
    match as_call(operands, inputs, outputs, signature_index, operation.check) {
        Ok(()) | Err(OpError::Unresolved) => Ok(signature_index),
        Err(why) => Err(why.to_string()),
    }
}

/// Asks a rule of an operation about a call of it.
fn as_call<T>(
    operands: &[Operand],
    inputs: &[usize],
    outputs: &[usize],
    signature_index: usize,
    rule: impl FnOnce(&Args) -> T,
) -> T {
    let args: Few<Option<Arg>> = inputs.iter().map(|&i| arg(&operands[i])).collect();
    let infos: Few<TensorInfo> = outputs.iter().map(|&i| operands[i].info.clone()).collect();
    rule(&Args { signature_index, inputs: &args, outputs: &infos, interrupt: &NeverInterrupted })
}

impl Subgraph {
    /// The dimensions of an operation's outputs by the rules of the operation table, for a backend that has to know them when
    /// it compiles. The dimensions that the model declares are the client's claim, and may differ. An error says why they are
    /// not known: some depend on values, and only its vendor knows those of an extension's operation.
    pub fn dims_of_outputs(&self, operation: &Operation) -> Result<Vec<Dims>, String> {
        let OperationKind::Known { operation: known, signature_index } = operation.kind else {
            return Err(format!("{:?} is not an operation of the table", operation.kind));
        };
        let shapes = |args: &Args| ops::evaluate::shapes(known, args).map_err(|why| why.to_string());
        as_call(&self.operands, &operation.inputs, &operation.outputs, signature_index, shapes)
    }
}

/// What a check may see of an operand: the value only of constants that are copied already.
fn arg(operand: &Operand) -> Option<Arg<'_>> {
    let data = match &operand.lifetime {
        Lifetime::NoValue => return None,
        Lifetime::Constant(Constant::Private(bytes)) => Some(&bytes[..]),
        _ => None,
    };
    Some(Arg { info: &operand.info, data })
}

/// Checks that each operand is written before it is read, and written once and by an operation if at all.
fn check_order(operands: &[Operand], operations: &[Operation], pace: &mut Pace) -> Result<(), ModelError> {
    let mut known = Vec::with_capacity(operands.len());
    pace.each(operands, LOOK, |operand| {
        known.push(!matches!(operand.lifetime, Lifetime::Temporary | Lifetime::Output))
    })?;
    for (i, operation) in operations.iter().enumerate() {
        pace.spend(LOOK.saturating_mul(1 + operation.inputs.len() + operation.outputs.len()))?;
        if let Some(input) = operation.inputs.iter().find(|&&input| !known[input]) {
            return Err(ModelError::invalid(format!(
                "operation {i} reads operand {input} before it is written"
            )));
        }
        for &output in &operation.outputs {
            if std::mem::replace(&mut known[output], true) {
                return Err(ModelError::invalid(format!(
                    "operation {i} writes operand {output}, which is an input, a constant or written already"
                )));
            }
        }
    }
    match known.iter().position(|known| !known) {
        Some(i) => Err(ModelError::invalid(format!("operand {i} is never written"))),
        None => Ok(()),
    }
}
