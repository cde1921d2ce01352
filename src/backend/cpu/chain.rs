//! Steps that go together: row by row, where each makes an image of the one before, and what steps on elements make of the output
//! of another. Which ones do is found elsewhere.

use super::kernels::Image;
use std::ops::Range;

/// Steps that go together.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    pub steps: Range<usize>,
    pub links: Vec<Link>,
    /// What the links make.
    pub images: Vec<Image>,
    /// Rows of the last image that are made at a time.
    pub block: usize,
    /// Picoseconds of what two neighbouring bands both make.
    pub shared: usize,
    /// Picoseconds that are saved, about.
    pub saved: usize,
}

/// A step that makes rows of an image, and what goes on with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub step: usize,
    /// What goes on with each row, and reads nothing else.
    pub onward: Option<Followed>,
}

impl Link {
    pub fn steps(&self) -> Range<usize> {
        self.onward.as_ref().map_or(self.step..self.step + 1, |onward| onward.steps.clone())
    }
}

/// A step whose output elementwise steps go on with where it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// That step, those that go on, and the one that multiplies.
    pub steps: Range<usize>,
    /// Whether what is gone on with is multiplied by the last step, where it is made.
    pub is_multiplied: bool,
    /// Those that go on, one after the other.
    pub onward: Vec<Onward>,
}

/// A step, or merged ones, that go on with what the one before made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward {
    pub steps: Range<usize>,
    /// Which merged one it is; if it is none, it is a step.
    pub merged: Option<usize>,
    /// Which input of its kernel is what was made, and the value that is the other one.
    pub own: usize,
    pub other: Option<usize>,
}

impl Followed {
    /// The memory that it takes besides itself.
    pub fn heap(&self) -> usize {
        self.onward.capacity() * size_of::<Onward>()
    }
}

/// Bands for each thread, at the most: threads do not run undisturbed.
const EACH: usize = 4;

impl Chain {
    /// The memory that it takes.
    pub fn footprint(&self) -> usize {
        let onward: usize = self.links.iter().flat_map(|link| &link.onward).map(Followed::heap).sum();
        size_of::<Self>() + size_of_val(&self.links[..]) + size_of_val(&self.images[..]) + onward
    }

    /// Into how many bands the last image is cut for so many threads; `None` where it takes longer than step by step.
    pub fn bands(&self, threads: usize) -> Option<usize> {
        let (last, between) = self.images.split_last()?;
        // Each thread has a room of its own within the image's memory.
        if between.iter().any(|image| image.room.saturating_mul(threads) > image.rows) {
            return None;
        }
        let most = last.rows.div_ceil(2);
        let worth = |bands: usize| bands <= most && (bands - 1).saturating_mul(self.shared) <= self.saved / 2;
        (1..=EACH).rev().map(|each| if threads == 1 { 1 } else { each * threads }).find(|&bands| worth(bands))
    }
}
