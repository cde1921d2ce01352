//! Checks mapped operations against the operation table, so that no mapping needs to know which types and ranks NNAPI
//! takes.

use super::error::Refusal;
use crate::client::builder::{Builder, BuiltOperation};
use crate::ops::{signature, Arg, Args, NeverInterrupted, OpError, Operation};
use crate::tensor::TensorInfo;

/// Checks the operations of `builder` from number `first` on.
pub fn verify(builder: &Builder, first: usize) -> Result<(), Refusal> {
    for built in &builder.operations()[first..] {
        // What this driver does not know yet, another may: let the driver judge.
        let Some(operation) = built.ty.operation() else { continue };
        check(builder, built, operation).map_err(|why| Refusal(format!("as {}: {why}", built.ty)))?;
    }
    Ok(())
}

fn check(builder: &Builder, built: &BuiltOperation, operation: &Operation) -> Result<(), String> {
    let operand = |&i: &i32| match builder.is_omitted(i) {
        true => signature::Operand::Omitted(Some(builder.info(i))),
        false => signature::Operand::Present(builder.info(i)),
    };
    let inputs: Vec<_> = built.inputs.iter().map(operand).collect();
    let outputs: Vec<_> = built.outputs.iter().map(operand).collect();
    let signature_index = signature::find(operation.signatures, &inputs, &outputs)?.signature_index;
    let args: Vec<_> = built
        .inputs
        .iter()
        .map(|&i| (!builder.is_omitted(i)).then(|| Arg { info: builder.info(i), data: None }))
        .collect();
    let infos: Vec<TensorInfo> = built.outputs.iter().map(|&i| builder.info(i).clone()).collect();
    let call = Args { signature_index, inputs: &args, outputs: &infos, interrupt: &NeverInterrupted };
    match (operation.check)(&call) {
        Ok(()) | Err(OpError::Unresolved) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}
