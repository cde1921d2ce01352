//! The loops that all elementwise kernels share: one input, or several that broadcast, and a function of an element of
//! each.

use super::super::kernel::{elements, input, output};
use super::super::vector::{Level, Loop};
use super::super::{Elementwise, Kernel, Tiled, Work};
use super::broadcast::Broadcast;
use super::functions::{Element, OfTwo};
use super::in_place::{repeat, Before, Behind, InPlace, OfOne, Repeated, STRETCH};
use crate::memory::{Target, View};
use crate::ops::{Args, OpError};
use std::marker::PhantomData;

/// Output 0 as `f` of input 0.
struct Map<S, T, F> {
    level: Level,
    f: F,
    /// Time that an element takes, about.
    picoseconds: usize,
    types: PhantomData<fn(S) -> T>,
}

impl<S: Element, T: Element, F: Fn(S) -> T + Send + Sync> Kernel for Map<S, T, F> {
    fn name(&self) -> String {
        format!("elementwise {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (from, out) = (input::<S>(inputs, 0)?, output::<T>(outputs, 0)?);
        let chunk = work.per_task(out.len(), self.picoseconds, size_of::<S>() + size_of::<T>());
        work.for_each_chunk(out, chunk, |first, to| {
            self.level.run(MapLoop { from: from.part(first, to.len()), to, f: &self.f });
        })
    }

    fn picoseconds(&self) -> usize {
        self.picoseconds
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        (size_of::<S>() == size_of::<T>()).then_some(self)
    }

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }

    fn tiled(&self) -> Option<&dyn Tiled> {
        Some(self)
    }
}

impl<S: Element, T: Element, F: Fn(S) -> T + Send + Sync> Tiled for Map<S, T, F> {
    fn tile(&self, inputs: &[Option<View<u8>>], out: &mut Target<u8>) -> Result<(), OpError> {
        let (from, to) = (input::<S>(inputs, 0)?, elements::<T>(out)?);
        self.level.run(MapLoop { from, to, f: &self.f });
        Ok(())
    }
}

struct MapLoop<'a, S, T, F> {
    from: View<'a, S>,
    to: Target<'a, T>,
    f: &'a F,
}

impl<S: Element, T: Element, F: Fn(S) -> T> Loop for MapLoop<'_, S, T, F> {
    #[inline(always)]
    fn run(mut self) {
        let len = self.to.len();
        let (from, to) = (self.from.pointer(0, len), self.to.pointer(0, len));
        for i in 0..len {
            // SAFETY: `len` elements of both were asked for.
            unsafe { to.add(i).write_unaligned((self.f)(from.add(i).read_unaligned())) };
        }
    }
}

/// Output 0 as `f` of inputs 0 and 1, which broadcast.
struct Zip<S, T, F> {
    level: Level,
    walk: Broadcast<2>,
    f: F,
    /// Time that an element takes, about.
    picoseconds: usize,
    types: PhantomData<fn(S) -> T>,
}

impl<S: Element, T: Element, F: OfTwo<S, T>> Kernel for Zip<S, T, F> {
    fn name(&self) -> String {
        format!("elementwise {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (a, b, out) = (input::<S>(inputs, 0)?, input::<S>(inputs, 1)?, output::<T>(outputs, 0)?);
        let chunk = work.per_task(out.len(), self.picoseconds, 2 * size_of::<S>() + size_of::<T>());
        work.for_each_chunk(out, chunk, |first, to| {
            self.level.run(ZipLoop { walk: &self.walk, first, a, b, to, f: &self.f });
        })
    }

    fn picoseconds(&self) -> usize {
        self.picoseconds
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        let goes_on = self.walk.is_even() || self.walk.repeated().is_some();
        (size_of::<S>() == size_of::<T>() && goes_on).then_some(self)
    }

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }

    fn tiled(&self) -> Option<&dyn Tiled> {
        Some(self)
    }
}

impl<S: Element, T: Element, F: OfTwo<S, T>> Tiled for Zip<S, T, F> {
    fn tile(&self, inputs: &[Option<View<u8>>], out: &mut Target<u8>) -> Result<(), OpError> {
        let (a, b, to) = (input::<S>(inputs, 0)?, input::<S>(inputs, 1)?, elements::<T>(out)?);
        self.level.run(ZipLoop { walk: &self.walk, first: 0, a, b, to, f: &self.f });
        Ok(())
    }
}

struct ZipLoop<'a, S, T, F> {
    walk: &'a Broadcast<2>,
    first: usize,
    a: View<'a, S>,
    b: View<'a, S>,
    to: Target<'a, T>,
    f: &'a F,
}

impl<S: Element, T: Element, F: OfTwo<S, T>> Loop for ZipLoop<'_, S, T, F> {
    #[inline(always)]
    fn run(mut self) {
        let (len, going, f) = (self.to.len(), self.walk.going(), self.f);
        if let Some(row) = self.walk.repeated().filter(|&row| row <= STRETCH / 2) {
            return self.run_repeated(row);
        }
        for (at, [a, b], n) in self.walk.runs(self.first, len) {
            let to = self.to.pointer(at - self.first, n);
            let lengths = going.map(|going| if going { n } else { 1 });
            let (a, b) = (self.a.pointer(a, lengths[0]), self.b.pointer(b, lengths[1]));
            // SAFETY: as many elements were asked for as are used: all of who goes along, one of who stands still.
            let read = |from: *const S, i| unsafe { from.add(i).read_unaligned() };
            // SAFETY: as above.
            let put = |i, element| unsafe { to.add(i).write_unaligned(element) };
            match going {
                // SAFETY: `n` of each were asked for.
                [true, true] => unsafe { f.along(n, [a, b], to) },
                [_, true] => {
                    let a = read(a, 0);
                    f.run(n, |i| (a, read(b, i)), put);
                }
                [_, false] => {
                    // Where both stand still there is but one element.
                    let b = read(b, 0);
                    f.run(n, |i| (read(a, i), b), put);
                }
            }
        }
    }
}

impl<S: Element, T: Element, F: OfTwo<S, T>> ZipLoop<'_, S, T, F> {
    /// The same where input 1 has `row` elements, few, which are repeated.
    #[inline(always)]
    fn run_repeated(mut self, row: usize) {
        let (len, f) = (self.to.len(), self.f);
        let (a, b, to) = (self.a.pointer(self.first, len), self.b.pointer(0, row), self.to.pointer(0, len));
        let mut repeated = [S::zeroed(); STRETCH];
        let whole = STRETCH / row * row;
        // SAFETY: there are `row` elements.
        unsafe { repeat(&mut repeated[..whole.min(len)], b, row, self.first % row) };
        for at in (0..len).step_by(whole) {
            let n = whole.min(len - at);
            // SAFETY: `len` elements of input and output were asked for, and there are no more than the stretch has.
            unsafe { f.along(n, [a.wrapping_add(at), repeated.as_ptr()], to.wrapping_add(at)) };
        }
    }
}

impl<S: Element, T: Element, F: Fn(S) -> T + Send + Sync> Elementwise for Map<S, T, F> {
    fn inputs(&self) -> usize {
        1
    }

    fn go_on(&self, made: &mut [u8], _: usize, _: usize, _: Option<View<u8>>) -> Result<(), OpError> {
        self.level.run(InPlace { made, of: OfOne(&self.f), types: PhantomData });
        Ok(())
    }
}

impl<S: Element, T: Element, F: OfTwo<S, T>> Elementwise for Zip<S, T, F> {
    fn inputs(&self) -> usize {
        2
    }

    fn goes_on_with(&self, own: usize) -> bool {
        own == 0 || (own == 1 && self.walk.is_even())
    }

    fn go_on(
        &self,
        made: &mut [u8],
        first: usize,
        own: usize,
        other: Option<View<u8>>,
    ) -> Result<(), OpError> {
        let other = other.and_then(View::elements::<S>).ok_or(OpError::Unresolved)?;
        if let Some(row) = self.walk.repeated() {
            let (other, at) = (other.pointer(0, row), first % row);
            self.level.run(Repeated { made, f: &self.f, other, row, at, types: PhantomData });
            return Ok(());
        }
        let other = other.pointer(first, made.len() / size_of::<S>());
        match own {
            0 => self.level.run(InPlace { made, of: Before(&self.f, other), types: PhantomData }),
            _ => self.level.run(InPlace { made, of: Behind(&self.f, other), types: PhantomData }),
        }
        Ok(())
    }
}

/// A kernel that gives `f` of input 0.
pub fn map<S: Element, T: Element>(
    picoseconds: usize,
    f: impl Fn(S) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    Some(Box::new(Map { level: Level::detect(), f, picoseconds, types: PhantomData }))
}

/// A kernel that gives `f` of inputs 0 and 1, which broadcast.
pub fn zip<S: Element, T: Element>(
    args: &Args,
    picoseconds: usize,
    f: impl OfTwo<S, T> + 'static,
) -> Option<Box<dyn Kernel>> {
    let inputs = [args.get(0).ok()?.dims(), args.get(1).ok()?.dims()];
    let walk = Broadcast::new(&args.output(0).ok()?.dims, inputs)?;
    Some(Box::new(Zip { level: Level::detect(), walk, f, picoseconds, types: PhantomData }))
}
