//! Checks mapped operations against the operation table, so that no mapping needs to know which types and ranks NNAPI
//! takes, and so that what would fail in each run is refused by the operator that it comes from.

use super::error::Refusal;
use crate::client::builder::{Builder, BuiltOperation, OperandIndex};
use crate::ops::evaluate::shapes;
use crate::ops::{signature, Arg, Args, Few, NeverInterrupted, OpError, Operation};
use crate::tensor::{Dims, TensorInfo};

/// Checks the operations of `builder` from number `first` on.
pub fn verify(builder: &Builder, first: usize) -> Result<(), Refusal> {
    for built in &builder.operations()[first..] {
        if built.inputs.iter().any(|&input| builder.is_too_long(input)) {
            return Err(Refusal(format!("as {}: it takes too large a constant", built.ty)));
        }
        // What this driver does not know yet, another may: let the driver judge.
        let Some(operation) = built.ty.operation() else { continue };
        check(builder, built, operation).map_err(|why| Refusal(format!("as {}: {why}", built.ty)))?;
    }
    Ok(())
}

/// Constants of more bytes than this are data: what steers an operation is shorter.
const MOST_STEERING: usize = 128;

fn check(builder: &Builder, built: &BuiltOperation, operation: &Operation) -> Result<(), String> {
    let operand = |&i: &i32| match builder.is_omitted(i) {
        true => signature::Operand::Omitted(Some(builder.info(i))),
        false => signature::Operand::Present(builder.info(i)),
    };
    let inputs: Few<_> = built.inputs.iter().map(operand).collect();
    let outputs: Few<_> = built.outputs.iter().map(operand).collect();
    let signature_index = signature::find(operation.signatures, &inputs, &outputs)?.signature_index;
    let values: Few<_> = built.inputs.iter().map(|&i| steering(builder, i)).collect();
    let args: Few<_> = built
        .inputs
        .iter()
        .zip(&values)
        .map(|(&i, value)| {
            let data = value.as_ref().map(Steering::bytes);
            (!builder.is_omitted(i)).then(|| Arg { info: builder.info(i), data })
        })
        .collect();
    let infos: Few<TensorInfo> = built.outputs.iter().map(|&i| builder.info(i).clone()).collect();
    let call = Args { signature_index, inputs: &args, outputs: &infos, interrupt: &NeverInterrupted };
    let dims = (operation.check)(&call).and_then(|()| shapes(operation, &call));
    match dims {
        Ok(dims) => same_dims(&infos, &dims),
        Err(OpError::Unresolved) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

/// The value of a constant that may steer, aligned as operations read it. It takes no memory of its own, as a model has many.
struct Steering {
    words: [u64; MOST_STEERING / 8],
    len: usize,
}

impl Steering {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

fn steering(builder: &Builder, i: OperandIndex) -> Option<Steering> {
    builder.info(i).byte_size().filter(|&size| size <= MOST_STEERING)?;
    let bytes = builder.bytes(i)?;
    let mut steering = Steering { words: [0; MOST_STEERING / 8], len: bytes.len() };
    bytemuck::cast_slice_mut(&mut steering.words).get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(steering)
}

/// An operation whose outputs are declared otherwise than it makes them would fail in each run.
fn same_dims(declared: &[TensorInfo], made: &[Dims]) -> Result<(), String> {
    match declared.iter().zip(made).position(|(info, dims)| info.dims != *dims) {
        Some(i) => {
            let (stated, made) = (&declared[i].dims, &made[i]);
            Err(format!("output {i} has dimensions {made:?}, the model states {stated:?}"))
        }
        None => Ok(()),
    }
}
