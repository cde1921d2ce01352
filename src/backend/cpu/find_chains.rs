//! Finds the steps that go together row by row: those that follow each other, each of which makes an image of the one before,
//! where the images between are so large that they would leave the near cache before they are read. It goes by what a
//! routine says, so that a loaded one has the same chains as the one that was saved.

use super::chain::Chain;
use super::kernels::{ByRows, Image};
use super::routine::{Place, Routine, Step, STEPS};
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

/// The same routine with its chains.
pub fn with_chains(mut routine: Routine, pace: &mut Pace) -> Result<Routine, OpError> {
    let planned = |v: usize| match &routine.values[v].place {
        Place::Arena(info, _) => Some(info),
        _ => None,
    };
    let uses = routine.uses(pace)?;
    routine.chains = find(&routine.steps, &uses, LARGE, planned, pace)?;
    Ok(routine)
}

/// The chains among `steps`, in order, between which images of `large` bytes lie. `planned` tells of values that live in the
/// arena, and `uses` how often each value is read.
pub fn find<'r>(
    steps: &[Step],
    uses: &[usize],
    large: usize,
    planned: impl Fn(usize) -> Option<&'r TensorInfo>,
    pace: &mut Pace,
) -> Result<Vec<Chain>, OpError> {
    let search = Search { steps, planned, large, uses };
    let (mut chains, mut start) = (Vec::new(), 0);
    while start < steps.len() {
        let mut end = start + 1;
        while end < steps.len() && end - start < MOST_STEPS && search.is_linked(end) {
            end += 1;
        }
        // Rows of images are gone through where steps go together.
        let rows = if end - start > 1 { MOST_ROWS } else { 1 };
        pace.spend((end - start) * rows * STEPS)?;
        search.split(start..end, &mut chains);
        start = end;
    }
    Ok(chains)
}

struct Search<'s, P> {
    steps: &'s [Step],
    planned: P,
    large: usize,
    uses: &'s [usize],
}

impl<'r, P: Fn(usize) -> Option<&'r TensorInfo>> Search<'_, P> {
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

    /// The image that a step makes, which has a kernel for that.
    fn made(&self, step: usize) -> Option<(usize, usize)> {
        self.kernel(step)?;
        let (&[output], &[Some(input), ..]) = (&self.steps[step].outputs[..], &self.steps[step].inputs[..])
        else {
            return None;
        };
        self.image(input)?;
        self.image(output)
    }

    /// Whether a step does nothing but go on with the large image that the step before makes.
    fn is_linked(&self, step: usize) -> bool {
        let (Some((rows, row)), Some(_)) = (self.made(step - 1), self.made(step)) else { return false };
        let image = self.steps[step - 1].outputs[0];
        rows * row >= self.large && self.uses[image] == 1 && self.steps[step].inputs[0] == Some(image)
    }

    /// Whether a step reads more rows than it makes, so that bands share some.
    fn overlaps(&self, step: usize) -> bool {
        let Some((kernel, (rows, _))) = self.kernel(step).zip(self.made(step)) else { return false };
        let (middle, reads) = (rows / 2, |rows| kernel.reads(rows));
        middle > 0 && reads(middle - 1..middle).end > reads(middle..middle + 1).start
    }

    /// Makes chains of linked steps. Bands share rows of all images before a step that overlaps: of two such steps, the
    /// smallest image between them is made as a whole.
    fn split(&self, steps: Range<usize>, chains: &mut Vec<Chain>) {
        // Of the first step nobody has to make what it reads.
        let mut overlapping = (steps.start + 1..steps.end).filter(|&step| self.overlaps(step));
        let (first, second) = (overlapping.next(), overlapping.next());
        if let (Some(first), Some(second)) = (first, second) {
            let size = |step: &usize| self.made(*step).map_or(0, |(rows, row)| rows * row);
            let cut = (first..second).min_by_key(size).map_or(second, |step| step + 1);
            chains.extend(self.chain(steps.start..cut));
            return self.split(cut..steps.end, chains);
        }
        chains.extend(self.chain(steps));
    }

    fn chain(&self, steps: Range<usize>) -> Option<Chain> {
        if steps.len() < 2 {
            return None;
        }
        let kernels: Vec<&dyn ByRows> = steps.clone().map(|step| self.kernel(step)).collect::<Option<_>>()?;
        let made: Vec<(usize, usize)> = steps.clone().map(|step| self.made(step)).collect::<Option<_>>()?;
        let last = *made.last()?;
        // Picoseconds for a row of each image.
        let pixels = |step: usize| Some((self.planned)(self.steps[step].outputs[0])?.dims[2] as usize);
        let costs = kernels.iter().zip(steps.clone());
        let costs: Vec<usize> = costs
            .map(|(kernel, step)| Some(kernel.cost().saturating_mul(pixels(step)?)))
            .collect::<Option<_>>()?;
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
