//! A compiled subgraph: steps in order, constants, kernels, and where each value lives. Plain data: `compile` makes it, `run`
//! runs it.

use super::chain::{Chain, Followed, Link};
use super::kernels::{Kernel, Maker};
use crate::memory::{AlignedBuf, Counted};
use crate::model::SMALL;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::{OpError, Operation};
use crate::tensor::{TensorInfo, ALLOCATION};
use std::ops::Range;
use std::sync::Arc;

/// What it costs to look at an operand or an operation, in the steps that [`Pace`] counts.
pub const STEPS: usize = 256;

/// A compiled subgraph.
pub struct Routine {
    pub values: Vec<Value>,
    pub steps: Vec<Step>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Bytes of arena that a run needs.
    pub arena: usize,
    /// Steps that go together, in order.
    pub chains: Vec<Chain>,
    /// Steps that one kernel does, in order; those that are of a chain go on with an image of it.
    pub merged: Vec<Merged>,
    /// Steps with what goes on with their outputs, in order; none of them is of a chain.
    pub followed: Vec<Followed>,
    /// For dimensions of values and steps, until all of the program is counted.
    pub inferred: Option<Counted>,
}

pub struct Value {
    /// As the model declares it; unknown dimensions are 0.
    pub declared: TensorInfo,
    pub place: Place,
}

/// Where a value lives during a run.
pub enum Place {
    Constant(TensorInfo, Arc<AlignedBuf>),
    /// In the arena, with dimensions known ahead.
    Arena(TensorInfo, Range<usize>),
    /// A constant that only kernels need, which have packed it.
    Packed(TensorInfo),
    /// In a buffer of its own: its dimensions are known only during a run.
    Dynamic,
}

pub struct Step {
    pub operation: &'static Operation,
    pub signature_index: usize,
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<usize>,
    /// Declared outputs, with resolved dimensions where all are known ahead.
    pub output_infos: Vec<TensorInfo>,
    /// Routines of IF and WHILE.
    pub routines: Vec<usize>,
    /// Calls that are alike have the same one.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// Whether its outputs lie in its inputs, or its inputs in its output, so that it has nothing to do.
    pub in_place: bool,
    /// The index of the model's operation that it is.
    pub index: usize,
}

/// Steps that one kernel does together.
pub struct Merged {
    pub steps: Range<usize>,
    /// The value that the kernel reads. It makes the output of the last step.
    pub operand: usize,
    pub kernel: Arc<dyn Kernel>,
}

/// What does a step, or several together.
pub enum Group<'r> {
    Chain(&'r Chain),
    Merged(&'r Merged),
    Followed(&'r Followed),
    Alone(&'r Step),
}

impl Routine {
    /// The steps in order, with what does them. A step whose outputs lie where its inputs do is alone.
    pub fn groups(&self) -> impl Iterator<Item = (Range<usize>, Group<'_>)> {
        let (mut chains, mut merges) = (self.chains.iter().peekable(), self.merged.iter().peekable());
        let (mut follows, mut next) = (self.followed.iter().peekable(), 0);
        std::iter::from_fn(move || {
            let step = self.steps.get(next)?;
            let chain = chains.next_if(|chain| chain.steps.start == next);
            let followed = follows.next_if(|followed| followed.steps.start == next);
            // Some merged steps go on with what another made.
            while merges.next_if(|merged| merged.steps.start < next).is_some() {}
            let merged = merges.next_if(|merged| merged.steps.start == next);
            let (steps, group) = match (chain, followed, merged) {
                (Some(chain), ..) => (chain.steps.clone(), Group::Chain(chain)),
                (_, Some(followed), _) => (followed.steps.clone(), Group::Followed(followed)),
                (_, _, Some(merged)) => (merged.steps.clone(), Group::Merged(merged)),
                _ => (next..next + 1, Group::Alone(step)),
            };
            next = steps.end;
            Some((steps, group))
        })
    }

    /// The kernels of a link of a chain.
    pub fn maker(&self, link: &Link) -> Option<Maker<'_>> {
        let kernel = self.steps[link.step].kernel.as_ref()?.by_rows()?;
        let onward = link.onward.iter().flat_map(|followed| &followed.onward);
        let onward = onward.map(|onward| onward.kernel(&self.steps, &self.merged)?.elementwise());
        Some(Maker { kernel, onward: onward.collect::<Option<_>>()? })
    }

    /// By value: how often it is read, as an output, too.
    pub fn uses(&self, pace: &mut Pace) -> Result<Scratch<usize>, OpError> {
        uses(self.values.len(), &self.steps, &self.outputs, pace)
    }

    /// About the memory that it takes besides the bytes of constants and packed weights.
    pub fn footprint(&self, pace: &mut Pace) -> Result<usize, OpError> {
        let mut bytes = size_of::<Self>();
        let mut count = |each: usize| bytes = bytes.saturating_add(each);
        pace.each(&self.values, STEPS, |value| count(value.footprint()))?;
        pace.each(&self.steps, STEPS, |step| count(step.footprint()))?;
        // A kernel for several steps may have one for each.
        let merged = |merged: &Merged| size_of_val(&*merged.kernel) + (1 + merged.steps.len()) * 4 * KERNEL;
        pace.each(&self.merged, STEPS, |of| count(merged(of)))?;
        pace.each(&self.chains, STEPS, |chain| count(chain.footprint()))?;
        pace.each(&self.followed, STEPS, |followed| {
            count(size_of_val(followed) + ALLOCATION + followed.heap())
        })?;
        Ok(bytes)
    }
}

impl Step {
    fn footprint(&self) -> usize {
        let info = |info: &TensorInfo| info.heap().saturating_add(size_of::<TensorInfo>());
        let infos = self.output_infos.iter().map(info).fold(0, usize::saturating_add);
        let numbers = size_of_val(&self.inputs[..])
            .saturating_add(size_of_val(&self.outputs[..]))
            .saturating_add(size_of_val(&self.routines[..]));
        let kernel = self.kernel.as_ref().map_or(0, |kernel| size_of_val(&**kernel) + KERNEL);
        size_of::<Self>()
            .saturating_add(4 * ALLOCATION + kernel)
            .saturating_add(numbers)
            .saturating_add(infos)
    }

    /// What to call it in messages.
    pub fn name(&self) -> String {
        format!("operation {} ({})", self.index, self.operation.ty)
    }
}

/// By value, of which there are so many: how often it is read, as an output of the routine, too.
pub fn uses(
    values: usize,
    steps: &[Step],
    outputs: &[usize],
    pace: &mut Pace,
) -> Result<Scratch<usize>, OpError> {
    let mut uses = filled(pace.interrupt(), 0, values)?;
    for step in steps {
        pace.spend(STEPS.saturating_add(step.inputs.len()))?;
        step.inputs.iter().flatten().for_each(|&v| uses[v] += 1);
    }
    outputs.iter().for_each(|&v| uses[v] += 1);
    Ok(uses)
}

impl Value {
    fn footprint(&self) -> usize {
        let known = match &self.place {
            // With the block that counts who shares the bytes.
            Place::Constant(info, _) => info.heap().saturating_add(size_of::<AlignedBuf>() + 2 * ALLOCATION),
            Place::Arena(info, _) | Place::Packed(info) => info.heap(),
            Place::Dynamic => 0,
        };
        size_of::<Self>().saturating_add(self.declared.heap()).saturating_add(known)
    }

    /// With the dimensions that are known ahead, otherwise as declared.
    pub fn info(&self) -> &TensorInfo {
        match &self.place {
            Place::Constant(info, _) | Place::Arena(info, _) | Place::Packed(info) => info,
            Place::Dynamic => &self.declared,
        }
    }
}

/// What a kernel has on the heap besides its weights, about: they do not tell.
const KERNEL: usize = 64;

/// Whether a constant's bytes are mere data. Small ones are among the model bytes of an artifact, whatever they are.
pub fn is_data(info: &TensorInfo, len: usize) -> bool {
    info.ty.is_plain_data() && len > SMALL
}
