//! What an operation is to those who check, compile, run or describe it, and rules that many share.

use super::{Args, OpError, OperationType, Out, Signature};
use crate::memory::AlignedBuf;
use crate::tensor::{Dims, TensorInfo};

/// Dimensions of all outputs, in order.
pub type Shapes = Result<Vec<Dims>, OpError>;

/// An operation: everything the driver knows of it.
pub struct Operation {
    pub ty: OperationType,
    /// One line for `nnhal info` and the documentation.
    pub doc: &'static str,
    /// The ways to call it; the first that matches counts.
    pub signatures: &'static [Signature],
    /// Rules beyond the signature, checked at validation: dimensions may be unknown (0, or no rank at all), and only
    /// constants have data. What is unknown must pass.
    pub check: fn(&Args) -> Result<(), OpError>,
    pub run: Run,
}

/// How an operation is run.
pub enum Run {
    /// Output dimensions follow from input dimensions and the values of a few inputs.
    Shaped {
        /// Dimensions of the outputs. All input dimensions are real; inputs without data that it needs make it
        /// [`OpError::Unresolved`].
        shapes: fn(&Args) -> Shapes,
        /// Fills the outputs, which have the dimensions that `shapes` gave.
        eval: fn(&Args, &mut [Out]) -> Result<(), OpError>,
    },
    /// Output dimensions are known only once the outputs are computed.
    Unshaped { eval: fn(&Args) -> Result<Vec<Computed>, OpError> },
    /// IF and WHILE: the backend runs their subgraphs.
    ControlFlow,
}

/// An output of an operation whose dimensions depend on its data.
#[derive(Debug)]
pub struct Computed {
    pub dims: Dims,
    /// Elements in the output's type, row-major.
    pub data: AlignedBuf,
}

/// No rules beyond the signature.
pub fn no_check(_: &Args) -> Result<(), OpError> {
    Ok(())
}

/// The shape rule of operations whose only output has the first input's dimensions.
pub fn same_as_first(args: &Args) -> Shapes {
    Ok(vec![args.get(0)?.dims().into()])
}

/// A check that scale and zero point of `a` and `b` are the same.
pub fn same_quantisation(a: &TensorInfo, b: &TensorInfo) -> Result<(), OpError> {
    if a.scale == b.scale && a.zero_point == b.zero_point {
        return Ok(());
    }
    Err(OpError::failed(format!(
        "scale {} and zero point {} differ from scale {} and zero point {}",
        a.scale, a.zero_point, b.scale, b.zero_point
    )))
}

/// A check that the first output is quantised as input `i` is, where that has 8-bit values: they are taken over as they are.
/// That is a rule of execution, not of validation, in the reference, and so it is shape rules that ask for it.
pub fn keeps_quantisation(args: &Args, i: usize) -> Result<(), OpError> {
    let input = args.arg(i)?;
    if !input.ty().is_quant8_asymm() {
        return Ok(());
    }
    same_quantisation(input.info, args.output(0)?)
}

/// `axis` as an index below `rank`, negative values counted from the end.
pub fn axis_index(axis: i32, rank: usize) -> Result<usize, OpError> {
    let from_end = if axis < 0 { i64::from(axis) + rank as i64 } else { i64::from(axis) };
    usize::try_from(from_end)
        .ok()
        .filter(|&axis| axis < rank)
        .ok_or_else(|| OpError::failed(format!("axis {axis} is out of range for rank {rank}")))
}
