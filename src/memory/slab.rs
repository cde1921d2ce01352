//! Buffers that live and die together, as a model's weights do, and the making of their pages ahead of who fills them.

use super::aligned::AlignedBuf;
use super::zeroed::{Divided, HALF, HUGE};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Makes buffers side by side, so that they fill huge pages where the kernel has such: touching a page for the first time
/// takes longer than filling it.
#[derive(Default)]
pub struct Slab {
    pages: Option<Mutex<Divided>>,
    /// Told when buffers were taken, and when no more will be.
    taken: Condvar,
    /// Those that others may have as well.
    known: Mutex<HashMap<Origin, Arc<AlignedBuf>>>,
}

/// Numbers that tell how a buffer's bytes came from others.
pub const FORM: usize = 6;
/// What a buffer was made of: where that lies and how long it is, and how.
pub type Origin = ((usize, usize), [usize; FORM]);

/// Pages are made as far ahead as this. What was made and not taken is given back, but is on nobody's account until then.
const AHEAD: usize = 3 * HUGE;

impl Slab {
    /// For buffers of about `expected` bytes together. Pages that nobody touches take no memory.
    pub fn new(expected: usize) -> Self {
        let pages = Some(expected).filter(|&bytes| bytes >= HALF).and_then(Divided::new).map(Mutex::new);
        Slab { pages, ..Slab::default() }
    }

    /// The buffer that was made of the same before.
    pub fn known(&self, origin: &Origin) -> Option<Arc<AlignedBuf>> {
        lock(&self.known).get(origin).cloned()
    }

    /// Has others have this buffer, too. What it is made of must stay where it is for as long as the slab lives.
    pub fn remember(&self, origin: Origin, buffer: Arc<AlignedBuf>) {
        lock(&self.known).insert(origin, buffer);
    }

    /// `len` zeroed bytes; `None` where the memory cannot be had.
    pub fn zeroed(&self, len: usize) -> Option<AlignedBuf> {
        let Some(pages) = &self.pages else { return AlignedBuf::zeroed(len) };
        let mut pages = lock(pages);
        let (before, _) = pages.used();
        let buffer = AlignedBuf::of(&mut pages, len);
        if before / HUGE != pages.used().0 / HUGE {
            self.taken.notify_one();
        }
        buffer
    }

    /// Does `work`, which takes buffers, while a thread of its own has the kernel make their pages: clearing them takes
    /// about as long as filling them.
    pub fn filled_by<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(pages) = self.pages.as_ref().filter(|pages| lock(pages).used().1 > HUGE) else {
            return work();
        };
        let ended = Mutex::new(false);
        std::thread::scope(|scope| {
            let ahead = || self.make_ahead(pages, &ended);
            // Where there is no thread to be had, pages are made as they are filled.
            let helper = Builder::new().name("nnhal-pages".into()).spawn_scoped(scope, ahead);
            let end = End { slab: self, ended: &ended, pages };
            let done = work();
            drop((end, helper));
            done
        })
    }

    fn make_ahead(&self, divided: &Mutex<Divided>, ended: &Mutex<bool>) {
        let pages = lock(divided).pages();
        // Who fills the first page makes it, too.
        let mut made = HUGE;
        loop {
            let mut divided = lock(divided);
            let (used, len) = loop {
                let (used, len) = divided.used();
                if *lock(ended) {
                    return divided.trim(made.min(len));
                }
                if made >= len || made < used.saturating_add(AHEAD) {
                    break (used, len);
                }
                divided = self.taken.wait(divided).unwrap_or_else(PoisonError::into_inner);
            };
            drop(divided);
            // A page that is being filled is made already, or about to be.
            made = made.max(used.next_multiple_of(HUGE));
            let part = made..made.saturating_add(HUGE).min(len);
            if part.is_empty() || !pages.make(part.clone()) {
                return;
            }
            made = part.end;
        }
    }
}

/// Has the helper end, also where the work panics.
struct End<'a> {
    slab: &'a Slab,
    ended: &'a Mutex<bool>,
    pages: &'a Mutex<Divided>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let _pages = lock(self.pages);
        *lock(self.ended) = true;
        self.slab.taken.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_side_by_side_are_as_good_as_others() {
        for expected in [0, 2 * HALF] {
            let slab = Slab::new(expected);
            // The last ones do not fit any more.
            let lengths = [0, 1, 64, 65, HALF, HALF / 2, HALF / 2, 2 * HALF];
            let mut buffers = lengths.map(|len| slab.zeroed(len).unwrap());
            drop(slab);
            for (i, (buffer, len)) in buffers.iter_mut().zip(lengths).enumerate() {
                assert_eq!((buffer.len(), buffer.as_ptr() as usize % 64), (len, 0));
                assert!(buffer.iter().all(|&b| b == 0));
                buffer.fill(i as u8 + 1);
            }
            for (i, buffer) in buffers.into_iter().enumerate() {
                assert!(buffer.iter().all(|&b| b == i as u8 + 1));
            }
            assert!(Slab::new(expected).zeroed(usize::MAX / 2).is_none());
            assert!(Slab::new(expected).zeroed(usize::MAX).is_none());
        }
    }

    #[test]
    fn what_is_made_ahead_is_zero_and_stays_as_it_is_filled() {
        for (expected, lengths) in
            [(9 * HUGE + HALF, [HUGE + 64, HUGE / 2, 3 * HUGE, 2 * HUGE]), (4 * HUGE, [64; 4])]
        {
            let slab = Slab::new(expected);
            let mut buffers = slab.filled_by(|| {
                let fill = |(i, &len): (usize, &usize)| {
                    let mut buffer = slab.zeroed(len).unwrap();
                    assert!(buffer.iter().all(|&b| b == 0));
                    buffer.fill(i as u8 + 1);
                    buffer
                };
                lengths.iter().enumerate().map(fill).collect::<Vec<_>>()
            });
            buffers.push(slab.zeroed(HUGE).unwrap());
            drop(slab);
            for (i, buffer) in buffers.iter().enumerate() {
                let byte = if i < lengths.len() { i as u8 + 1 } else { 0 };
                assert!(buffer.iter().all(|&b| b == byte), "{i}");
            }
        }
    }
}
