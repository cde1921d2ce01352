//! Kernels one after the other, some rows at a time: what one makes, the next one reads while it lies in a near cache, and
//! nobody else ever does. Which kernels go together is decided elsewhere.
//!
//! The rows of the last image are shared out in bands. For each band the images between have a room of some rows, through
//! which they pass: so neighbouring bands make the rows that both read, each for itself.

use super::kernel::{ByRows, Lines, Pause};
use super::then::Elementwise;
use super::Work;
use crate::memory::{Target, View};
use crate::ops::OpError;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

/// An image that a kernel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows of all images of the batch.
    pub rows: usize,
    /// Bytes of a row.
    pub row: usize,
    /// Rows that are there at once, unless it is the last.
    pub room: usize,
}

/// A kernel, and what goes on with the rows that it makes, which are memory of ours then, and needs nothing else.
pub struct Maker<'a> {
    pub kernel: &'a dyn ByRows,
    /// Those that go on, one after the other.
    pub onward: SmallVec<[&'a dyn Elementwise; 1]>,
}

impl Maker<'_> {
    fn make(
        &self,
        input: Lines<u8>,
        rows: Range<usize>,
        mut out: Target<u8>,
        pause: Pause,
    ) -> Result<(), OpError> {
        let (to, len) = (out.pointer(0, out.len()), out.len());
        self.kernel.run_rows(input, rows, out, pause)?;
        if self.onward.is_empty() {
            return Ok(());
        }
        // SAFETY: as many bytes were asked for; they were just written, are ours, and nobody else's until this returns.
        let made = unsafe { std::slice::from_raw_parts_mut(to, len) };
        self.onward.iter().try_for_each(|onward| onward.go_on(made, 0, 0, None))
    }
}

/// Kernels, and the images that they make, one from the other.
pub struct Rowwise<'a, 'm> {
    pub makers: &'a [Maker<'m>],
    pub images: &'a [Image],
    /// Rows of the last image that are made at a time.
    pub block: usize,
    /// Parts of the last image that are made by one thread each.
    pub bands: usize,
}

impl Rowwise<'_, '_> {
    /// Makes the last image, `out`, from `input`. Each image between has memory for a room for each thread, if not for itself.
    pub fn run(
        &self,
        input: View<u8>,
        between: &[Target<u8>],
        out: Target<u8>,
        work: Work,
    ) -> Result<(), OpError> {
        let rooms = Mutex::new((0..self.bands.min(work.team.threads())).collect::<Vec<usize>>());
        let (stopped, owner) = (OnceLock::new(), std::thread::current().id());
        work.team.for_each(self.bands, &|band| {
            if stopped.get().is_some() {
                return;
            }
            let free = || rooms.lock().unwrap_or_else(PoisonError::into_inner);
            let room = free().pop();
            let done = match room {
                None => Err(OpError::failed("more threads than were counted; this is a fault of the driver")),
                Some(room) => {
                    // SAFETY: bands have different rows, and nobody else has this room.
                    let done = unsafe {
                        self.band(self.part(band), room, (input, between, &out), &|| work.pause(owner))
                    };
                    free().push(room);
                    done
                }
            };
            if let Err(why) = done {
                // Whoever was first has told already.
                let _ = stopped.set(why);
            }
        });
        stopped.into_inner().map_or(Ok(()), Err)
    }

    /// The rows of a band: an even number of them, but for the last band's.
    fn part(&self, band: usize) -> Range<usize> {
        let rows = self.images.last().map_or(0, |image| image.rows);
        let bound = |i: usize| rows.min(rows.div_ceil(2) * i / self.bands * 2);
        bound(band)..bound(band + 1)
    }

    /// Makes some rows of the last image, with what they need of those between.
    ///
    /// # Safety
    /// Nobody else may use these rows of `out`, or this room.
    unsafe fn band(
        &self,
        rows: Range<usize>,
        room: usize,
        (input, between, out): (View<u8>, &[Target<u8>], &Target<u8>),
        pause: Pause,
    ) -> Result<(), OpError> {
        let mut images = Vec::with_capacity(between.len());
        for (target, image) in between.iter().zip(self.images) {
            let size = image.room * image.row;
            // SAFETY: rooms do not overlap, and by contract this one is ours.
            let target = unsafe { target.disjoint_part(room * size, size) };
            images.push(Window { target, row: image.row, rows: 0..0 });
        }
        let (last, row) = (between.len(), self.images[between.len()].row);
        let mut needs = vec![0..0; self.makers.len()];
        let mut next = rows.start;
        while next < rows.end {
            pause()?;
            needs[last] = next..rows.end.min(next + self.block);
            next = needs[last].end;
            for i in (0..last).rev() {
                needs[i] = self.makers[i + 1].kernel.reads(needs[i + 1].clone());
            }
            for (i, maker) in self.makers.iter().enumerate() {
                let (before, from) = images.split_at_mut(i);
                let lines = before.last_mut().map_or(Lines::all(input), Window::lines);
                if let Some(image) = from.first_mut() {
                    let missing = image.move_on(needs[i].clone())?;
                    if !missing.is_empty() {
                        maker.make(lines, missing.clone(), image.part(missing), pause)?;
                    }
                    continue;
                }
                // SAFETY: by contract.
                let out = unsafe { out.disjoint_part(needs[i].start * row, needs[i].len() * row) };
                maker.make(lines, needs[i].clone(), out, pause)?;
            }
        }
        Ok(())
    }
}

/// Some rows of an image in memory of ours, the first one at its start.
struct Window<'a> {
    target: Target<'a, u8>,
    /// Bytes of a row.
    row: usize,
    rows: Range<usize>,
}

impl Window<'_> {
    /// Goes on to `rows`, which start and end no earlier than those before, and tells which of them are to be made.
    fn move_on(&mut self, rows: Range<usize>) -> Result<Range<usize>, OpError> {
        if rows.is_empty() {
            return Ok(rows);
        }
        let fits = rows.len() * self.row <= self.target.len()
            && (self.rows.is_empty() || self.rows.start <= rows.start);
        if !fits {
            return Err(OpError::failed("unexpected rows of an image; this is a fault of the driver"));
        }
        let kept = rows.start..self.rows.end.clamp(rows.start, rows.end);
        if !kept.is_empty() && rows.start > self.rows.start {
            let len = kept.len() * self.row;
            let from = self.target.pointer((rows.start - self.rows.start) * self.row, len).cast_const();
            // SAFETY: both are in the target, where as many bytes were asked for.
            unsafe { std::ptr::copy(from, self.target.pointer(0, len), len) };
        }
        self.rows = rows;
        Ok(kept.end..self.rows.end)
    }

    /// Where some of its rows are to be written.
    fn part(&mut self, rows: Range<usize>) -> Target<'_, u8> {
        self.target.part((rows.start - self.rows.start) * self.row, rows.len() * self.row)
    }

    fn lines(&mut self) -> Lines<'_, u8> {
        let len = self.rows.len() * self.row;
        // SAFETY: as many bytes are in the target, which is memory of this process's own and not written meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.target.pointer(0, len), len) };
        Lines { elements: View::of(bytes), first: self.rows.start }
    }
}
