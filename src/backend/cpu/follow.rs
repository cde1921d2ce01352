//! Finds steps whose outputs steps on elements or rows go on with: each part of such an output becomes what those make of it while it is
//! in a near cache, on the thread that made it, and is never written as it was. It goes by what a routine says, so that a loaded
//! one has the same as the one that was saved.

use super::chain::Chain;
use super::kernels::Kernel;
use super::merge::Known;
use super::routine::{Followed, Merged, Routine, Step, STEPS};
use crate::ops::pace::Pace;
use crate::ops::OpError;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an 8-bit input besides what was made, at most: a sum of bytes takes so long to compute that only what steps cost each
/// is saved, and two large ones are read faster in long stretches. Measured with ResNet-50.
const MOST_BYTES: usize = 64 << 10;

/// The same routine with what is gone on with; its chains and what is merged are known.
pub fn with_followed(mut routine: Routine, pace: &mut Pace) -> Result<Routine, OpError> {
    let search = Search {
        steps: &routine.steps,
        chains: &routine.chains,
        merged: &routine.merged,
        uses: &routine.uses(pace)?,
        outputs: &routine.outputs,
        known: |v: usize| routine.values[v].known(),
    };
    routine.followed = search.find(pace)?;
    Ok(routine)
}

/// What is known of a routine.
pub struct Search<'s, K> {
    pub steps: &'s [Step],
    pub chains: &'s [Chain],
    pub merged: &'s [Merged],
    /// How often each value is read.
    pub uses: &'s [usize],
    pub outputs: &'s [usize],
    pub known: K,
}

impl<'r, K: Fn(usize) -> Option<Known<'r>>> Search<'_, K> {
    /// All of them, in order.
    pub fn find(&self, pace: &mut Pace) -> Result<Vec<Followed>, OpError> {
        let mut leaves = vec![false; self.uses.len()];
        self.outputs.iter().for_each(|&v| leaves[v] = true);
        let (mut chains, mut merged) = (self.chains.iter().peekable(), (0..self.merged.len()).peekable());
        let (mut found, mut start) = (Vec::new(), 0);
        while start < self.steps.len() {
            pace.spend(STEPS)?;
            while chains.next_if(|chain| chain.steps.end <= start).is_some() {}
            // What is merged is not taken apart.
            if let Some(i) = merged.next_if(|&i| self.merged[i].steps.start <= start) {
                start = start.max(self.merged[i].steps.end);
                continue;
            }
            let next = merged.peek().copied().filter(|&i| self.merged[i].steps.start == start + 1);
            let followed = self.followed(start, next).filter(|followed| {
                let to = self.steps[followed.steps.end - 1].outputs[0];
                let is_apart = |chain: &&Chain| followed.steps.end <= chain.steps.start;
                // What leaves may be written to a client's memory, which is not to be read.
                !leaves[to] && chains.peek().is_none_or(is_apart)
            });
            start = followed.as_ref().map_or(start + 1, |followed| followed.steps.end);
            found.extend(followed);
        }
        Ok(found)
    }

    /// What goes on with the output of `step`, which is the only one that reads it: `merged`, or the next step.
    fn followed(&self, step: usize, merged: Option<usize>) -> Option<Followed> {
        let maker = &self.steps[step];
        let &[made] = &maker.outputs[..] else { return None };
        let stretch = maker.kernel.as_ref()?.goes_on()?;
        let followed = match merged {
            Some(i) if self.goes_on_with(i, made, stretch) => {
                Followed { steps: step..self.merged[i].steps.end, merged: Some(i), own: 0, other: None }
            }
            // They are not to be taken apart.
            Some(_) => return None,
            None => self.by_next(step + 1, made)?,
        };
        let to = *self.steps[followed.steps.end - 1].outputs.first()?;
        let reads = self.reads(step + 1..followed.steps.end, made);
        let are_alike = self.bytes(made).is_some_and(|bytes| self.bytes(to) == Some(bytes));
        (reads == self.uses[made] && are_alike).then_some(followed)
    }

    /// Whether merged steps can go on with `made`, of which there are whole stretches of so many elements.
    fn goes_on_with(&self, merged: usize, made: usize, stretch: usize) -> bool {
        let merged = &self.merged[merged];
        let kernel = merged.kernel.elementwise();
        merged.operand == made && kernel.is_some_and(|kernel| stretch.is_multiple_of(kernel.together()))
    }

    /// Step `next` as what goes on with `made`.
    fn by_next(&self, next: usize, made: usize) -> Option<Followed> {
        let step = self.steps.get(next)?;
        let kernel = step.kernel.as_ref()?.elementwise()?;
        let inputs = step.inputs.get(..kernel.inputs())?;
        let own = inputs.iter().position(|&v| v == Some(made))?;
        let other = match inputs.iter().enumerate().find(|&(i, _)| i != own) {
            Some((_, other)) => Some(other.filter(|&other| other != made && self.may_be_other(other))?),
            None => None,
        };
        Some(Followed { steps: next - 1..next + 1, merged: None, own, other })
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
    /// The kernel that goes on.
    pub fn kernel<'r>(&self, routine: &'r Routine) -> Option<&'r Arc<dyn Kernel>> {
        match self.merged {
            Some(i) => Some(&routine.merged.get(i)?.kernel),
            None => routine.steps[self.steps.end - 1].kernel.as_ref(),
        }
    }
}
