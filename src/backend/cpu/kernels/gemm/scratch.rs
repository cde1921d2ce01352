//! Memory of one task of a product: it is counted, and not to get it is an error and nothing worse.

use super::kept;
use super::micro::MAX_ROWS;
use crate::memory::{AlignedBuf, Counted};
use crate::ops::OpError;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// Memory of a task.
pub struct Scratch<T> {
    /// Where inputs lie, `[segment][row]`.
    pub pointers: Pointers<T>,
    /// Lines of an image with what is beside it.
    pub lines: Room,
    /// Rows that do not lie as they are needed.
    pub patches: Room,
    /// What the micro-kernel needs for itself.
    pub own: Room,
}

impl<T> Scratch<T> {
    pub fn new() -> Self {
        let few = [const { MaybeUninit::uninit() }; MAX_ROWS];
        let pointers = Pointers { few, set: 0, many: Room::default(), count: 0 };
        Scratch { pointers, lines: Room::default(), patches: Room::default(), own: Room::default() }
    }
}

/// As many pointers as are needed. Few take no memory but the stack's.
pub struct Pointers<T> {
    few: [MaybeUninit<*const T>; MAX_ROWS],
    /// How many of the few were set once: to set all for the few that most tasks have would take longer than some tasks.
    set: usize,
    many: Room,
    count: usize,
}

impl<T> Pointers<T> {
    /// Makes room for `count` pointers, whatever they are.
    pub fn resize(&mut self, count: usize) -> Result<(), OpError> {
        if count > self.few.len() {
            self.many.make(count.saturating_mul(size_of::<*const T>()))?;
        } else if count > self.set {
            self.few[self.set..count].iter_mut().for_each(|pointer| _ = pointer.write(std::ptr::null()));
            self.set = count;
        }
        self.count = count;
        Ok(())
    }
}

impl<T> Deref for Pointers<T> {
    type Target = [*const T];

    fn deref(&self) -> &[*const T] {
        match self.few.get(..self.count) {
            // SAFETY: `resize` set as many.
            Some(few) => unsafe { std::slice::from_raw_parts(few.as_ptr().cast(), few.len()) },
            // SAFETY: `resize` made room for as many, a buffer's start is aligned for all types, and any bytes that were written
            // are a pointer, with which nothing is done before it is set.
            None => unsafe { std::slice::from_raw_parts(self.many.as_ptr().cast(), self.count) },
        }
    }
}

impl<T> DerefMut for Pointers<T> {
    fn deref_mut(&mut self) -> &mut [*const T] {
        match self.few.get_mut(..self.count) {
            // SAFETY: as above.
            Some(few) => unsafe { std::slice::from_raw_parts_mut(few.as_mut_ptr().cast(), few.len()) },
            // SAFETY: as above.
            None => unsafe { std::slice::from_raw_parts_mut(self.many.as_mut_ptr().cast(), self.count) },
        }
    }
}

/// Room for what a task writes before it reads it: what other tasks wrote there before means nothing.
#[derive(Default)]
pub struct Room(AlignedBuf);

impl Room {
    /// Makes it at least `bytes` long.
    pub fn make(&mut self, bytes: usize) -> Result<(), OpError> {
        if self.0.len() < bytes {
            *self = Room::default();
            if let Some(kept) = kept::with_bytes(bytes) {
                self.0 = kept.take().ok_or(OpError::OutOfMemory(bytes))?;
            }
        }
        room(&mut self.0, bytes)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // Others are of just the size that was needed.
        if let Some(kept) = kept::with_bytes(buffer.len()).filter(|kept| kept.bytes == buffer.len()) {
            kept.give(buffer);
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// As many values as rows or segments of a filter: few, as nearly all have, take no memory but the stack's.
pub struct Few<T> {
    values: SmallVec<[T; FEW]>,
    _counted: Option<Counted>,
}

/// Rows of nearly all filters, and one more.
const FEW: usize = 8;

impl<T> Few<T> {
    /// None as yet. It must not grow beyond `count`: what is beyond is not counted.
    pub fn reserved(count: usize) -> Result<Self, OpError> {
        let mut values = SmallVec::new();
        if count <= FEW {
            return Ok(Few { values, _counted: None });
        }
        let bytes = count.saturating_mul(size_of::<T>());
        let counted = Counted::take(bytes).ok_or(OpError::OutOfMemory(bytes))?;
        values.try_reserve_exact(count).map_err(|_| OpError::OutOfMemory(bytes))?;
        Ok(Few { values, _counted: Some(counted) })
    }

    /// So many copies of `value`.
    pub fn filled(count: usize, value: T) -> Result<Self, OpError>
    where
        T: Clone,
    {
        let mut few = Few::reserved(count)?;
        few.resize(count, value);
        Ok(few)
    }
}

impl<T> Deref for Few<T> {
    type Target = SmallVec<[T; FEW]>;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.values
    }
}

/// Makes a buffer at least `bytes` long. What it holds is lost.
fn room(buffer: &mut AlignedBuf, bytes: usize) -> Result<(), OpError> {
    if buffer.len() < bytes {
        *buffer = AlignedBuf::default();
        *buffer = AlignedBuf::zeroed(bytes).ok_or(OpError::OutOfMemory(bytes))?;
    }
    Ok(())
}

/// Copies rows to where they lie one after the other, and points there.
///
/// # Safety
/// Pointers must be valid for `depth` elements.
pub unsafe fn gather<T>(
    scratch: &mut Scratch<T>,
    rows: usize,
    (depth, padded): (usize, usize),
) -> Result<(), OpError> {
    let segments = scratch.pointers.len() / rows;
    let bytes = rows.checked_mul(segments * padded * size_of::<T>());
    scratch.patches.make(bytes.unwrap_or(usize::MAX))?;
    let start = scratch.patches.as_mut_ptr().cast::<T>();
    for (i, pointer) in scratch.pointers.iter_mut().enumerate() {
        let to = start.wrapping_add((i % rows * segments + i / rows) * padded);
        // SAFETY: the buffer has room for all rows, of so many segments; libc's memcpy may read a client's memory.
        unsafe { libc::memcpy(to.cast(), pointer.cast(), depth * size_of::<T>()) };
        *pointer = to;
    }
    Ok(())
}

/// Bytes that are copied at once where segments are joined.
pub const WORD: usize = 8;

/// Copies the segments of rows to where each follows the one before, and points to the rows, of which so many elements can
/// be read. Nothing is looked up for each segment: they are short, and many.
///
/// # Safety
/// Pointers must be valid for `depth` elements, and to the end of their last [word](WORD); rows must have no more elements
/// than their segments and `padded`.
pub unsafe fn join<T>(
    scratch: &mut Scratch<T>,
    rows: usize,
    (depth, padded): (usize, usize),
) -> Result<(), OpError> {
    let (segments, depth, padded) =
        (scratch.pointers.len() / rows, depth * size_of::<T>(), padded * size_of::<T>());
    // The end of a word is written over by the next segment, but for those of the last one.
    let words = depth.div_ceil(WORD);
    let stride = padded.max((segments - 1) * depth + words * WORD);
    scratch.patches.make(rows.saturating_mul(stride))?;
    let start = scratch.patches.as_mut_ptr();
    for (segment, pointers) in scratch.pointers.chunks_exact(rows).enumerate() {
        let to = start.wrapping_add(segment * depth);
        // SAFETY: the buffer has room for all words of all rows.
        unsafe {
            match words {
                1 => copy_words::<T, 1>(pointers, to, stride),
                2 => copy_words::<T, 2>(pointers, to, stride),
                3 => copy_words::<T, 3>(pointers, to, stride),
                4 => copy_words::<T, 4>(pointers, to, stride),
                _ => {
                    for (i, pointer) in pointers.iter().enumerate() {
                        libc::memcpy(to.wrapping_add(i * stride).cast(), pointer.cast(), depth);
                    }
                }
            }
        }
    }
    scratch.pointers.resize(rows)?;
    let rows = scratch.pointers.iter_mut().enumerate();
    rows.for_each(|(i, row)| *row = start.wrapping_add(i * stride).cast_const().cast());
    Ok(())
}

/// Copies so many words from each pointer to places that are `stride` bytes from one to the next.
///
/// # Safety
/// They must be there, and be nobody else's.
unsafe fn copy_words<T, const WORDS: usize>(from: &[*const T], mut to: *mut u8, stride: usize) {
    for from in from {
        // SAFETY: by contract.
        unsafe { to.cast::<[u64; WORDS]>().write_unaligned(from.cast::<[u64; WORDS]>().read_unaligned()) };
        to = to.wrapping_add(stride);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;

    #[test]
    fn room_is_the_drivers_up_to_what_is_kept_and_its_clients_beyond() {
        let budget = Budget::new(64 << 20);
        let _account = budget.on_account_of(1);
        let made = |bytes| {
            let mut room = Room::default();
            room.make(bytes).unwrap();
            assert!(room.len() >= bytes);
            room.fill(7);
            room
        };
        let mut room = made(1);
        let small = room.len();
        assert_ne!(made(small).as_ptr(), room.as_ptr(), "not twice at once");
        assert_eq!((made(small + 1).len(), made(1).len()), (kept::LARGEST, small), "each of its size");
        assert_eq!(budget.private().held(), 0);
        room.make(kept::LARGEST + 1).unwrap();
        assert!(budget.private().held() > kept::LARGEST as u64, "beyond that it is the client's");
        drop(room);
        assert_eq!(budget.private().held(), 0);
    }

    #[test]
    fn few_values_are_on_the_stack_and_more_are_the_clients() {
        let budget = Budget::new(1 << 20);
        let _account = budget.on_account_of(1);
        assert!(!Few::filled(FEW, 7u64).unwrap().spilled());
        let many = Few::filled(FEW + 1, 7u64).unwrap();
        assert_eq!((&many[..], many.capacity()), (&[7; FEW + 1][..], FEW + 1));
        assert_eq!(budget.private().held(), 8 * (FEW as u64 + 1));
        drop(many);
        assert_eq!(budget.private().held(), 0);
        assert!(matches!(Few::<u64>::reserved(1 << 20), Err(OpError::OutOfMemory(_))));
    }
}
