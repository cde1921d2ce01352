//! Memory for work in progress. How much of it a call needs follows from what a client sent: so it is counted with all
//! private memory, not to get it is an error and nothing worse, and long fills come by a yield point.

use super::{Interrupt, OpError};
use crate::memory::{prefer_huge_pages, Counted};
use std::ops::{Deref, DerefMut, Range};

/// Elements made in one go, between two yield points: some tens of microseconds.
const STRETCH: usize = 1 << 15;
/// Room for so many values is what a vector that grows takes first.
const FIRST: usize = 16;

/// A counted vector. It must not grow beyond what was reserved, which nobody would count, but by [`append`](Scratch::append).
#[derive(Debug)]
pub struct Scratch<T> {
    values: Vec<T>,
    /// None for no values.
    _counted: Option<Counted>,
}

/// Values as a call has them, or as they had to be made of what it has.
#[derive(Debug)]
pub enum Values<'a, T> {
    Given(&'a [T]),
    Made(Scratch<T>),
}

/// An empty vector with room for `len` values.
pub fn reserved<T>(len: usize) -> Result<Scratch<T>, OpError> {
    let bytes = len.saturating_mul(size_of::<T>());
    if bytes == 0 {
        return Ok(Scratch { values: Vec::new(), _counted: None });
    }
    let counted = Counted::take(bytes).ok_or(OpError::OutOfMemory(bytes))?;
    let mut values: Vec<T> = Vec::new();
    values.try_reserve_exact(len).map_err(|_| OpError::OutOfMemory(bytes))?;
    prefer_huge_pages(values.spare_capacity_mut());
    Ok(Scratch { values, _counted: Some(counted) })
}

/// A vector of `len` copies of `value`.
pub fn filled<T: Clone>(interrupt: &dyn Interrupt, value: T, len: usize) -> Result<Scratch<T>, OpError> {
    let mut filled = reserved(len)?;
    while filled.len() < len {
        let next = len.min(filled.len() + STRETCH);
        filled.values.resize(next, value.clone());
        pause(interrupt, next, len)?;
    }
    Ok(filled)
}

/// A vector of what `values` gives.
pub fn collected<T>(
    interrupt: &dyn Interrupt,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Scratch<T>, OpError> {
    let mut all = reserved(values.len())?;
    all.extend_paced(interrupt, values)?;
    Ok(all)
}

/// A copy of `values`.
pub fn copied<T: Copy>(interrupt: &dyn Interrupt, values: &[T]) -> Result<Scratch<T>, OpError> {
    collected(interrupt, values.iter().copied())
}

/// Sets all bytes to zero.
pub fn clear(interrupt: &dyn Interrupt, bytes: &mut [u8]) -> Result<(), OpError> {
    by_parts(interrupt, bytes.len(), |part| {
        bytes[part].fill(0);
        Ok(())
    })
}

/// Copies `from` to `to`, which must be as long.
pub fn copy(interrupt: &dyn Interrupt, to: &mut [u8], from: &[u8]) -> Result<(), OpError> {
    if to.len() != from.len() {
        return Err(OpError::failed(format!("{} bytes for {}", from.len(), to.len())));
    }
    by_parts(interrupt, from.len(), |part| {
        to[part.clone()].copy_from_slice(&from[part]);
        Ok(())
    })
}

/// Calls `each` for one part of `len` bytes after the other, with a yield point in between.
pub fn by_parts<E: From<OpError>>(
    interrupt: &dyn Interrupt,
    len: usize,
    mut each: impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    for start in (0..len).step_by(4 * STRETCH) {
        let end = len.min(start + 4 * STRETCH);
        each(start..end)?;
        pause(interrupt, end, len)?;
    }
    Ok(())
}

/// A yield point, unless that was all.
fn pause(interrupt: &dyn Interrupt, done: usize, of: usize) -> Result<(), OpError> {
    match done < of {
        true => interrupt.yield_point(),
        false => Ok(()),
    }
}

impl<T> Scratch<T> {
    /// Appends what `values` gives, for which there must be room.
    fn extend_paced(
        &mut self,
        interrupt: &dyn Interrupt,
        mut values: impl ExactSizeIterator<Item = T>,
    ) -> Result<(), OpError> {
        let len = self.len() + values.len();
        while self.len() < len {
            let before = self.len();
            self.values.extend(values.by_ref().take(STRETCH.min(len - before)));
            if self.len() == before {
                break; // it gave fewer than it promised
            }
            pause(interrupt, self.len(), len)?;
        }
        Ok(())
    }
}

impl<T: Copy> Scratch<T> {
    /// Appends what `values` gives. Where there is no room, it takes counted memory for twice as many as before: for who
    /// cannot tell how many there will be, and would else have to ask for the most there can be.
    pub fn append(
        &mut self,
        interrupt: &dyn Interrupt,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<(), OpError> {
        let len = self.len().saturating_add(values.len());
        if len > self.values.capacity() {
            let mut larger = reserved(len.max(2 * self.len()).max(FIRST))?;
            larger.extend_paced(interrupt, self.values.iter().copied())?;
            *self = larger;
        }
        self.extend_paced(interrupt, values)
    }
}

impl<T: PartialEq> PartialEq for Scratch<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<T> Deref for Scratch<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

impl<T> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.values
    }
}

impl<T> Deref for Values<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Values::Given(values) => values,
            Values::Made(values) => values,
        }
    }
}

impl<T: Copy> Values<'_, T> {
    /// Values that may be written.
    pub fn into_owned(self, interrupt: &dyn Interrupt) -> Result<Scratch<T>, OpError> {
        match self {
            Values::Given(values) => copied(interrupt, values),
            Values::Made(values) => Ok(values),
        }
    }
}

impl<T> From<Scratch<T>> for Values<'_, T> {
    fn from(made: Scratch<T>) -> Self {
        Values::Made(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Third(AtomicUsize);

    impl Interrupt for Third {
        fn check(&self) -> Result<(), OpError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                2 => Err(OpError::Cancelled),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn all_are_there_and_long_work_is_interrupted() {
        for len in [0, 1, STRETCH, STRETCH + 1, 4 * STRETCH] {
            assert_eq!(*filled(&NeverInterrupted, 7u8, len).unwrap(), vec![7; len]);
            assert_eq!(*collected(&NeverInterrupted, 0..len).unwrap(), (0..len).collect::<Vec<_>>());
            let mut bytes = vec![1; 4 * len];
            clear(&NeverInterrupted, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0));
            let from: Vec<u8> = (0..4 * len).map(|i| (i % 251) as u8).collect();
            copy(&NeverInterrupted, &mut bytes, &from).unwrap();
            assert_eq!(bytes, from);
        }
        let third = || Third(AtomicUsize::new(0));
        assert_eq!(filled(&third(), 0u8, 100 * STRETCH).map(drop), Err(OpError::Cancelled));
        assert_eq!(collected(&third(), 0..100 * STRETCH).map(drop), Err(OpError::Cancelled));
        let (mut bytes, from) = (vec![0; 400 * STRETCH], vec![1; 400 * STRETCH]);
        assert_eq!(clear(&third(), &mut bytes), Err(OpError::Cancelled));
        assert_eq!(copy(&third(), &mut bytes, &from), Err(OpError::Cancelled));
        assert_eq!(bytes.iter().position(|&byte| byte == 0), Some(12 * STRETCH));
        assert!(copy(&NeverInterrupted, &mut bytes, &from[1..]).is_err());
    }

    #[test]
    fn what_grows_is_counted_and_interrupted() {
        let mut grown = reserved(0).unwrap();
        for len in [0, 1, 1, 40, STRETCH + 1, 0, 3 * STRETCH] {
            let start = grown.len();
            grown.append(&NeverInterrupted, start..start + len).unwrap();
            assert!(
                grown.capacity() <= (2 * grown.len()).max(FIRST),
                "{} for {}",
                grown.capacity(),
                grown.len()
            );
        }
        assert_eq!(*grown, (0..4 * STRETCH + 43).collect::<Vec<_>>());
        let len = grown.len();
        let all = crate::memory::machine_bytes();
        assert!(matches!(grown.append(&NeverInterrupted, 0..all), Err(OpError::OutOfMemory(_))));
        assert_eq!(grown.append(&Third(AtomicUsize::new(0)), 0..10 * STRETCH), Err(OpError::Cancelled));
        assert_eq!(grown[..len], (0..len).collect::<Vec<_>>());
    }

    #[test]
    fn it_is_counted_with_all_private_memory() {
        let most = crate::memory::machine_bytes() / 2;
        assert_eq!(reserved::<u64>(most / 8 + 1).map(drop), Err(OpError::OutOfMemory(most / 8 * 8 + 8)));
        assert_eq!(reserved::<u64>(usize::MAX).map(drop), Err(OpError::OutOfMemory(usize::MAX)));
    }
}
