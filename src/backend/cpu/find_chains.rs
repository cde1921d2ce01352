//! Finds the steps that go together row by row: those that follow each other, each of which makes an image of the one before,
//! where the images between are so large that they would leave the near cache before they are read. What steps on elements make
//! of an image is made of its rows. It goes by what a routine says, so that a loaded one has the same chains as the one that was
//! saved.

use super::chain::{Chain, Followed, Link};
use super::follow::Search as Follow;
use super::kernels::{ByRows, Image};
use super::routine::{Merged, Place, Routine, Step, STEPS};
use crate::ops::pace::Pace;
use crate::ops::OpError;
use crate::tensor::TensorInfo;
use std::ops::Range;

/// Bytes of an image that is worth to be kept near: smaller ones stay there by themselves. Measured where the second cache
/// has twice as many.
pub const LARGE: usize = 1 << 20;
/// Bytes of rows between that a block may take.
const NEAR: usize = 256 * 1024;
/// What it saves to write a byte near, and read it there.
const PICOSECONDS_A_BYTE: usize = 40;
/// What a block may take: only between blocks is looked whether to stop.
const LONG: usize = 500_000_000;
/// Steps of a chain, at most: a client chooses how many follow each other, and each costs time and stack here.
pub const MOST_STEPS: usize = 16;
/// Rows of an image, at most: they are gone through.
const MOST_ROWS: usize = 4096;
/// Blocks of so many rows are considered, the largest that fits is taken.
const BLOCKS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// The same routine with its chains; what is merged is known.
pub fn with_chains(mut routine: Routine, pace: &mut Pace) -> Result<Routine, OpError> {
    routine.chains = chains_of(&routine, LARGE, pace)?;
    Ok(routine)
}

/// The chains of a routine between which images of `large` bytes lie.
pub fn chains_of(routine: &Routine, large: usize, pace: &mut Pace) -> Result<Vec<Chain>, OpError> {
    let planned = |v: usize| match &routine.values[v].place {
        Place::Arena(info, _) => Some(info),
        _ => None,
    };
    let uses = routine.uses(pace)?;
    let known = |v: usize| routine.values[v].known();
    let follow = Follow::new(&routine.steps, &routine.merged, &uses, &routine.outputs, known, pace)?;
    let search = Search {
        steps: &routine.steps,
        merged: &routine.merged,
        planned,
        onward: |step| follow.after(step),
        large,
        uses: &uses,
    };
    search.find(pace)
}

/// What is known of a routine.
pub struct Search<'s, P, O> {
    pub steps: &'s [Step],
    pub merged: &'s [Merged],
    /// The type of a value that lives in the arena.
    pub planned: P,
    /// What goes on with the output of a step.
    pub onward: O,
    /// Bytes of an image between the links of a chain, at least.
    pub large: usize,
    /// How often each value is read.
    pub uses: &'s [usize],
}

impl<'r, P: Fn(usize) -> Option<&'r TensorInfo>, O: Fn(usize) -> Option<Followed>> Search<'_, P, O> {
    /// The chains, in order.
    pub fn find(&self, pace: &mut Pace) -> Result<Vec<Chain>, OpError> {
        let (mut chains, mut start) = (Vec::new(), 0);
        while start < self.steps.len() {
            let mut links: Vec<Link> = Vec::new();
            let mut end = start;
            while let Some(link) = self.link(end).filter(|_| links.len() < MOST_STEPS) {
                if links.last().is_some_and(|last| !self.is_linked(last, &link)) {
                    break;
                }
                end = link.steps().end;
                links.push(link);
            }
            // Rows of images are gone through where steps go together.
            let rows = if links.len() > 1 { MOST_ROWS } else { 1 };
            pace.spend(links.len().max(1) * rows * STEPS)?;
            self.split(&links, &mut chains);
            start = end.max(start + 1);
        }
        Ok(chains)
    }

    /// A step that makes rows of an image, with what goes on with them.
    fn link(&self, step: usize) -> Option<Link> {
        let &[made] = &self.steps.get(step)?.outputs[..] else { return None };
        self.kernel(step)?;
        let is_as_large = |onward: &Followed| {
            let to = self.steps[onward.steps.end - 1].outputs[0];
            self.image(to) == self.image(made)
        };
        let onward = (self.onward)(step).and_then(Followed::without_others).filter(is_as_large);
        let link = Link { step, onward };
        self.made(&link)?;
        Some(link)
    }

    fn kernel(&self, step: usize) -> Option<&dyn ByRows> {
        self.steps[step].kernel.as_ref()?.by_rows()
    }

    /// Rows of the image that value `v` is, and bytes of each.
    fn image(&self, v: usize) -> Option<(usize, usize)> {
        let info = (self.planned)(v)?;
        let &[batches, height, ..] = &info.dims[..] else { return None };
        let rows = (batches as usize).checked_mul(height as usize)?;
        let size = info.byte_size().filter(|&size| info.dims.len() == 4 && size > 0)?;
        (rows <= MOST_ROWS).then_some((rows, size / rows))
    }

    /// The value that a link makes.
    fn output(&self, link: &Link) -> usize {
        self.steps[link.steps().end - 1].outputs[0]
    }

    /// The image that a link makes of another.
    fn made(&self, link: &Link) -> Option<(usize, usize)> {
        let &[Some(input), ..] = &self.steps[link.step].inputs[..] else { return None };
        self.image(input)?;
        self.image(self.output(link))
    }

    /// Whether a link does nothing but go on with the large image that the one before makes.
    fn is_linked(&self, before: &Link, link: &Link) -> bool {
        let Some((rows, row)) = self.made(before) else { return false };
        let image = self.output(before);
        rows * row >= self.large && self.uses[image] == 1 && self.steps[link.step].inputs[0] == Some(image)
    }

    /// Whether a link reads more rows than it makes, so that bands share some.
    fn overlaps(&self, link: &Link) -> bool {
        let Some((kernel, (rows, _))) = self.kernel(link.step).zip(self.made(link)) else { return false };
        let (middle, reads) = (rows / 2, |rows| kernel.reads(rows));
        middle > 0 && reads(middle - 1..middle).end > reads(middle..middle + 1).start
    }

    /// Makes chains of links. Bands share rows of all images before one that overlaps: of two such, the smallest image between
    /// them is made as a whole.
    fn split(&self, links: &[Link], chains: &mut Vec<Chain>) {
        if links.len() < 2 {
            return;
        }
        // Of the first one nobody has to make what it reads.
        let mut overlapping = (1..links.len()).filter(|&i| self.overlaps(&links[i]));
        let (first, second) = (overlapping.next(), overlapping.next());
        if let (Some(first), Some(second)) = (first, second) {
            let size = |i: &usize| self.made(&links[*i]).map_or(0, |(rows, row)| rows * row);
            let cut = (first..second).min_by_key(size).map_or(second, |i| i + 1);
            chains.extend(self.chain(&links[..cut]));
            return self.split(&links[cut..], chains);
        }
        chains.extend(self.chain(links));
    }

    /// Picoseconds that a link takes for a row of what it makes.
    fn cost(&self, link: &Link, row: usize) -> Option<usize> {
        let info = (self.planned)(self.output(link))?;
        let cost = self.kernel(link.step)?.cost().saturating_mul(info.dims[2] as usize);
        let Some(followed) = &link.onward else { return Some(cost) };
        let elements = row.checked_div(info.ty.element_size()?)?;
        followed.onward.iter().try_fold(cost, |cost, onward| {
            let each = onward.kernel(self.steps, self.merged)?.picoseconds();
            Some(cost.saturating_add(each.saturating_mul(elements)))
        })
    }

    fn chain(&self, links: &[Link]) -> Option<Chain> {
        let steps = links.first()?.step..links.last()?.steps().end;
        if links.len() < 2 {
            return None;
        }
        let kernels: Vec<&dyn ByRows> =
            links.iter().map(|link| self.kernel(link.step)).collect::<Option<_>>()?;
        let made: Vec<(usize, usize)> = links.iter().map(|link| self.made(link)).collect::<Option<_>>()?;
        let last = *made.last()?;
        let costs = links.iter().zip(&made).map(|(link, &(_, row))| self.cost(link, row));
        let costs: Vec<usize> = costs.collect::<Option<_>>()?;
        let fits = |&block: &usize| {
            let needs = needs(&kernels, 0..block.min(last.0));
            let rows = made.iter().zip(&needs).map(|(image, rows)| image.1.saturating_mul(rows.len()));
            let time = costs.iter().zip(&needs).map(|(cost, rows)| cost.saturating_mul(rows.len()));
            let (all, last) = rows.fold((0, 0), |(all, _), bytes: usize| (bytes.saturating_add(all), bytes));
            let written = all.saturating_mul(PICOSECONDS_A_BYTE);
            time.fold(written, usize::saturating_add) <= LONG && (block == 1 || all - last <= NEAR)
        };
        let block = BLOCKS.into_iter().take_while(fits).last()?;
        let mut room = vec![0; made.len()];
        for start in (0..last.0).step_by(if block == 1 { 1 } else { 2 }) {
            let needs = needs(&kernels, start..last.0.min(start + block));
            room.iter_mut().zip(needs).for_each(|(room, rows)| *room = rows.len().max(*room));
        }
        let images = made.iter().zip(room).map(|(&(rows, row), room)| Image { rows, row, room }).collect();
        let middle = last.0 / 2;
        let (above, below) = match middle {
            0 => (vec![], vec![]),
            _ => (needs(&kernels, middle - 1..middle), needs(&kernels, middle..middle + 1)),
        };
        let shared = above.iter().zip(&below).map(|(above, below)| above.end.saturating_sub(below.start));
        let shared = shared.zip(&costs).map(|(rows, cost)| cost.saturating_mul(rows));
        let between =
            made[..made.len() - 1].iter().map(|(rows, row)| rows * row).fold(0, usize::saturating_add);
        Some(Chain {
            steps,
            links: links.to_vec(),
            images,
            block,
            shared: shared.fold(0, usize::saturating_add),
            saved: between.saturating_mul(PICOSECONDS_A_BYTE),
        })
    }
}

/// The rows that each kernel is to make for rows `rows` of the last one's.
fn needs(kernels: &[&dyn ByRows], rows: Range<usize>) -> Vec<Range<usize>> {
    let mut needs = vec![rows; kernels.len()];
    for i in (1..kernels.len()).rev() {
        needs[i - 1] = kernels[i].reads(needs[i].clone());
    }
    needs
}
