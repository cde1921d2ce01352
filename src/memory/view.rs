//! Where kernels read and write: memory of ours or a client's, behind raw pointers with checked bounds.
//!
//! A client's memory changes at any moment, so nothing here makes a reference into it, and what is read from it may
//! decide nothing but values. Nor is anything known of its alignment: pointers are for unaligned loads and stores.

use bytemuck::AnyBitPattern;
use std::marker::PhantomData;
use std::sync::atomic::{compiler_fence, Ordering};

/// Elements to compute with, never to decide by: they may change between two reads of them.
#[derive(Debug)]
pub struct View<'m, T> {
    start: *const T,
    len: usize,
    memory: PhantomData<&'m [T]>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

// SAFETY: it only reads plain values, which is as good from one thread as from another; ours stay borrowed meanwhile.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}

impl<'m, T: AnyBitPattern> View<'m, T> {
    pub fn of(elements: &'m [T]) -> Self {
        View { start: elements.as_ptr(), len: elements.len(), memory: PhantomData }
    }

    /// # Safety
    /// For as long as `'m` lasts there are `len` elements from `start` on to be read, aligned or not.
    pub(super) unsafe fn from_raw(start: *const T, len: usize) -> Self {
        View { start, len, memory: PhantomData }
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// A pointer to `count` elements from element `start` on, for unaligned reads while `'m` lasts. Panics where there
    /// are none: bounds follow from what was compiled, never from what a client says.
    #[inline]
    pub fn pointer(self, start: usize, count: usize) -> *const T {
        check(self.len, start, count);
        self.start.wrapping_add(start)
    }

    /// Element `i`, as it is right now.
    #[inline]
    pub fn get(self, i: usize) -> T {
        // SAFETY: one element was asked for.
        unsafe { self.pointer(i, 1).read_unaligned() }
    }

    /// The `count` elements from element `start` on.
    #[inline]
    pub fn part(self, start: usize, count: usize) -> Self {
        View { start: self.pointer(start, count), len: count, memory: PhantomData }
    }

    /// Copies the first of them to `to`, which must not be longer than there are.
    pub fn copy_to(self, to: &mut [T]) {
        check(self.len, 0, to.len());
        // SAFETY: there are as many elements to read, and `to` is memory of ours. Any bytes are an element.
        unsafe { copy_shared(to.as_mut_ptr().cast(), self.start.cast(), size_of_val(to)) };
    }

    /// Appends a private copy to `to`.
    #[inline]
    pub fn append_to(self, to: &mut Vec<T>) {
        to.reserve(self.len);
        // SAFETY: as in `copy_to`; there is room for `len` elements after those that `to` has.
        unsafe {
            let end = to.as_mut_ptr().add(to.len());
            copy_shared(end.cast(), self.start.cast(), self.len * size_of::<T>());
            to.set_len(to.len() + self.len);
        }
    }
}

/// Copies `len` bytes out of memory that a client may write meanwhile, which tears them at worst.
///
/// # Safety
/// As for `memcpy`.
pub(super) unsafe fn copy_shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the contract is the caller's.
    unsafe { libc::memcpy(to.cast(), from.cast(), len) };
    // The compiler knows what memcpy does, and that both sides now hold the same. Without this it might read from the client
    // again what was copied, and was found good, a moment ago.
    compiler_fence(Ordering::SeqCst);
}

impl<'m, T: bytemuck::Pod> View<'m, T> {
    /// The bytes that the elements are.
    pub fn bytes(self) -> View<'m, u8> {
        View { start: self.start.cast(), len: self.len * size_of::<T>(), memory: PhantomData }
    }
}

impl<'m> View<'m, u8> {
    /// The elements that the bytes are; `None` if they are no whole number of them.
    pub fn elements<T: AnyBitPattern>(self) -> Option<View<'m, T>> {
        let len = whole::<T>(self.len)?;
        Some(View { start: self.start.cast(), len, memory: PhantomData })
    }
}

/// Elements to be written, each by one thread. What lies there is not to be read: a client may have changed it.
#[derive(Debug)]
pub struct Target<'m, T> {
    start: *mut T,
    len: usize,
    memory: PhantomData<&'m mut [T]>,
}

// SAFETY: it is the only way to its elements, as far as this process goes, and those may move between threads.
unsafe impl<T: Send> Send for Target<'_, T> {}
// SAFETY: a shared one tells its length; whoever makes aliases answers for them.
unsafe impl<T: Send> Sync for Target<'_, T> {}

impl<'m, T: AnyBitPattern> Target<'m, T> {
    pub fn of(elements: &'m mut [T]) -> Self {
        Target { start: elements.as_mut_ptr(), len: elements.len(), memory: PhantomData }
    }

    /// # Safety
    /// For as long as `'m` lasts there are `len` elements from `start` on to be written, aligned or not, and nothing of
    /// ours refers to them.
    pub(super) unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        Target { start, len, memory: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to `count` elements from element `start` on, for unaligned writes while `self` is borrowed. Panics
    /// where there are none, as [`View::pointer`] does.
    #[inline]
    pub fn pointer(&mut self, start: usize, count: usize) -> *mut T {
        check(self.len, start, count);
        self.start.wrapping_add(start)
    }

    #[inline]
    pub fn set(&mut self, i: usize, element: T) {
        // SAFETY: one element was asked for.
        unsafe { self.pointer(i, 1).write_unaligned(element) }
    }

    /// Writes `elements` from element `start` on.
    #[inline]
    pub fn copy_from(&mut self, start: usize, elements: &[T]) {
        let to = self.pointer(start, elements.len());
        // SAFETY: as many elements were asked for, and they are not those that are read, which are borrowed.
        unsafe { libc::memcpy(to.cast(), elements.as_ptr().cast(), size_of_val(elements)) };
    }

    /// The `count` elements from element `start` on.
    #[inline]
    pub fn part(&mut self, start: usize, count: usize) -> Target<'_, T> {
        Target { start: self.pointer(start, count), len: count, memory: PhantomData }
    }

    /// The same as [`part`](Self::part), while there may be other parts.
    ///
    /// # Safety
    /// No two parts that exist at the same time may overlap.
    #[inline]
    pub unsafe fn disjoint_part(&self, start: usize, count: usize) -> Target<'_, T> {
        check(self.len, start, count);
        Target { start: self.start.wrapping_add(start), len: count, memory: PhantomData }
    }
}

impl Target<'_, u8> {
    /// The elements that the bytes are to be; `None` if they are no whole number of them.
    pub fn elements<T: AnyBitPattern>(&mut self) -> Option<Target<'_, T>> {
        let len = whole::<T>(self.len)?;
        Some(Target { start: self.start.cast(), len, memory: PhantomData })
    }
}

#[inline]
fn check(len: usize, start: usize, count: usize) {
    assert!(start <= len && count <= len - start, "{len} elements end before {start}+{count}");
}

/// How many elements `bytes` bytes are.
fn whole<T>(bytes: usize) -> Option<usize> {
    Some(bytes).filter(|bytes| bytes.is_multiple_of(size_of::<T>())).map(|bytes| bytes / size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_elements_wherever_they_lie() {
        let mut bytes = [0u8; 14];
        let mut target = Target::of(&mut bytes[1..13]);
        let mut elements = target.elements::<f32>().unwrap();
        assert_eq!(elements.len(), 3);
        elements.copy_from(1, &[2.0, 3.0]);
        elements.part(0, 1).set(0, 1.0);
        // SAFETY: the only part there is.
        unsafe { elements.disjoint_part(2, 1) }.set(0, 4.0);
        assert!(Target::of(&mut bytes[1..12]).elements::<f32>().is_none());
        let view = View::of(&bytes[1..13]).elements::<f32>().unwrap();
        let mut copy = vec![0.5];
        view.part(1, 2).append_to(&mut copy);
        let mut same = [0.0; 3];
        view.copy_to(&mut same);
        assert_eq!(same, [1.0, 2.0, 4.0]);
        assert_eq!((copy, view.get(0), view.len()), (vec![0.5, 2.0, 4.0], 1.0, 3));
        assert!(View::of(&bytes[..5]).elements::<f32>().is_none());
        assert_eq!((bytes[0], bytes[13]), (0, 0));
    }

    #[test]
    fn nothing_lies_outside() {
        let outside: [(usize, usize); 4] = [(0, 4), (3, 1), (4, 0), (usize::MAX, 2)];
        for (start, count) in outside {
            let part = || View::of(&[0u8; 3]).part(start, count).len();
            assert!(std::panic::catch_unwind(part).is_err());
            let part = || Target::of(&mut [0u8; 3]).part(start, count).len();
            assert!(std::panic::catch_unwind(part).is_err());
        }
        assert!(View::of(&[0u8; 3]).part(3, 0).is_empty());
    }
}
