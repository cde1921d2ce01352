//! What a run that goes as planned does: calls of kernels in order, each with the places of its operands, which are looked up and
//! found to be apart once. A step that has nothing to do, or that another one's call does, is not among them.
//!
//! It says nothing that a routine does not say, and is no part of what is saved.

use super::arguments::{Arguments, Candidates};
use super::chain::Followed;
use super::frame::broken_plan;
use super::kernels::Kernel;
use super::routine::{Group, Place, Routine, Step, STEPS};
use crate::backend::BackendError;
use crate::memory::{AlignedBuf, ApartLists, Arena, Target, View, FEW};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// What a run of a routine does, in order.
#[derive(Default)]
pub struct Calls {
    pub list: Vec<Call>,
    operands: Vec<Operand>,
    onward: Vec<Onward>,
    parts: ApartLists,
}

pub struct Call {
    /// The first step that it does.
    pub step: usize,
    pub what: What,
}

pub enum What {
    Kernel(KernelCall),
    /// A chain of the routine, in the place of so many calls behind it; these do the same where it does not pay.
    Chain(usize, usize),
    /// The step is done without a kernel.
    Plain,
}

/// A kernel, what it reads and what it makes.
pub struct KernelCall {
    pub kernel: Arc<dyn Kernel>,
    /// What goes on with its output, one after the other, among all that do.
    onward: Range<usize>,
    /// What multiplies what becomes of it; its right matrices are the call's last input.
    pub multiplier: Option<Arc<dyn Kernel>>,
    /// Its operands among all: the inputs, the outputs, and the other inputs of what goes on.
    operands: Range<usize>,
    inputs: usize,
    outputs: usize,
    /// The list of parts of the arena that they are, in this order.
    parts: usize,
}

/// What goes on with the output of a kernel.
pub struct Onward {
    pub kernel: Arc<dyn Kernel>,
    pub picoseconds: usize,
    /// Which of its inputs is what was made, and whether it has another.
    pub own: usize,
    pub has_other: bool,
}

/// Where an operand's bytes are.
enum Operand {
    /// A run brings none: it is left out, or is among packed weights.
    Nowhere,
    Constant(Arc<AlignedBuf>),
    /// The next part of the arena.
    Arena,
    /// The same, or an argument's place in a client's memory if it is in place there.
    Argument(usize),
}

impl Calls {
    /// Those of `routine`, some of whose arguments may be in place if it is the main one.
    pub fn of(
        routine: &Routine,
        in_place: Option<&Candidates>,
        pace: &mut Pace,
    ) -> Result<Calls, BackendError> {
        let mut arguments = filled(pace.interrupt(), false, routine.values.len())?;
        let candidates = in_place.map_or((&[][..], &[][..]), |of| (&of.inputs, &of.outputs));
        let inputs = routine.inputs.iter().zip(candidates.0);
        inputs.chain(routine.outputs.iter().zip(candidates.1)).for_each(|(&v, &may)| arguments[v] |= may);
        let found = Calls::with_room(routine, pace)?;
        let mut calls = Finder { routine, arguments, found };
        let mut chains = 0;
        for (steps, group) in routine.groups() {
            pace.spend(STEPS.saturating_mul(steps.len()))?;
            let last = &routine.steps[steps.end - 1];
            match group {
                Group::Chain(chain) => {
                    calls.add(steps.start, What::Chain(chains, 0));
                    let before = calls.found.list.len();
                    for link in &chain.links {
                        match &link.onward {
                            Some(followed) => calls.add_followed(followed)?,
                            None => calls.add_step(link.step, &routine.steps[link.step], pace)?,
                        }
                    }
                    let instead = calls.found.list.len() - before;
                    calls.found.list[before - 1].what = What::Chain(chains, instead);
                    chains += 1;
                }
                Group::Merged(merged) => {
                    let kernel = merged.kernel.clone();
                    calls.add_kernel(steps.start, kernel, &[Some(merged.operand)], &last.outputs, None)?;
                }
                Group::Followed(followed) => calls.add_followed(followed)?,
                Group::Alone(step) => calls.add_step(steps.start, step, pace)?,
            }
        }
        Ok(calls.found)
    }

    /// None yet, with room for all that there can be: a client chooses how many that are, and that must not end the process.
    fn with_room(routine: &Routine, pace: &mut Pace) -> Result<Calls, BackendError> {
        let mut operands = 0usize;
        pace.each(&routine.steps, STEPS, |step| operands += step.inputs.len() + step.outputs.len())?;
        let calls = routine.steps.len() + routine.chains.len();
        let (mut found, bytes) = (Calls::default(), calls.saturating_mul(size_of::<Call>()));
        let list = found.list.try_reserve_exact(calls);
        list.and_then(|()| found.operands.try_reserve_exact(operands))
            .and_then(|()| found.parts.try_reserve(calls, operands))
            .map_err(|_| BackendError::OutOfMemory(bytes))?;
        Ok(found)
    }

    /// About the memory that they take; what they share with the routine is counted there.
    pub fn footprint(&self) -> usize {
        let operands = size_of_val(&self.operands[..]) + size_of_val(&self.onward[..]);
        let lists = size_of_val(&self.list[..]) + operands;
        size_of::<Self>() + lists + self.parts.footprint()
    }

    /// What goes on with the output of a call. `None` if the plan is broken.
    pub fn onward(&self, call: &KernelCall) -> Option<&[Onward]> {
        self.onward.get(call.onward.clone())
    }

    /// Gives `lent` the operands of a call. `None` if the plan is broken.
    #[inline]
    pub fn lend<'a>(
        &'a self,
        call: &KernelCall,
        arena: &'a mut Arena,
        arguments: Option<&'a Arguments>,
        lent: &mut Lent<'a>,
    ) -> Option<()> {
        let (mut reads, mut writes) = arena.lend_list(&self.parts, call.parts)?;
        let (inputs, rest) = self.operands.get(call.operands.clone())?.split_at_checked(call.inputs)?;
        let (outputs, others) = rest.split_at_checked(call.outputs)?;
        for operand in inputs {
            lent.inputs.push(operand.view(&mut reads, arguments));
        }
        for operand in outputs {
            lent.outputs.push(operand.target(&mut writes, arguments)?);
        }
        for operand in others {
            lent.others.push(operand.view(&mut reads, arguments));
        }
        Some(())
    }
}

impl Operand {
    #[inline]
    fn view<'a>(
        &'a self,
        parts: &mut impl Iterator<Item = View<'a, u8>>,
        arguments: Option<&'a Arguments>,
    ) -> Option<View<'a, u8>> {
        match self {
            Operand::Nowhere => None,
            Operand::Constant(bytes) => Some(View::of(bytes)),
            Operand::Arena => parts.next(),
            Operand::Argument(v) => {
                let ours = parts.next();
                arguments.and_then(|arguments| arguments.view(*v)).or(ours)
            }
        }
    }

    #[inline]
    fn target<'a>(
        &'a self,
        parts: &mut impl Iterator<Item = Target<'a, u8>>,
        arguments: Option<&'a Arguments>,
    ) -> Option<Target<'a, u8>> {
        match self {
            Operand::Nowhere | Operand::Constant(_) => None,
            Operand::Arena => parts.next(),
            Operand::Argument(v) => {
                let ours = parts.next()?;
                arguments.and_then(|arguments| arguments.target(*v, ours.len())).or(Some(ours))
            }
        }
    }
}

/// The operands of a call.
#[derive(Default)]
pub struct Lent<'a> {
    /// `None` for one that a run does not bring.
    pub inputs: SmallVec<[Option<View<'a, u8>>; FEW]>,
    pub outputs: SmallVec<[Target<'a, u8>; FEW]>,
    /// The other inputs of what goes on.
    pub others: SmallVec<[Option<View<'a, u8>>; FEW]>,
}

/// Calls that are being found.
struct Finder<'r> {
    routine: &'r Routine,
    /// By value: whether it is an argument that may be in place.
    arguments: Scratch<bool>,
    found: Calls,
}

impl<'r> Finder<'r> {
    fn add(&mut self, step: usize, what: What) {
        self.found.list.push(Call { step, what });
    }

    /// Adds a step that is done by itself.
    fn add_step(&mut self, i: usize, step: &Step, pace: &mut Pace) -> Result<(), BackendError> {
        pace.spend(step.inputs.len().saturating_add(step.outputs.len()))?;
        match &step.kernel {
            _ if step.in_place => Ok(()),
            Some(kernel) => self.add_kernel(i, kernel.clone(), &step.inputs, &step.outputs, None),
            None => {
                self.add(i, What::Plain);
                Ok(())
            }
        }
    }

    /// Adds a step with what goes on with its output.
    fn add_followed(&mut self, followed: &Followed) -> Result<(), BackendError> {
        let (first, steps) = (followed.steps.start, &self.routine.steps);
        let (last, mut inputs) = (&steps[followed.steps.end - 1], steps[first].inputs.clone());
        let mut multiplier = None;
        if followed.is_multiplied {
            multiplier = last.kernel.clone();
            // The others of both say how matrices lie, which the kernels know.
            inputs.truncate(2);
            inputs.extend(last.inputs.get(1));
        }
        let kernel = steps[first].kernel.clone().ok_or_else(broken_plan)?;
        self.add_kernel(first, kernel, &inputs, &last.outputs, Some((followed, multiplier)))
    }

    /// Adds the call of a kernel, and of what goes on with its output.
    fn add_kernel(
        &mut self,
        step: usize,
        kernel: Arc<dyn Kernel>,
        inputs: &[Option<usize>],
        outputs: &[usize],
        onward: Option<(&Followed, Option<Arc<dyn Kernel>>)>,
    ) -> Result<(), BackendError> {
        let first = self.found.operands.len();
        let (followed, multiplier) = onward.unzip();
        let (mut reads, mut writes) = (SmallVec::<[_; FEW]>::new(), SmallVec::<[_; FEW]>::new());
        for &v in inputs {
            let operand = v.map_or(Some(Operand::Nowhere), |v| self.operand(v, &mut reads));
            self.found.operands.push(operand.ok_or_else(broken_plan)?);
        }
        for &v in outputs {
            let operand = self.operand(v, &mut writes).ok_or_else(broken_plan)?;
            self.found.operands.push(operand);
        }
        let (start, next) = (self.found.onward.len(), followed.map_or(&[][..], |followed| &followed.onward));
        let bytes = size_of_val(next);
        self.found.onward.try_reserve(next.len()).map_err(|_| BackendError::OutOfMemory(bytes))?;
        for next in next {
            if let Some(v) = next.other {
                let operand = self.operand(v, &mut reads).ok_or_else(broken_plan)?;
                self.found.operands.push(operand);
            }
            let kernel = next.kernel(&self.routine.steps, &self.routine.merged).ok_or_else(broken_plan)?;
            let (kernel, picoseconds, has_other) =
                (kernel.clone(), kernel.picoseconds(), next.other.is_some());
            self.found.onward.push(Onward { kernel, picoseconds, own: next.own, has_other });
        }
        let parts = self.found.parts.add(&reads, &writes).ok_or_else(broken_plan)?;
        let (inputs, outputs) = (inputs.len(), outputs.len());
        let onward = start..self.found.onward.len();
        let (operands, multiplier) = (first..self.found.operands.len(), multiplier.flatten());
        let call = KernelCall { kernel, onward, multiplier, operands, inputs, outputs, parts };
        self.add(step, What::Kernel(call));
        Ok(())
    }

    /// Where a value is, its part of the arena among `parts`; `None` where only a run knows.
    fn operand(&self, v: usize, parts: &mut SmallVec<[&'r Range<usize>; FEW]>) -> Option<Operand> {
        Some(match &self.routine.values[v].place {
            Place::Constant(_, bytes) => Operand::Constant(bytes.clone()),
            Place::Packed(_) => Operand::Nowhere,
            Place::Arena(_, part) => {
                parts.push(part);
                if self.arguments[v] {
                    Operand::Argument(v)
                } else {
                    Operand::Arena
                }
            }
            Place::Dynamic => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{compile, f32_info, Build};
    use super::*;
    use crate::model::Subgraph;
    use crate::ops::{NeverInterrupted, OperationType};
    use crate::tensor::TensorInfo;

    /// ABS, a RESHAPE that has nothing to do, and the sum of it with the input.
    fn model() -> Subgraph {
        let mut b = Build::new();
        let input = b.input(f32_info(&[4, 8]));
        let made = b.call(OperationType::ABS, 0, &[input], f32_info(&[4, 8]));
        let dims = b.constant(TensorInfo::new(crate::tensor::OperandType::TENSOR_INT32, &[2]), &[4i32, 8]);
        let same = b.call(OperationType::RESHAPE, 0, &[made, dims], f32_info(&[4, 8]));
        let again = b.call(OperationType::RESHAPE, 0, &[same, dims], f32_info(&[4, 8]));
        let none = b.ints(&[0])[0];
        let sum = b.call(OperationType::ADD, 0, &[input, again, none], f32_info(&[4, 8]));
        b.finish(sum)
    }

    fn found(routine: &Routine) -> Result<Calls, BackendError> {
        Calls::of(routine, None, &mut Pace::of(&NeverInterrupted))
    }

    #[test]
    fn what_has_nothing_to_do_is_no_call() {
        let program = compile(&model(), 1, None);
        let routine = &program.routines()[0];
        let steps: Vec<_> = found(routine).unwrap().list.iter().map(|call| call.step).collect();
        assert_eq!((routine.steps.len(), steps), (4, vec![0, 3]));
    }

    #[test]
    fn a_plan_in_which_a_call_would_write_what_it_reads_is_refused() {
        let model = model();
        let place = |routine: &mut Routine, v: usize| match &mut routine.values[v].place {
            Place::Arena(_, part) => Some(std::mem::take(part)),
            _ => None,
        };
        // The routine as it is; then a step's output is put over a part of what it reads.
        for moved in [None, Some(127), Some(0)] {
            let program = compile(&model, 1, None);
            let mut routine = program.into_routines().remove(0);
            let (from, to) = (routine.inputs[0], routine.outputs[0]);
            let read = place(&mut routine, from).unwrap();
            let made =
                moved.map_or_else(|| place(&mut routine, to).unwrap(), |by| read.start + by..read.end + by);
            for (v, part) in [(from, read), (to, made)] {
                routine.values[v].place = Place::Arena(f32_info(&[4, 8]), part);
            }
            assert_eq!(found(&routine).is_ok(), moved.is_none(), "moved by {moved:?}");
        }
    }

    #[test]
    fn what_a_kernel_reads_and_makes_has_places() {
        let program = compile(&model(), 1, None);
        let mut routine = program.into_routines().remove(0);
        let from = routine.inputs[0];
        routine.values[from].place = Place::Dynamic;
        assert!(found(&routine).is_err());
    }
}
