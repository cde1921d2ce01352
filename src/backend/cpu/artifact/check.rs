//! What must hold of a program beyond its parts: what compilation sees to, and running relies on.

use super::bytes::{malformed, Unread};
use crate::backend::cpu::routine::is_data;
use crate::backend::cpu::routine::{Place, Routine, Step, Value};
use crate::backend::cpu::signs;
use crate::model::MAX_NESTING;
use crate::ops::pace::Pace;
use crate::ops::scratch::{copied, filled};
use crate::ops::signature::{self, Operand, Signature};
use crate::ops::{Arg, Args, Interrupt, OpError, Operation, OperationType, Run};
use crate::tensor::{OperandType, TensorInfo};

/// What it costs to look at a value or a step again, in the steps that [`Pace`] counts.
const LOOK: usize = 16;

/// Checks that an arena of `size` bytes holds all parts, and is no larger than they could need.
pub fn arena(values: &[Value], size: usize, pace: &mut Pace) -> Result<(), Unread> {
    let mut most = 0usize;
    for value in values {
        pace.spend(LOOK)?;
        let Place::Arena(_, part) = &value.place else { continue };
        if part.end > size {
            return malformed(format!("{part:?} of an arena of {size} bytes"));
        }
        most = most.saturating_add(part.len().next_multiple_of(64));
    }
    if size > most {
        return malformed(format!("an arena of {size} bytes for values of {most}"));
    }
    Ok(())
}

/// A call of an operation on values of a routine.
pub struct Call<'a> {
    pub operation: &'static Operation,
    pub inputs: &'a [Option<usize>],
    pub outputs: &'a [usize],
    pub values: &'a [Value],
    pub interrupt: &'a dyn Interrupt,
}

impl<'a> Call<'a> {
    /// The signature that the call matches, once it also keeps the operation's rules.
    pub fn signature_index(&self) -> Result<usize, Unread> {
        // Which 8-bit type a value between operations has is the compiler's affair, not the signature's.
        let types = [OperandType::TENSOR_QUANT8_ASYMM, OperandType::TENSOR_QUANT8_ASYMM_SIGNED];
        let mixed = types.into_iter().filter(|_| signs::may_mix(self.operation.ty));
        let mut types = std::iter::once(None).chain(mixed.map(Some));
        let followed = types.find_map(|bytes| self.with_operands(bytes, signature::followed));
        let of_none = || self.with_operands(None, signature::find).map_err(Unread::Malformed);
        let signature_index = followed.map_or_else(of_none, Ok)?.signature_index;
        if matches!(self.operation.run, Run::ControlFlow) {
            return Ok(signature_index);
        }
        let arg = |v: usize| Arg { info: &self.values[v].declared, data: self.steering(v) };
        let args: Vec<Option<Arg>> = self.inputs.iter().map(|input| input.map(arg)).collect();
        let infos: Vec<TensorInfo> = self.outputs.iter().map(|&v| self.values[v].declared.clone()).collect();
        let call = Args { signature_index, inputs: &args, outputs: &infos, interrupt: self.interrupt };
        match (self.operation.check)(&call) {
            Ok(()) | Err(OpError::Unresolved) => Ok(signature_index),
            Err(why) => Err(self.fault(why)),
        }
    }

    /// What `find` finds among the operation's signatures for the declared types, all asymmetric 8-bit values but constants
    /// taken for ones of type `bytes`, if that is given.
    fn with_operands<T>(
        &self,
        bytes: Option<OperandType>,
        find: impl Fn(&[Signature], &[Operand], &[Operand]) -> T,
    ) -> T {
        let as_type = |value: &Value| -> TensorInfo {
            let varies = value.declared.ty.is_quant8_asymm()
                && !matches!(value.place, Place::Constant(..) | Place::Packed(_));
            let ty = bytes.filter(|_| varies).unwrap_or(value.declared.ty);
            TensorInfo { ty, ..value.declared.clone() }
        };
        let infos = |v: &usize| as_type(&self.values[*v]);
        let inputs: Vec<_> = self.inputs.iter().map(|input| input.as_ref().map(infos)).collect();
        let outputs: Vec<_> = self.outputs.iter().map(infos).collect();
        let inputs: Vec<_> = inputs
            .iter()
            .map(|info| info.as_ref().map_or(Operand::Omitted(None), Operand::Present))
            .collect();
        let outputs: Vec<_> = outputs.iter().map(Operand::Present).collect();
        find(self.operation.signatures, &inputs, &outputs)
    }

    /// Checks that outputs are all known ahead or none, and if they are, that they have the dimensions that the
    /// operation gives them. Whether they are.
    pub fn check_shapes(&self, signature_index: usize) -> Result<bool, Unread> {
        let known =
            self.outputs.iter().filter(|&&o| matches!(self.values[o].place, Place::Arena(..))).count();
        let dynamic = self.outputs.iter().all(|&o| matches!(self.values[o].place, Place::Dynamic));
        if known == 0 && dynamic {
            return Ok(false);
        }
        let infos: Vec<TensorInfo> = self.outputs.iter().map(|&o| self.values[o].info().clone()).collect();
        let (Run::Shaped { shapes, .. }, Some(inputs)) = (&self.operation.run, self.arguments()) else {
            return malformed(format!("{}: outputs that cannot be known ahead", self.operation.ty));
        };
        let args = Args { signature_index, inputs: &inputs, outputs: &infos, interrupt: self.interrupt };
        let dims = shapes(&args).map_err(|why| self.fault(why))?;
        if known != self.outputs.len() || !dims.iter().eq(infos.iter().map(|info| &info.dims)) {
            return malformed(format!("{}: outputs of other dimensions", self.operation.ty));
        }
        Ok(true)
    }

    /// Inputs as they are known ahead; `None` if some dimensions are not.
    pub fn arguments(&self) -> Option<Vec<Option<Arg<'a>>>> {
        let values = self.values;
        let arg = |input: &Option<usize>| match *input {
            None => Some(None),
            Some(v) => match &values[v].place {
                Place::Dynamic => None,
                _ => Some(Some(Arg { info: values[v].info(), data: self.steering(v) })),
            },
        };
        self.inputs.iter().map(arg).collect()
    }

    fn fault(&self, why: OpError) -> Unread {
        match why {
            OpError::DeadlinePassed | OpError::Cancelled | OpError::OutOfMemory(_) => Unread::Stopped(why),
            why => Unread::Malformed(format!("{}: {why}", self.operation.ty)),
        }
    }

    /// A value that may steer, if it is a constant.
    fn steering(&self, v: usize) -> Option<&'a [u8]> {
        let values = self.values;
        match &values[v].place {
            Place::Constant(info, bytes) if !is_data(info, bytes.len()) => Some(&bytes[..]),
            _ => None,
        }
    }
}

/// Checks that IF and WHILE find the routines they need, and that none leads back to itself.
pub fn control_flow(routines: &[Routine], pace: &mut Pace) -> Result<(), Unread> {
    if routines.is_empty() {
        return malformed("it has no routine");
    }
    for routine in routines {
        pace.spend(LOOK)?;
        for step in &routine.steps {
            pace.spend(LOOK.saturating_add(step.inputs.len()).saturating_add(step.outputs.len()))?;
            let sound = match step.operation.ty {
                OperationType::IF => check_if(routines, routine, step),
                OperationType::WHILE => check_while(routines, routine, step),
                _ => step.routines.is_empty().then_some(()),
            };
            if sound.is_none() {
                return malformed(format!("{} does not fit its subgraphs", step.name()));
            }
        }
    }
    // Each round settles one more level; whatever is not settled by then nests too deep, or in a circle.
    let mut depth = filled(pace.interrupt(), 0usize, routines.len())?;
    for _ in 0..=MAX_NESTING {
        let before = copied(pace.interrupt(), &depth)?;
        for (own, routine) in depth.iter_mut().zip(routines) {
            let mut deepest = 0;
            pace.spend(LOOK)?;
            pace.each(&routine.steps, LOOK, |step| {
                deepest = step.routines.iter().map(|&r| before[r] + 1).fold(deepest, usize::max);
            })?;
            *own = deepest;
        }
        if depth == before {
            return Ok(());
        }
    }
    malformed("subgraphs nest too deep")
}

fn check_if(routines: &[Routine], outer: &Routine, step: &Step) -> Option<()> {
    let [then, otherwise] = step.routines[..] else { return None };
    let handed = step.inputs.get(3..)?;
    for branch in [routines.get(then)?, routines.get(otherwise)?] {
        hand_in(outer, handed, branch)?;
        same_types(outer, &step.outputs, branch, &branch.outputs)?;
    }
    Some(())
}

fn check_while(routines: &[Routine], outer: &Routine, step: &Step) -> Option<()> {
    let [condition, body] = step.routines[..] else { return None };
    let (condition, body) = (routines.get(condition)?, routines.get(body)?);
    let handed = step.inputs.get(2..)?;
    hand_in(outer, handed, condition)?;
    hand_in(outer, handed, body)?;
    same_types(outer, &step.outputs, body, body.outputs.get(..step.outputs.len())?)?;
    same_types(body, &body.outputs, body, body.inputs.get(..body.outputs.len())?)
}

fn hand_in(outer: &Routine, from: &[Option<usize>], inner: &Routine) -> Option<()> {
    let same = |(from, &to): (&Option<usize>, &usize)| {
        from.is_none_or(|from| outer.values[from].declared.ty == inner.values[to].declared.ty)
    };
    (from.len() == inner.inputs.len() && from.iter().zip(&inner.inputs).all(same)).then_some(())
}

fn same_types(a: &Routine, from: &[usize], b: &Routine, to: &[usize]) -> Option<()> {
    let same = |(&from, &to): (&usize, &usize)| a.values[from].declared.ty == b.values[to].declared.ty;
    (from.len() == to.len() && from.iter().zip(to).all(same)).then_some(())
}
