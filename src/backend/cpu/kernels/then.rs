//! What becomes of a kernel's output, element by element or row by row, where it was made. Which steps go together so is decided elsewhere.

use crate::memory::View;
use crate::ops::OpError;
use std::ops::Range;

/// A kernel that makes each element of its output, which is as large, of the same element of one input or of each of two, or each
/// row of the same row.
pub trait Elementwise: Send + Sync {
    /// One or two.
    fn inputs(&self) -> usize;

    /// Elements that it must have together: those of a row if it goes by rows.
    fn together(&self) -> usize {
        1
    }

    /// Whether its input `own` is as large as its output, so that it can go on with it. The other one may be of fewer elements,
    /// which repeat.
    fn goes_on_with(&self, own: usize) -> bool {
        own < self.inputs()
    }

    /// Makes elements of the output, from number `first` on, of those of input `own` that lie in `made`, in their place; `other` is the
    /// whole of the other input, if there is one.
    fn go_on(
        &self,
        made: &mut [u8],
        first: usize,
        own: usize,
        other: Option<View<u8>>,
    ) -> Result<(), OpError>;
}

/// A kernel that goes on with what was made.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    pub kernel: &'a dyn Elementwise,
    /// Which of its inputs is what was made.
    pub own: usize,
    /// The whole of the other one.
    pub other: Option<View<'a, u8>>,
}

/// What becomes of a kernel's output where it was just made, and is in a near cache.
#[derive(Clone, Copy)]
pub struct Then<'a> {
    /// Those that go on, one after the other.
    pub next: &'a [Next<'a>],
    /// Picoseconds that they take for an element, about.
    pub picoseconds: usize,
}

impl Then<'_> {
    /// Goes on with some columns of some rows of the output, whose rows have `all` columns.
    ///
    /// # Safety
    /// `to` must be where the output's first element lies; the part must have been made, be memory of ours, and be nobody else's.
    pub unsafe fn on<T>(
        self,
        to: *mut T,
        rows: Range<usize>,
        columns: Range<usize>,
        all: usize,
    ) -> Result<(), OpError> {
        // SAFETY: the same contract.
        unsafe { self.on_elements((to.cast(), size_of::<T>()), rows, columns, all) }
    }

    /// The same where elements are of so many bytes.
    ///
    /// # Safety
    /// As for [`Self::on`].
    pub unsafe fn on_elements(
        self,
        (to, size): (*mut u8, usize),
        rows: Range<usize>,
        columns: Range<usize>,
        all: usize,
    ) -> Result<(), OpError> {
        let whole = columns.len() == all;
        let (count, len) = if whole { (1, rows.len() * all) } else { (rows.len(), columns.len()) };
        for row in rows.start..rows.start + count {
            let first = row * all + columns.start;
            // SAFETY: by contract.
            let made = unsafe { std::slice::from_raw_parts_mut(to.wrapping_add(first * size), len * size) };
            for next in self.next {
                next.kernel.go_on(made, first, next.own, next.other)?;
            }
        }
        Ok(())
    }
}
