//! Finds steps whose outputs steps on elements or rows go on with: each part of such an output becomes what those make of it while it is
//! in a near cache, on the thread that made it, and is never written as it was. It goes by what a routine says, so that a loaded
//! one has the same as the one that was saved. Where matrices are multiplied that are made so, that is done there, too.

use super::chain::{Chain, Followed, Onward};
use super::kernels::{Attention, Kernel};
use super::merge::Known;
use super::routine::{Merged, Routine, Step, STEPS};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::OpError;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an 8-bit input besides what was made, at most: a sum of bytes takes so long to compute that only what steps cost each
/// is saved, and two large ones are read faster in long stretches. Measured with ResNet-50.
const MOST_BYTES: usize = 64 << 10;
/// How many go on with the same output, at most, one after the other: each goes over a part by itself, which it has to leave in the
/// near cache.
const MOST_ONWARD: usize = 4;

/// The same routine with what is gone on with; its chains and what is merged are known.
pub fn with_followed(mut routine: Routine, pace: &mut Pace) -> Result<Routine, OpError> {
    let uses = routine.uses(pace)?;
    let known = |v: usize| routine.values[v].known();
    let search = Search::new(&routine.steps, &routine.merged, &uses, &routine.outputs, known, pace)?;
    routine.followed = search.find(&routine.chains, pace)?;
    Ok(routine)
}

/// What is known of a routine.
pub struct Search<'s, K> {
    steps: &'s [Step],
    merged: &'s [Merged],
    /// By value: how often it is read, and whether it is an output.
    uses: &'s [usize],
    leaves: Scratch<bool>,
    known: K,
}

impl<'s, 'r, K: Fn(usize) -> Option<Known<'r>>> Search<'s, K> {
    pub fn new(
        steps: &'s [Step],
        merged: &'s [Merged],
        uses: &'s [usize],
        outputs: &[usize],
        known: K,
        pace: &mut Pace,
    ) -> Result<Self, OpError> {
        let mut leaves = filled(pace.interrupt(), false, uses.len())?;
        pace.each(outputs, 1, |&v| leaves[v] = true)?;
        Ok(Search { steps, merged, uses, leaves, known })
    }

    /// All but those that a chain has, in order.
    pub fn find(&self, chains: &[Chain], pace: &mut Pace) -> Result<Vec<Followed>, OpError> {
        let (mut chains, mut merged) = (chains.iter().peekable(), self.merged.iter().peekable());
        let (mut found, mut start) = (Vec::new(), 0);
        while start < self.steps.len() {
            pace.spend(STEPS)?;
            while chains.next_if(|chain| chain.steps.end <= start).is_some() {}
            // What is merged is not taken apart.
            if let Some(merged) = merged.next_if(|merged| merged.steps.start <= start) {
                start = start.max(merged.steps.end);
                continue;
            }
            let is_apart = |followed: &Followed| {
                chains.peek().is_none_or(|chain| followed.steps.end <= chain.steps.start)
            };
            let followed = self.after(start).filter(is_apart);
            start = followed.as_ref().map_or(start + 1, |followed| followed.steps.end);
            found.extend(followed);
        }
        Ok(found)
    }

    /// What goes on with the output of `step`, and is all that reads it.
    pub fn after(&self, step: usize) -> Option<Followed> {
        let stretch = self.steps[step].kernel.as_ref()?.goes_on()?;
        let mut onward: Vec<Onward> = Vec::new();
        while onward.len() < MOST_ONWARD {
            let last = onward.last().map_or(step, |onward| onward.steps.end - 1);
            let Some(next) = self.onward(last, stretch) else { break };
            onward.push(next);
        }
        let end = onward.last()?.steps.end;
        let to = self.steps[end - 1].outputs[0];
        if self.is_multiplied(step, end, to) {
            return Some(Followed { steps: step..end + 1, is_multiplied: true, onward });
        }
        // What leaves may be written to a client's memory, which is not to be read.
        if self.leaves[to] {
            onward.pop();
        }
        Some(Followed { steps: step..onward.last()?.steps.end, is_multiplied: false, onward })
    }

    /// What goes on with the output of step `last`, and is all that reads it: merged steps, or the next one.
    fn onward(&self, last: usize, stretch: usize) -> Option<Onward> {
        let &[made] = &self.steps[last].outputs[..] else { return None };
        let merged = self.merged.binary_search_by_key(&(last + 1), |merged| merged.steps.start).ok();
        let onward = match merged {
            Some(i) if self.goes_on_with(i, made, stretch) => {
                Onward { steps: self.merged[i].steps.clone(), merged: Some(i), own: 0, other: None }
            }
            // They are not to be taken apart.
            Some(_) => return None,
            None => self.by_next(last + 1, made)?,
        };
        let to = *self.steps[onward.steps.end - 1].outputs.first()?;
        let reads = self.reads(onward.steps.clone(), made);
        let are_alike = self.bytes(made).is_some_and(|bytes| self.bytes(to) == Some(bytes));
        (reads == self.uses[made] && are_alike).then_some(onward)
    }

    /// Whether step `next` multiplies matrices that are `made` of the products of `step`, and is all that reads them.
    fn is_multiplied(&self, step: usize, next: usize, made: usize) -> bool {
        let linked = |product: &Step| {
            let kernels = self.steps[step].kernel.as_deref().zip(product.kernel.as_deref());
            product.inputs.first() == Some(&Some(made))
                && kernels.and_then(|(first, second)| Attention::of(first, second)).is_some()
        };
        self.uses[made] == 1 && self.steps.get(next).is_some_and(linked)
    }

    /// Whether merged steps can go on with `made`, of which there are whole stretches of so many elements.
    fn goes_on_with(&self, merged: usize, made: usize, stretch: usize) -> bool {
        let merged = &self.merged[merged];
        let kernel = merged.kernel.elementwise();
        merged.operand == made && kernel.is_some_and(|kernel| stretch.is_multiple_of(kernel.together()))
    }

    /// Step `next` as what goes on with `made`.
    fn by_next(&self, next: usize, made: usize) -> Option<Onward> {
        let step = self.steps.get(next)?;
        let kernel = step.kernel.as_ref()?.elementwise()?;
        let inputs = step.inputs.get(..kernel.inputs())?;
        let own = inputs.iter().position(|&v| v == Some(made)).filter(|&own| kernel.goes_on_with(own))?;
        let other = match inputs.iter().enumerate().find(|&(i, _)| i != own) {
            Some((_, other)) => Some(other.filter(|&other| other != made && self.may_be_other(other))?),
            None => None,
        };
        Some(Onward { steps: next..next + 1, merged: None, own, other })
    }

    /// Whether a value can be the other input of a step that goes on: it is there, and not so large that it had better be read at
    /// one go.
    fn may_be_other(&self, v: usize) -> bool {
        match (self.known)(v) {
            Some(Known::Planned(info) | Known::Constant(info, _)) => {
                !info.ty.is_quant8_asymm() || info.byte_size().is_some_and(|bytes| bytes <= MOST_BYTES)
            }
            None => false,
        }
    }

    /// How often some steps read a value.
    fn reads(&self, steps: Range<usize>, v: usize) -> usize {
        self.steps[steps].iter().flat_map(|step| &step.inputs).filter(|input| **input == Some(v)).count()
    }

    /// Bytes of a value that lives in the arena.
    fn bytes(&self, v: usize) -> Option<usize> {
        match (self.known)(v)? {
            Known::Planned(info) => info.byte_size(),
            Known::Constant(..) => None,
        }
    }
}

impl Followed {
    /// Without those that need more than what was made, and those behind them; `None` if all do.
    pub fn without_others(mut self) -> Option<Followed> {
        let count = self.onward.iter().take_while(|onward| onward.other.is_none()).count();
        if count < self.onward.len() {
            self.onward.truncate(count);
            self.steps.end = self.onward.last()?.steps.end;
            self.is_multiplied = false;
        }
        Some(self)
    }
}

impl Onward {
    /// The kernel that goes on.
    pub fn kernel<'r>(&self, steps: &'r [Step], merged: &'r [Merged]) -> Option<&'r Arc<dyn Kernel>> {
        match self.merged {
            Some(i) => Some(&merged.get(i)?.kernel),
            None => steps[self.steps.start].kernel.as_ref(),
        }
    }
}
