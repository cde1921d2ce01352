//! Outputs of floats side by side: a weight is read once for all of them, and so is what lies under several of them where the
//! filter has a common shape.

use super::super::simd::Simd;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::image::Window;
use std::ops::Range;

/// What a row of the output is made of.
pub struct Line<'a> {
    pub geometry: &'a DepthwiseGeometry,
    /// Of the output.
    pub channels: usize,
    /// Those that are made.
    pub made: Range<usize>,
    /// Rows of the input under rows of taps, and their weights.
    pub lines: &'a [(*const f32, *const f32)],
    pub bias: *const f32,
}

impl Line<'_> {
    /// Computes `count` pixels from column `x` on, common shapes by code of their own.
    ///
    /// # Safety
    /// The machine must have the instruction set of `S`; pointers must be those of a row.
    #[inline(always)]
    pub unsafe fn pixels<S: Simd>(&self, x: usize, count: usize, to: *mut f32) {
        let window = &self.geometry.width;
        // SAFETY: the same contract.
        unsafe {
            match (window.kernel, window.stride, is_usual(window)) {
                (3, 1, true) => self.shaped::<S, 3, 1>(x, count, to),
                (3, 2, true) => self.shaped::<S, 3, 2>(x, count, to),
                (5, 1, true) => self.shaped::<S, 5, 1>(x, count, to),
                (5, 2, true) => self.shaped::<S, 5, 2>(x, count, to),
                _ => self.any::<S>(x, count, to),
            }
        }
    }

    /// Computes pixels of a filter of `TAPS` columns that goes on by `STRIDE`, as [usual](is_usual).
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn shaped<S: Simd, const TAPS: usize, const STRIDE: usize>(
        &self,
        x: usize,
        count: usize,
        to: *mut f32,
    ) {
        let mut done = 0;
        while done < count {
            let (left, to) = (count - done, to.wrapping_add(done * self.channels));
            // SAFETY: by contract, as many pixels are left.
            done += unsafe {
                if const { S::IS_ARRAY } {
                    match left {
                        4.. => self.few_shaped::<S, 4, TAPS, STRIDE>(x + done, to),
                        _ => self.few_shaped::<S, 1, TAPS, STRIDE>(x + done, to),
                    }
                } else {
                    match left {
                        // Seven divide the widths of most images.
                        8.. if left % 7 != 0 => self.few_shaped::<S, 8, TAPS, STRIDE>(x + done, to),
                        7.. => self.few_shaped::<S, 7, TAPS, STRIDE>(x + done, to),
                        4.. => self.few_shaped::<S, 4, TAPS, STRIDE>(x + done, to),
                        2.. => self.few_shaped::<S, 2, TAPS, STRIDE>(x + done, to),
                        _ => self.few_shaped::<S, 1, TAPS, STRIDE>(x + done, to),
                    }
                }
            };
        }
    }

    /// Computes `N` pixels from column `x` on, of a filter as for [`Self::shaped`]; gives `N`.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn few_shaped<S: Simd, const N: usize, const TAPS: usize, const STRIDE: usize>(
        &self,
        x: usize,
        to: *mut f32,
    ) -> usize {
        let (window, cells) = (&self.geometry.width, (N - 1) * STRIDE + TAPS);
        let first = (x * STRIDE).wrapping_sub(window.pad_before);
        let before = window.pad_before.saturating_sub(x * STRIDE);
        let inside = before..(window.input + window.pad_before - x * STRIDE).min(cells);
        // SAFETY: the same contract; taps beside the input are left out. What is rare is made as if it were at an edge: code of
        // its own would take the compiler longer than it is worth.
        unsafe {
            if const { N >= 4 } && inside == (0..cells) {
                self.vectors::<S, N, _>(first, &Shape::<TAPS, STRIDE, false> { inside: inside.clone() }, to);
            } else {
                self.vectors::<S, N, _>(first, &Shape::<TAPS, STRIDE, true> { inside: inside.clone() }, to);
            }
            self.last::<S, N, _>(first, &Shape::<TAPS, STRIDE, true> { inside }, to);
        }
        N
    }

    /// Computes pixels of a filter of any shape.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn any<S: Simd>(&self, x: usize, count: usize, to: *mut f32) {
        let window = &self.geometry.width;
        let mut done = 0;
        while done < count {
            let taps = window.taps(x + done);
            // Neighbours whose taps all fall on the input go together.
            let alike = |n: usize| {
                n <= count - done
                    && taps.len() == window.kernel
                    && window.taps(x + done + n - 1).len() == window.kernel
            };
            let first = if taps.is_empty() { 0 } else { window.cell(x + done, taps.start) };
            let to = to.wrapping_add(done * self.channels);
            let (is_eight, is_four, is_two) = (alike(8), alike(4), alike(2));
            let any = Any { taps, stride: window.stride, dilation: window.dilation };
            // SAFETY: by contract, as many pixels are left.
            done += unsafe {
                if is_eight {
                    self.together::<S, 8, _>(first, &any, to)
                } else if is_four {
                    self.together::<S, 4, _>(first, &any, to)
                } else if is_two {
                    self.together::<S, 2, _>(first, &any, to)
                } else {
                    self.together::<S, 1, _>(first, &any, to)
                }
            };
        }
    }

    /// Computes `N` pixels, which have the same `taps`, the first of them at the cell `first` of a line; gives `N`.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn together<S: Simd, const N: usize, T: Taps>(
        &self,
        first: usize,
        taps: &T,
        to: *mut f32,
    ) -> usize {
        // SAFETY: the same contract.
        unsafe {
            self.vectors::<S, N, T>(first, taps, to);
            self.last::<S, N, T>(first, taps, to);
        }
        N
    }

    /// Computes the channels of such pixels that are whole vectors.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn vectors<S: Simd, const N: usize, T: Taps>(&self, first: usize, taps: &T, to: *mut f32) {
        let at = first.wrapping_mul(self.channels);
        for c in (self.made.start..self.after_vectors::<S>()).step_by(S::LANES) {
            // SAFETY: by contract; a vector of channels is left.
            unsafe { self.vector::<S, N, true, T>(at, c, S::LANES, taps, to) };
        }
    }

    /// Computes the channels of such pixels that are less than a vector.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn last<S: Simd, const N: usize, T: Taps>(&self, first: usize, taps: &T, to: *mut f32) {
        let (at, c) = (first.wrapping_mul(self.channels), self.after_vectors::<S>());
        if c < self.made.end {
            // SAFETY: by contract; as many channels are left.
            unsafe { self.vector::<S, N, false, T>(at, c, self.made.end - c, taps, to) };
        }
    }

    /// The first channel that is made and in no whole vector.
    #[inline(always)]
    fn after_vectors<S: Simd>(&self) -> usize {
        self.made.end - (self.made.end - self.made.start) % S::LANES
    }

    /// Computes `n` channels from channel `c` on: a vector, if it is `WHOLE`, or fewer. The first tap is at element `at`.
    ///
    /// # Safety
    /// As for [`Self::pixels`]; there must be so many channels.
    #[inline(always)]
    unsafe fn vector<S: Simd, const N: usize, const WHOLE: bool, T: Taps>(
        &self,
        at: usize,
        c: usize,
        n: usize,
        taps: &T,
        to: *mut f32,
    ) {
        let (channels, activation) = (self.channels, self.geometry.activation);
        // SAFETY: by contract.
        unsafe {
            let mut sums = [load::<S, WHOLE>(self.bias.add(c), n); N];
            for &(line, weights) in self.lines {
                let row = (line.wrapping_add(at).wrapping_add(c), weights.add(c));
                taps.add::<S, N, WHOLE>(&mut sums, row, channels, n);
            }
            let (lo, hi) = activation.float_range();
            let (lo, hi) = (S::splat(lo), S::splat(hi));
            for (i, &sum) in sums.iter().enumerate() {
                let (to, made) = (to.add(i * channels + c), S::clamp(sum, lo, hi));
                match WHOLE {
                    true => S::store(to, made),
                    false => S::store_some(to, made, n),
                }
            }
        }
    }
}

/// Whether no output lies beside the input as a whole, and taps lie side by side.
fn is_usual(window: &Window) -> bool {
    let last = (window.output - 1) * window.stride;
    window.dilation == 1 && window.pad_before < window.kernel && last < window.input + window.pad_before
}

/// The columns of a filter that neighbours have.
trait Taps {
    /// Adds a row of taps to the sums of neighbours: of what is under the first tap of the first one, and of the first of the
    /// row's weights.
    ///
    /// # Safety
    /// The machine must have the instruction set of `S`; there must be the cells of all neighbours that are not beside the
    /// input, and weights of all taps.
    unsafe fn add<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        sums: &mut [S::F; N],
        row: (*const f32, *const f32),
        channels: usize,
        n: usize,
    );
}

/// Any, all of which are on the input.
struct Any {
    taps: Range<usize>,
    stride: usize,
    dilation: usize,
}

impl Taps for Any {
    #[inline(always)]
    unsafe fn add<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        sums: &mut [S::F; N],
        (mut from, weights): (*const f32, *const f32),
        channels: usize,
        n: usize,
    ) {
        let mut weights = weights.wrapping_add(self.taps.start * channels);
        for _ in self.taps.clone() {
            // SAFETY: by contract.
            unsafe {
                let weight = load::<S, WHOLE>(weights, n);
                for (i, sum) in sums.iter_mut().enumerate() {
                    let cell = load::<S, WHOLE>(from.wrapping_add(i * self.stride * channels), n);
                    *sum = S::mul_add(cell, weight, *sum);
                }
            }
            from = from.wrapping_add(self.dilation.wrapping_mul(channels)); // behind the last it is not read
            weights = weights.wrapping_add(channels);
        }
    }
}

/// `TAPS` of neighbours that are `STRIDE` cells apart: each cell is loaded once for all sums that it is part of. Where neighbours
/// are at an `EDGE`, some of their cells are beside the input.
struct Shape<const TAPS: usize, const STRIDE: usize, const EDGE: bool> {
    /// Cells under the neighbours that are not beside the input.
    inside: Range<usize>,
}

impl<const TAPS: usize, const STRIDE: usize, const EDGE: bool> Taps for Shape<TAPS, STRIDE, EDGE> {
    #[inline(always)]
    unsafe fn add<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        sums: &mut [S::F; N],
        (from, weights): (*const f32, *const f32),
        channels: usize,
        n: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let mut row = [load::<S, WHOLE>(weights, n); TAPS];
            for (tap, weight) in row.iter_mut().enumerate().skip(1) {
                *weight = load::<S, WHOLE>(weights.add(tap * channels), n);
            }
            // Not a loop: the compiler would keep one of so many steps, and the sums in memory.
            macro_rules! add_cells {
                ($($i:literal)*) => {
                    $(self.add_cell::<S, N, WHOLE>($i, sums, &row, (from, channels), n);)*
                };
            }
            add_cells!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
        }
    }
}

impl<const TAPS: usize, const STRIDE: usize, const EDGE: bool> Shape<TAPS, STRIDE, EDGE> {
    /// Adds cell `i`, if there is one, to all sums that it is part of.
    ///
    /// # Safety
    /// As for [`Taps::add`].
    #[inline(always)]
    unsafe fn add_cell<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        i: usize,
        sums: &mut [S::F; N],
        weights: &[S::F; TAPS],
        (from, channels): (*const f32, usize),
        n: usize,
    ) {
        let cells = (N - 1) * STRIDE + TAPS;
        // An output has a tap at least on the input, so that cells in the middle are.
        let may_be_beside = EDGE && (i + 1 < TAPS || i + TAPS > cells);
        if i >= cells || may_be_beside && !self.inside.contains(&i) {
            return;
        }
        // SAFETY: by contract.
        unsafe {
            let cell = match WHOLE {
                true => S::load_at(from, i * channels),
                false => S::load_some(from.wrapping_add(i * channels), n),
            };
            for (tap, &weight) in weights.iter().enumerate() {
                if i >= tap && (i - tap).is_multiple_of(STRIDE) && (i - tap) / STRIDE < N {
                    let sum = &mut sums[(i - tap) / STRIDE];
                    *sum = S::mul_add(cell, weight, *sum);
                }
            }
        }
    }
}

/// A vector, if it is `WHOLE`, or the first `n` elements of one.
///
/// # Safety
/// The machine must have the instruction set of `S`; there must be as many elements.
#[inline(always)]
unsafe fn load<S: Simd, const WHOLE: bool>(p: *const f32, n: usize) -> S::F {
    // SAFETY: by contract.
    unsafe {
        match WHOLE {
            true => S::load(p),
            false => S::load_some(p, n),
        }
    }
}
