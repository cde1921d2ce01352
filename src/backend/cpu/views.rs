//! Calls that have nothing to do where values have the right places: what such a call makes lies in what it makes it from (a
//! reshaped tensor, the halves of a split one), or what it puts together lies in what it makes.
//!
//! This says which values would have to lie in which; it gives nothing a place.

use super::routine::{Place, Routine, STEPS};
use crate::ops::movement::{is_requantised, moves, moves_only, Move};
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Arg, Args, Interrupt, OpError, OperationType};
use crate::tensor::element_count;

/// A value whose bytes are a part of those of a whole one.
pub struct Piece {
    pub value: usize,
    pub whole: usize,
    /// Its first byte there.
    pub start: usize,
}

/// The pieces that a call's values could be, with its inputs and outputs by value; none if it has something to do wherever they
/// lie. All dimensions must be known.
pub fn pieces(
    ty: OperationType,
    args: &Args,
    inputs: &[Option<usize>],
    outputs: &[usize],
) -> Result<Scratch<Piece>, OpError> {
    let moves = match moves(ty, args) {
        Some(Ok(moves)) => moves,
        Some(Err(why @ (OpError::DeadlinePassed | OpError::Cancelled))) => return Err(why),
        _ => return reserved(0),
    };
    // Either each output is a stretch of the first input, or each input is one of the only output.
    let apart = outputs.len() == moves.len() && moves.iter().all(|step| step.input == 0);
    if !apart && outputs.len() != 1 {
        return reserved(0);
    }
    let (mut pieces, mut made, mut pace) = (reserved(moves.len())?, 0usize, Pace::new(args));
    for step in &moves {
        pace.spend(STEPS)?;
        let stretch = Stretch::of(ty, args, step);
        let (Some(stretch), Some(&Some(input))) = (stretch, inputs.get(step.input)) else {
            return reserved(0);
        };
        let part = match apart {
            true => args.output(step.output)?,
            false => args.get(step.input)?.info,
        };
        if part.byte_size() != Some(stretch.len) {
            return reserved(0);
        }
        made = made.saturating_add(stretch.len);
        let output = outputs[step.output];
        pieces.push(match apart {
            true => Piece { value: output, whole: input, start: stretch.from },
            false => Piece { value: input, whole: output, start: stretch.to },
        });
    }
    match apart || args.output(0)?.byte_size() == Some(made) {
        true => Ok(pieces),
        false => reserved(0),
    }
}

/// What a call moves as it is, in one go, in bytes.
struct Stretch {
    from: usize,
    to: usize,
    len: usize,
}

impl Stretch {
    /// `None` if the move is none, or its places are beyond what addresses count.
    fn of(ty: OperationType, args: &Args, step: &Move) -> Option<Stretch> {
        let (input, output) = (args.get(step.input).ok()?, args.output(step.output).ok()?);
        let counts = [input.dims(), &output.dims].map(element_count);
        let ((from, to), axes) = step.walk.checked(counts[0]?, counts[1]?)?;
        let [axis] = axes[..] else { return None };
        let is_stretch = (axis.from, axis.to) == (1, 1) || axis.count == 1;
        if !is_stretch || ty == OperationType::CONCATENATION && is_requantised(input.info, output) {
            return None;
        }
        let size = output.ty.element_size()?;
        let bytes = |count: usize| count.checked_mul(size);
        Some(Stretch { from: bytes(from)?, to: bytes(to)?, len: bytes(usize::try_from(axis.count).ok()?)? })
    }
}

/// The same routine, knowing which of its steps have nothing to do where nothing is [unplanned](super::frame::Frame::unplanned).
pub fn with_views(mut routine: Routine, interrupt: &dyn Interrupt) -> Result<Routine, OpError> {
    let mut pace = Pace::of(interrupt);
    let part = |v: usize| match &routine.values[v].place {
        Place::Arena(_, part) => Some(part),
        _ => None,
    };
    let lies_there = |piece: &Piece| match (part(piece.value), part(piece.whole)) {
        (Some(part), Some(whole)) => {
            Some(part.start) == whole.start.checked_add(piece.start) && part.end <= whole.end
        }
        _ => false,
    };
    for step in &mut routine.steps {
        pace.spend(STEPS.saturating_add(step.inputs.len()).saturating_add(step.outputs.len()))?;
        let mut operands = step.inputs.iter().flatten().chain(&step.outputs);
        let is_known = |&v: &usize| !matches!(routine.values[v].place, Place::Dynamic);
        if !moves_only(step.operation.ty) || !operands.all(is_known) {
            continue;
        }
        let arg = |v: usize| {
            let value = &routine.values[v];
            let data = match &value.place {
                Place::Constant(_, bytes) => Some(&bytes[..]),
                _ => None,
            };
            Arg { info: value.info(), data }
        };
        let inputs: Vec<Option<Arg>> = step.inputs.iter().map(|&v| v.map(arg)).collect();
        let outputs = &step.output_infos;
        let args = Args { signature_index: step.signature_index, inputs: &inputs, outputs, interrupt };
        let pieces = pieces(step.operation.ty, &args, &step.inputs, &step.outputs)?;
        pace.spend(pieces.len().saturating_mul(STEPS))?;
        step.in_place = !pieces.is_empty() && pieces.iter().all(lies_there);
    }
    Ok(routine)
}
