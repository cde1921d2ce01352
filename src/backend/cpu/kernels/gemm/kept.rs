//! Buffers that are kept from one task to the next, of the driver's own memory: to have new pages made for each task can take
//! several times as long as the task, as all threads wait while some are given back.
//!
//! There are at most as many as tasks have needed at the same time: threads that compute no more keep none. It must not make
//! anybody wait.

use crate::memory::AlignedBuf;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// For all of the process, of two sizes. A task takes two or three mostly, and seven at most. Where more threads compute than
/// there are places for, some are allocated anew.
pub static KEPT: [Kept<64>; 2] = [Kept::of(0, 256 << 10), Kept::of(1, LARGEST)];
pub const LARGEST: usize = 512 << 10;

/// Those that have so many bytes at least, and no more of them than are needed.
pub fn with_bytes(bytes: usize) -> Option<&'static Kept<64>> {
    KEPT.iter().find(|kept| bytes <= kept.bytes)
}

/// Buffers of one size, at most `N` of them.
pub struct Kept<const N: usize> {
    /// Which of the sizes it is.
    size: usize,
    pub bytes: usize,
    places: [Mutex<Option<AlignedBuf>>; N],
}

thread_local! {
    /// Where the thread last took or put a buffer. It takes downwards from there and puts upwards, so that it gets again what it
    /// had before, which its core has in its caches.
    static LAST: [Cell<usize>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

impl<const N: usize> Kept<N> {
    /// Buffers of so many bytes: as many as lines and patches mostly take.
    const fn of(size: usize, bytes: usize) -> Self {
        Kept { size, bytes, places: [const { Mutex::new(None) }; N] }
    }

    /// One that was given, with whatever is in it; a new one where there is none. `None` where there is no memory.
    pub fn take(&self) -> Option<AlignedBuf> {
        self.first((0..N).map(|i| N - i), |place| place.take()).or_else(|| AlignedBuf::uncounted(self.bytes))
    }

    /// Keeps `buffer` for another task, as long as there is a place for it.
    pub fn give(&self, buffer: AlignedBuf) {
        let mut buffer = Some(buffer);
        self.first(0..N, |place| place.is_none().then(|| *place = buffer.take()));
    }

    /// What `look` finds in the first place that it finds something in, so far from the thread's last one. A place that
    /// another thread looks at is passed by.
    fn first<T>(
        &self,
        mut from_last: impl Iterator<Item = usize>,
        mut look: impl FnMut(&mut Option<AlignedBuf>) -> Option<T>,
    ) -> Option<T> {
        let last = LAST.try_with(|last| last[self.size].get()).unwrap_or(0);
        from_last.find_map(|from_last| {
            let place = (last + from_last) % N;
            let found = look(&mut *open(self.places.get(place)?)?)?;
            let _ = LAST.try_with(|last| last[self.size].set(place)); // a thread that ends needs none
            Some(found)
        })
    }
}

fn open(place: &Mutex<Option<AlignedBuf>>) -> Option<MutexGuard<'_, Option<AlignedBuf>>> {
    match place.try_lock() {
        Ok(place) => Some(place),
        Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held<const N: usize>(kept: &Kept<N>) -> usize {
        kept.places.iter().filter(|place| place.lock().unwrap().is_some()).count()
    }

    #[test]
    fn there_are_as_many_as_are_needed_at_once_whatever_threads_need_them() {
        let kept = Kept::<4>::of(0, 1000);
        for _ in 0..20 {
            let [one, other] = [(); 2].map(|()| kept.take().unwrap());
            assert_ne!(one.as_ptr(), other.as_ptr());
            std::thread::scope(|scope| {
                // Each thread lives on after its task, as those of connections do.
                let (kept, one, other) = (&kept, one, other);
                scope.spawn(move || kept.give(one));
                scope.spawn(move || kept.give(other));
            });
            assert_eq!(held(&kept), 2);
        }
        let many: Vec<_> = (0..9).map(|_| kept.take().unwrap()).collect();
        assert_eq!(held(&kept), 0);
        many.into_iter().for_each(|buffer| kept.give(buffer));
        assert_eq!(held(&kept), 4, "no more than there are places for");
    }

    #[test]
    fn a_thread_has_what_it_had_before() {
        let kept = Kept::<4>::of(0, 1000);
        let others = [(); 2].map(|()| kept.take().unwrap());
        let own = [(); 2].map(|()| kept.take().unwrap());
        let places = own.each_ref().map(|buffer| buffer.as_ptr() as usize);
        std::thread::scope(|scope| {
            let kept = &kept;
            scope.spawn(move || others.into_iter().for_each(|buffer| kept.give(buffer)));
        });
        own.into_iter().for_each(|buffer| kept.give(buffer));
        for _ in 0..3 {
            let [last, first] = [(); 2].map(|()| kept.take().unwrap());
            assert_eq!([first.as_ptr() as usize, last.as_ptr() as usize], places);
            kept.give(first);
            kept.give(last);
        }
    }
}
