//! Validation of good calls of which less is known: it must not refuse what it cannot see.

use super::{Random, TensorInfo, Value};
use nnhal::ops::signature::{self, Operand};
use nnhal::ops::{Arg, Args, NeverInterrupted, OpError, Operation, Run};

/// Validates a call that has succeeded, as a model would declare it: with dimensions, ranks and values that are not
/// known yet; `results` have the dimensions that the call gave.
pub fn validates(
    operation: &Operation,
    inputs: &[Option<&Value>],
    results: &[TensorInfo],
    random: &mut Random,
) {
    let infos: Vec<Option<TensorInfo>> =
        inputs.iter().map(|v| v.map(|v| less_known(&v.info, random))).collect();
    let outputs: Vec<TensorInfo> = results.iter().map(|info| less_known(info, random)).collect();
    let operands: Vec<_> =
        infos.iter().map(|info| info.as_ref().map_or(Operand::Omitted(None), Operand::Present)).collect();
    let declared: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let found = signature::find(operation.signatures, &operands, &declared)
        .unwrap_or_else(|e| panic!("{:?}: {e}, with {infos:?} -> {outputs:?}", operation.ty));
    // A value without all of its dimensions is no constant's.
    let args: Vec<Option<Arg>> = infos
        .iter()
        .zip(inputs)
        .map(|(info, value)| {
            let (info, value) = (info.as_ref()?, (*value)?);
            let constant = info.dims == value.info.dims && random.coin();
            Some(Arg { info, data: constant.then_some(&value.data[..]) })
        })
        .collect();
    let args = Args {
        signature_index: found.signature_index,
        inputs: &args,
        outputs: &outputs,
        interrupt: &NeverInterrupted,
    };
    match (operation.check)(&args) {
        Ok(()) | Err(OpError::Unresolved) => {}
        Err(e) => panic!("{:?}: {e}, with {infos:?} -> {outputs:?}", operation.ty),
    }
}

/// With all dimensions known but only some values, a shape rule says the same as with all, or that it cannot tell.
pub fn shapes_resolve_late(
    operation: &Operation,
    inputs: &[Option<&Value>],
    results: &[TensorInfo],
    random: &mut Random,
) {
    let Run::Shaped { shapes, .. } = operation.run else { return };
    let operands: Vec<_> =
        inputs.iter().map(|v| v.map_or(Operand::Omitted(None), |v| Operand::Present(&v.info))).collect();
    let declared: Vec<_> = results.iter().map(Operand::Present).collect();
    let Ok(found) = signature::find(operation.signatures, &operands, &declared) else { return };
    let args: Vec<Option<Arg>> = inputs
        .iter()
        .map(|v| v.map(|v| Arg { info: &v.info, data: random.coin().then_some(&v.data[..]) }))
        .collect();
    let args = Args {
        signature_index: found.signature_index,
        inputs: &args,
        outputs: results,
        interrupt: &NeverInterrupted,
    };
    match shapes(&args) {
        Err(OpError::Unresolved) => {}
        Err(e) => panic!("{:?}: {e}, without some values", operation.ty),
        Ok(dims) => {
            let want: Vec<_> = results.iter().map(|info| info.dims.clone()).collect();
            assert_eq!(dims, want, "{:?}, without some values", operation.ty);
        }
    }
}

/// `info` as a model may declare it: some dimensions unknown, or all, or the rank.
pub fn less_known(info: &TensorInfo, random: &mut Random) -> TensorInfo {
    let mut info = info.clone();
    match random.below(4) {
        0 => {}
        1 => info.dims.clear(),
        2 => info.dims.iter_mut().for_each(|dim| *dim = 0),
        _ => info.dims.iter_mut().for_each(|dim| *dim *= u32::from(random.coin())),
    }
    info
}
