//! One call of an operation by its plain evaluation, from signature to outputs: constant folding, backends without a
//! kernel of their own, and the naive side of property tests.

use super::signature::{self, Operand};
use super::{Arg, Args, Computed, Interrupt, OpError, Operation, Out, Run, Shapes};
use crate::memory::AlignedBuf;
use crate::tensor::{byte_size, Dims, TensorInfo};

/// Largest output of a call, in bytes. Models that mean well stay far below; without a bound, the few bytes of a FILL or
/// TILE could have the driver touch 4 GiB.
pub const LARGEST_OUTPUT: usize = 1 << 30;

/// Most dimensions of an output: as many as a [`Slot`](signature::Slot) lets an input have. Models that mean well have 8;
/// without a bound, an INT32 vector of some client memory that nobody ever wrote could be the rank of a tensor.
pub const MOST_DIMS: usize = u8::MAX as usize;

/// Evaluates `operation` on `inputs`, whose dimensions and values are all known. `outputs` say what the outputs are
/// declared to be; their dimensions are not read.
pub fn evaluate(
    operation: &Operation,
    inputs: &[Option<Arg>],
    outputs: &[TensorInfo],
    interrupt: &dyn Interrupt,
) -> Result<Vec<Computed>, OpError> {
    let in_operands: Vec<_> = inputs
        .iter()
        .map(|arg| arg.map_or(Operand::Omitted(None), |arg| Operand::Present(arg.info)))
        .collect();
    let out_operands: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let signature_index = signature::find(operation.signatures, &in_operands, &out_operands)
        .map_err(OpError::Failed)?
        .signature_index;
    let args = Args { signature_index, inputs, outputs, interrupt };
    (operation.check)(&args)?;
    run(operation, &args)
}

/// Runs a call that has been matched and checked.
pub fn run(operation: &Operation, args: &Args) -> Result<Vec<Computed>, OpError> {
    match operation.run {
        Run::Unshaped { eval } => eval(args),
        Run::ControlFlow => Err(OpError::failed("control flow has no evaluation of its own")),
        Run::Shaped { eval, .. } => {
            let dims = shapes(operation, args)?;
            let infos: Vec<TensorInfo> =
                args.outputs.iter().zip(&dims).map(|(info, dims)| with_dims(info, dims)).collect();
            let mut data = infos.iter().map(allocate).collect::<Result<Vec<_>, _>>()?;
            let mut outs: Vec<Out> =
                infos.iter().zip(&mut data).map(|(info, data)| Out { info, data: &mut data[..] }).collect();
            eval(args, &mut outs)?;
            Ok(dims.into_iter().zip(data).map(|(dims, data)| Computed { dims, data }).collect())
        }
    }
}

/// Dimensions of the outputs of a call that has been matched and checked, as many as the call has outputs and each of at
/// most [`LARGEST_OUTPUT`] bytes. [`OpError::Unresolved`] where only the evaluation tells them.
pub fn shapes(operation: &Operation, args: &Args) -> Shapes {
    let Run::Shaped { shapes, .. } = operation.run else { return Err(OpError::Unresolved) };
    // Where a model leaves a rank open, it is what a request says.
    args.inputs.iter().flatten().try_for_each(|arg| check_rank(arg.dims().len()))?;
    let dims = shapes(args)?;
    if dims.len() != args.outputs.len() {
        return Err(OpError::failed(format!("{} outputs, expected {}", args.outputs.len(), dims.len())));
    }
    check_sizes(args.outputs, &dims)?;
    Ok(dims)
}

/// Refuses to make a tensor of more than [`MOST_DIMS`] dimensions. To be asked before they are copied.
pub fn check_rank(rank: usize) -> Result<(), OpError> {
    match rank {
        0..=MOST_DIMS => Ok(()),
        _ => {
            Err(OpError::failed(format!("rank {rank} is above {MOST_DIMS}, the most that a tensor may have")))
        }
    }
}

/// Checks that outputs of these dimensions, at most [`MOST_DIMS`], have at most [`LARGEST_OUTPUT`] bytes each.
pub fn check_sizes(outputs: &[TensorInfo], dims: &[Dims]) -> Result<(), OpError> {
    for (i, (info, dims)) in outputs.iter().zip(dims).enumerate() {
        output_size(info, dims).map_err(|why| OpError::failed(format!("output {i}: {why}")))?;
    }
    Ok(())
}

/// Bytes of an output with these dimensions; an error if there are too many of either.
fn output_size(info: &TensorInfo, dims: &[u32]) -> Result<usize, OpError> {
    check_rank(dims.len())?;
    let size = byte_size(info.ty, dims).filter(|&size| size <= LARGEST_OUTPUT);
    size.ok_or_else(|| OpError::failed(format!("dimensions {dims:?} take more than {LARGEST_OUTPUT} bytes")))
}

/// `info` with other dimensions.
pub fn with_dims(info: &TensorInfo, dims: &[u32]) -> TensorInfo {
    TensorInfo { dims: Dims::from_slice(dims), ..info.clone() }
}

/// Memory for an output of at most [`LARGEST_OUTPUT`] bytes.
pub fn allocate(info: &TensorInfo) -> Result<AlignedBuf, OpError> {
    let size = output_size(info, &info.dims)?;
    AlignedBuf::zeroed(size).ok_or(OpError::OutOfMemory(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::movement::{EXPAND_DIMS, FILL, RANK};
    use crate::ops::testing::{call, f32s, float, i32s, int};
    use crate::ops::NeverInterrupted;
    use crate::tensor::OperandType;

    #[test]
    fn ranks_have_a_limit() {
        let fill = |rank: usize| {
            let inputs = [Some(i32s(&[rank as u32], &vec![0; rank])), Some(float(1.0))];
            call(&FILL, &inputs, &[TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])])
        };
        assert_eq!(fill(MOST_DIMS).unwrap()[0].dims.len(), MOST_DIMS);
        let why = "rank 256 is above 255, the most that a tensor may have";
        assert_eq!(fill(MOST_DIMS + 1).unwrap_err().to_string(), why);
        // One dimension more than there may be.
        let inputs = [Some(f32s(&[1; MOST_DIMS], &[1.0])), Some(int(0))];
        let expanded = call(&EXPAND_DIMS, &inputs, &[TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])]);
        assert_eq!(expanded.unwrap_err().to_string(), format!("output 0: {why}"));
        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1; MOST_DIMS + 1]);
        let (inputs, outputs) =
            ([Some(Arg { info: &info, data: None })], [TensorInfo::new(OperandType::INT32, &[])]);
        let args =
            Args { signature_index: 0, inputs: &inputs, outputs: &outputs, interrupt: &NeverInterrupted };
        assert_eq!(shapes(&RANK, &args).unwrap_err().to_string(), why);
    }

    #[test]
    fn a_small_call_cannot_ask_for_all_memory() {
        let fill = |count| {
            let inputs = [Some(i32s(&[1], &[count])), Some(float(1.0))];
            call(&FILL, &inputs, &[TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])])
        };
        assert_eq!(fill(3).unwrap()[0].data.len(), 12);
        let one_too_many = fill((LARGEST_OUTPUT / 4) as i32 + 1).unwrap_err().to_string();
        assert_eq!(
            one_too_many,
            format!("output 0: dimensions [268435457] take more than {LARGEST_OUTPUT} bytes")
        );
    }
}
