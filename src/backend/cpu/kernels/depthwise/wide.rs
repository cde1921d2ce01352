//! Filters of three by three cells in AVX-512 with its neural network instructions, sixty-four channels at a time: quads
//! of as many channels are made by two instructions each, and the bytes of a pixel come out in their order.
//!
//! What makes quads leaves channels in an order of its own ([`Order::Wide`]), in which weights, bias and constants are packed.
//! Pixels are made two at a time, and two rows of them where a quad has all that is under both.

use super::super::gemm::{lanes_512, Bounds, Lanes, Scales};
use super::super::simd::Avx512;
use super::layout::{Order, GROUP as CHANNELS, QUAD, ROWS};
use super::packed::Depthwise;
use super::quads::Line;
use crate::ops::conv::DepthwiseGeometry;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Vectors of the sums of a group of channels.
const VECTORS: usize = 4;
/// Columns of a filter.
const TAPS: usize = 3;
/// Columns of quads that are made at once: those of two rows of outputs stay in the first cache.
const MAX_COLUMNS: usize = 66;

/// Whether there are filters of that form; `is_plain`: weights have no zero point, and the filter is not an image.
pub fn fits(geometry: &DepthwiseGeometry, is_plain: bool) -> bool {
    let (height, width) = (&geometry.height, &geometry.width);
    let shape = (height.kernel, width.kernel, height.dilation, width.dilation);
    // Two rows are made of a quad where rows follow each other, and then columns have to, too.
    let strides = [(1, 1), (2, 2)].contains(&(height.stride, width.stride));
    shape == (3, TAPS, 1, 1) && is_plain && geometry.multiplier == 1 && strides
}

/// Some pixels of a row of outputs, or of two of them.
pub struct Wide<'a> {
    pub kernel: &'a Depthwise,
    /// What lies under the first pixel and all after it, padding left out.
    pub lines: [Option<Line>; ROWS],
    /// Which columns those are of all that are under the pixels.
    pub inside: Range<usize>,
    /// Where channel 0 of the first pixel goes, and how far it is to the row below.
    pub to: *mut u8,
    pub below: usize,
}

/// Quads of columns: the vectors of one beside each other.
#[repr(align(64))]
struct Columns([MaybeUninit<[__m512i; VECTORS]>; MAX_COLUMNS]);

/// What a group of channels is multiplied, summed up and scaled with.
struct Group<'a> {
    /// Quads of weights, `[vector][row of outputs][tap]`.
    weights: *const i8,
    bias: *const i32,
    scales: [Scales; VECTORS],
    bounds: Bounds<__m512i, __m512>,
    wide: &'a Wide<'a>,
    channel: usize,
    channels: usize,
}

impl Wide<'_> {
    /// Computes `count` pixels of one or two rows for the sixty-four channels from `channel` on.
    ///
    /// # Safety
    /// The machine must have the instruction set; lines must be whole, and so many pixels of all channels be at `to`, and
    /// below it if two rows are made.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub unsafe fn make(&self, channel: usize, made: usize, count: usize) {
        let (kernel, geometry) = (self.kernel, &self.kernel.geometry);
        let (requant, first) = (&kernel.requant, channel / 16);
        let scales = std::array::from_fn(|i| requant.scales(first + i));
        let quads = VECTORS * kernel.rows * TAPS;
        // SAFETY: by contract; there are as many weights and sums of bias.
        unsafe {
            let target = Avx512::target(requant.target);
            let group = Group {
                weights: kernel.weights.elements(channel / CHANNELS * quads * QUAD, quads * QUAD),
                bias: kernel.bias.elements(channel, CHANNELS),
                scales,
                bounds: target.bounds(),
                wide: self,
                channel,
                channels: geometry.input.channels,
            };
            match (made, geometry.width.stride, Avx512::is_one_sided(&target)) {
                (1, 1, false) => group.rows::<1, 1, false>(count),
                (1, 1, true) => group.rows::<1, 1, true>(count),
                (1, _, false) => group.rows::<1, 2, false>(count),
                (1, _, true) => group.rows::<1, 2, true>(count),
                (_, _, false) => group.rows::<2, 1, false>(count),
                (_, _, true) => group.rows::<2, 1, true>(count),
            }
        }
    }
}

impl Group<'_> {
    /// # Safety
    /// As for [`Wide::make`].
    #[inline(always)]
    unsafe fn rows<const MADE: usize, const STRIDE: usize, const ONE_SIDED: bool>(&self, count: usize) {
        let most = (MAX_COLUMNS - TAPS) / STRIDE + 1;
        let mut columns = Columns([MaybeUninit::uninit(); MAX_COLUMNS]);
        for first in (0..count).step_by(most) {
            let pixels = most.min(count - first);
            // SAFETY: by contract; all columns are filled that are read.
            unsafe {
                self.fill(first * STRIDE, &mut columns.0[..(pixels - 1) * STRIDE + TAPS]);
                let quads = columns.0.as_ptr().cast();
                if pixels == 1 {
                    self.pixels::<MADE, STRIDE, 1, ONE_SIDED>(quads, first);
                    continue;
                }
                for at in (0..pixels).step_by(2) {
                    // Where one is left, the one before it is made again.
                    let at = at.min(pixels - 2);
                    self.pixels::<MADE, STRIDE, 2, ONE_SIDED>(quads.add(at * STRIDE), first + at);
                }
            }
        }
    }

    /// Makes the quads of columns from `first` on.
    ///
    /// # Safety
    /// As for [`Wide::make`]; there must be as many columns.
    #[inline(always)]
    unsafe fn fill(&self, first: usize, columns: &mut [MaybeUninit<[__m512i; VECTORS]>]) {
        let (input, inside) = (self.wide.kernel.input, &self.wide.inside);
        let padding = [input.zero ^ input.flip; CHANNELS];
        let beside = (padding.as_ptr(), 0);
        let lines = self
            .wide
            .lines
            .map(|line| line.map_or(beside, |(line, step)| (line.wrapping_add(self.channel), step)));
        for (i, column) in columns.iter_mut().enumerate() {
            let at = first + i;
            let rows = match inside.contains(&at) {
                true => lines.map(|(line, step)| line.wrapping_add((at - inside.start) * step)),
                false => [padding.as_ptr(); ROWS],
            };
            // SAFETY: by contract; sixty-four channels of a column inside of the rows, or padding.
            column.write(unsafe { interleave(rows, input.flip) });
        }
    }

    /// Computes `P` pixels of `MADE` rows, of the quads of their columns.
    ///
    /// # Safety
    /// As for [`Wide::make`]; the quads must be filled.
    #[inline(always)]
    unsafe fn pixels<const MADE: usize, const STRIDE: usize, const P: usize, const ONE_SIDED: bool>(
        &self,
        quads: *const [__m512i; VECTORS],
        first: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let a = self.sums::<MADE, STRIDE, P>(quads, 0);
            let b = self.sums::<MADE, STRIDE, P>(quads, 1);
            let c = self.sums::<MADE, STRIDE, P>(quads, 2);
            let d = self.sums::<MADE, STRIDE, P>(quads, 3);
            // Written out, as sums that are indexed by a variable would be kept in memory all along.
            macro_rules! store {
                ($(($row:literal $pixel:literal))*) => {
                    $(if $row < MADE && $pixel < P {
                        let (row, pixel) = ($row.min(MADE - 1), $pixel.min(P - 1));
                        let sums = [a[row][pixel], b[row][pixel], c[row][pixel], d[row][pixel]];
                        self.store::<ONE_SIDED>(sums, row * self.wide.below + (first + pixel) * self.channels);
                    })*
                };
            }
            store!((0 0)(0 1)(1 0)(1 1));
        }
    }

    /// The sums of a vector of channels.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn sums<const MADE: usize, const STRIDE: usize, const P: usize>(
        &self,
        quads: *const [__m512i; VECTORS],
        vector: usize,
    ) -> [[__m512i; P]; MADE] {
        // SAFETY: by contract.
        unsafe {
            let weights = self.weights.add(vector * self.wide.kernel.rows * TAPS * QUAD);
            let mut sums = [[_mm512_loadu_si512(self.bias.add(vector * 16).cast()); P]; MADE];
            // Of any stride and number of pixels.
            for column in 0..2 + TAPS {
                if column >= (P - 1) * STRIDE + TAPS {
                    break;
                }
                let quad = _mm512_loadu_si512(quads.add(column).cast::<__m512i>().add(vector).cast());
                for pixel in 0..P {
                    if column < pixel * STRIDE || column - pixel * STRIDE >= TAPS {
                        continue;
                    }
                    let tap = column - pixel * STRIDE;
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let weights = _mm512_loadu_si512(weights.add((row * TAPS + tap) * QUAD).cast());
                        sums[pixel] = _mm512_dpbusd_epi32(sums[pixel], quad, weights);
                    }
                }
            }
            sums
        }
    }

    /// Stores the bytes of a pixel, so many bytes after channel 0 of the first one.
    ///
    /// # Safety
    /// As for [`Wide::make`].
    #[inline(always)]
    unsafe fn store<const ONE_SIDED: bool>(&self, sums: [__m512i; VECTORS], at: usize) {
        let to = self.wide.to.wrapping_add(at + self.channel);
        let [a, b, c, d] = self.scales;
        // SAFETY: by contract.
        unsafe {
            let bytes = match a.quick.is_null() {
                true => None,
                false => lanes_512::<ONE_SIDED>(sums, [a.quick, b.quick, c.quick, d.quick], self.bounds),
            };
            match bytes {
                Some(bytes) => _mm512_storeu_si512(to.cast(), bytes),
                None => self.exactly(sums, to),
            }
        }
    }

    /// The bytes of a pixel by the whole formula. It is far from the loops, which seldom need it.
    ///
    /// # Safety
    /// The machine must have the instruction set, and sixty-four bytes be at `to`.
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn exactly(&self, mut scaled: [__m512i; VECTORS], to: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            for (sums, scales) in scaled.iter_mut().zip(self.scales) {
                *sums = Avx512::requantise(*sums, scales);
            }
            let bytes = Avx512::pack(scaled, Avx512::target(self.wide.kernel.requant.target));
            for (place, byte) in bytes.into_iter().enumerate() {
                to.add(Order::Wide.at(place, CHANNELS)).write(byte);
            }
        }
    }
}

/// Sixty-four bytes of each of four rows as quads, each byte xored with `flip`.
///
/// # Safety
/// The machine must have AVX-512 BW, and there be as many bytes.
#[inline(always)]
unsafe fn interleave([a, b, c, d]: [*const u8; ROWS], flip: u8) -> [__m512i; VECTORS] {
    // SAFETY: by contract.
    unsafe {
        let flip = _mm512_set1_epi8(flip as i8);
        let a = _mm512_xor_si512(_mm512_loadu_si512(a.cast()), flip);
        let b = _mm512_xor_si512(_mm512_loadu_si512(b.cast()), flip);
        let c = _mm512_xor_si512(_mm512_loadu_si512(c.cast()), flip);
        let d = _mm512_xor_si512(_mm512_loadu_si512(d.cast()), flip);
        let (low, high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
        let (low_below, high_below) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
        [
            _mm512_unpacklo_epi16(low, low_below),
            _mm512_unpackhi_epi16(low, low_below),
            _mm512_unpacklo_epi16(high, high_below),
            _mm512_unpackhi_epi16(high, high_below),
        ]
    }
}
