//! The loop of elementwise kernels that write where they read: a loop whose input might be its output would not be one of
//! vectors, so it takes copies of some elements at a time.

use super::super::vector::Loop;
use super::functions::{Element, OfTwo};
use std::marker::PhantomData;

/// Elements that are copied at a time. Those of an input that is repeated are, too: to find a run costs more than to work at a few
/// elements.
pub const STRETCH: usize = 256;

/// What becomes of elements that were made.
pub trait Of<S, T> {
    /// Puts what becomes of `made`, the elements from `first` on.
    ///
    /// # Safety
    /// There must be room for as many.
    unsafe fn run(&self, first: usize, made: &[S], to: *mut T);
}

/// Makes elements in `made` of those that lie there, which are as large.
pub struct InPlace<'a, S, T, O> {
    pub made: &'a mut [u8],
    pub of: O,
    pub types: PhantomData<fn(S) -> T>,
}

impl<S: Element, T: Element, O: Of<S, T>> Loop for InPlace<'_, S, T, O> {
    #[inline(always)]
    fn run(self) {
        let (len, start) = (self.made.len() / size_of::<S>(), self.made.as_mut_ptr());
        let mut copies = [S::zeroed(); STRETCH];
        for first in (0..len).step_by(STRETCH) {
            let copies = &mut copies[..STRETCH.min(len - first)];
            let at = start.wrapping_add(first * size_of::<S>());
            // SAFETY: as many elements are in the slice.
            unsafe { copy(at.cast(), copies) };
            // SAFETY: there are as many, and `T` is as large as `S`.
            unsafe { self.of.run(first, copies, at.cast::<T>()) };
        }
    }
}

/// A function of one element.
pub struct OfOne<'f, F>(pub &'f F);

impl<S: Element, T, F: Fn(S) -> T> Of<S, T> for OfOne<'_, F> {
    #[inline(always)]
    unsafe fn run(&self, _: usize, made: &[S], to: *mut T) {
        for (i, &element) in made.iter().enumerate() {
            // SAFETY: by contract.
            unsafe { to.add(i).write_unaligned((self.0)(element)) };
        }
    }
}

/// A function of two elements, the first of which was made; behind are the others, as many as are made.
pub struct Before<'f, S, F>(pub &'f F, pub *const S);

impl<S: Element, T, F: OfTwo<S, T>> Of<S, T> for Before<'_, S, F> {
    #[inline(always)]
    unsafe fn run(&self, first: usize, made: &[S], to: *mut T) {
        // SAFETY: there are as many others, and as much room by contract.
        unsafe { self.0.along(made.len(), [made.as_ptr(), self.1.wrapping_add(first)], to) };
    }
}

/// The same where the second one was made.
pub struct Behind<'f, S, F>(pub &'f F, pub *const S);

impl<S: Element, T, F: OfTwo<S, T>> Of<S, T> for Behind<'_, S, F> {
    #[inline(always)]
    unsafe fn run(&self, first: usize, made: &[S], to: *mut T) {
        // SAFETY: as above.
        unsafe { self.0.along(made.len(), [self.1.wrapping_add(first), made.as_ptr()], to) };
    }
}

/// The same of a function of two elements, the second of which is one of `row`, which are repeated; element `at` goes with the first
/// that was made.
pub struct Repeated<'a, S, T, F> {
    pub made: &'a mut [u8],
    pub f: &'a F,
    pub other: *const S,
    pub row: usize,
    pub at: usize,
    pub types: PhantomData<fn(S) -> T>,
}

impl<S: Element, T: Element, F: OfTwo<S, T>> Loop for Repeated<'_, S, T, F> {
    #[inline(always)]
    fn run(self) {
        let (len, start) = (self.made.len() / size_of::<S>(), self.made.as_mut_ptr());
        let is_short = self.row <= STRETCH / 2;
        let mut copies = [S::zeroed(); STRETCH];
        let mut repeated = [S::zeroed(); STRETCH];
        // As many whole rows as fit, from `at` on.
        let rows = if is_short { STRETCH / self.row * self.row } else { 0 };
        // SAFETY: there are `row` elements.
        unsafe { repeat(&mut repeated[..rows.min(len)], self.other, self.row, self.at) };
        let (mut first, mut at) = (0, self.at);
        while first < len {
            let (n, other) = match is_short {
                true => (rows.min(len - first), repeated.as_ptr()),
                false => (STRETCH.min(self.row - at).min(len - first), self.other.wrapping_add(at)),
            };
            let made = start.wrapping_add(first * size_of::<S>());
            // SAFETY: as many elements are in the slice.
            unsafe { copy(made.cast(), &mut copies[..n]) };
            // SAFETY: there are as many of each, and `T` is as large as `S`.
            unsafe { self.f.along(n, [copies.as_ptr(), other], made.cast::<T>()) };
            first += n;
            at = if at + n < self.row { at + n } else { 0 };
        }
    }
}

/// Fills `to` with elements that follow each other.
///
/// # Safety
/// There must be as many.
#[inline(always)]
unsafe fn copy<S: Element>(from: *const S, to: &mut [S]) {
    for (i, element) in to.iter_mut().enumerate() {
        // SAFETY: by contract.
        *element = unsafe { from.add(i).read_unaligned() };
    }
}

/// Fills `to` with what comes again after `row` elements, from element `at` of them on.
///
/// # Safety
/// There must be `row` elements, of which `at` is one.
#[inline(always)]
pub unsafe fn repeat<S: Element>(to: &mut [S], from: *const S, row: usize, mut at: usize) {
    for element in to {
        // SAFETY: by contract.
        *element = unsafe { from.add(at).read_unaligned() };
        at = if at + 1 < row { at + 1 } else { 0 };
    }
}
