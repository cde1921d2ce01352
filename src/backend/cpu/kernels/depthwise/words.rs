//! Filters of three or five cells a side in AVX2, sixteen channels at a time: what two rows of the input have for a channel are
//! two words, side by side, which are multiplied and added up by one instruction.
//!
//! To widen bytes and to pair rows leaves the second and the third four of sixteen channels swapped ([`Order::Words`]), and to
//! pack sums to bytes swaps them back. Weights of a pair of rows stay in registers while all columns go by. It knows nothing of
//! weights with a zero point, nor of cells that are apart.

use super::super::eight_bit::QuantInput;
use super::super::gemm::{lanes_256, Bounds, Lanes, Scales};
use super::super::simd::Avx2;
use super::layout::{Order, CHANNELS};
use super::packed::Depthwise;
use super::quads::Line;
use super::words_packing::{pairs, HALVES, PAIR, WORDS};
use crate::ops::conv::DepthwiseGeometry;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows under two rows of outputs, at the most: filters have fewer.
pub const ROWS: usize = 6;
/// Pixels that are made at once: what is under them stays in the first cache for all channels, of which sixteen are part of a
/// line there.
const MAX_PIXELS: usize = 28;
/// Columns under so many, of strides and filters that [fit](fits).
const MAX_COLUMNS: usize = (MAX_PIXELS - 1) * 2 + 5;

/// Whether there are filters of that form; `is_plain`: weights have no zero point, and the filter is not an image.
pub fn fits(geometry: &DepthwiseGeometry, is_plain: bool) -> bool {
    let (height, width) = (&geometry.height, &geometry.width);
    let is_side = |cells: usize| [3, 5].contains(&cells);
    let is_dense = (height.dilation, width.dilation, geometry.multiplier) == (1, 1, 1);
    is_plain && is_dense && is_side(height.kernel) && is_side(width.kernel) && width.stride <= 2
}

/// The number that the zero point of an input is: its bytes are widened as what they are, signed or not.
pub fn number(input: QuantInput) -> i32 {
    let byte = input.zero ^ input.flip;
    if is_signed(input) {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

fn is_signed(input: QuantInput) -> bool {
    input.flip != 0
}

/// Some pixels of a row of outputs, or of two of them.
pub struct Words<'a> {
    pub kernel: &'a Depthwise,
    /// What lies under the first pixel and all after it, padding left out.
    pub lines: &'a [Option<Line>],
    /// Which columns those are of all that are under the pixels.
    pub inside: Range<usize>,
    /// Where channel 0 of the first pixel goes, and how far it is to the row below.
    pub to: *mut u8,
    pub below: usize,
}

/// Words of columns, `[pair of rows][column]`.
#[repr(align(64))]
struct Columns([MaybeUninit<[__m256i; HALVES]>; ROWS / PAIR * MAX_COLUMNS]);

/// Sums of pixels.
#[repr(align(64))]
struct Sums([MaybeUninit<[__m256i; HALVES]>; MAX_PIXELS]);

/// Sixteen channels or fewer.
struct Block<'a> {
    words: &'a Words<'a>,
    pairs: usize,
    /// Columns of a pair of rows.
    columns: usize,
    channel: usize,
    /// Channels that there are.
    width: usize,
    scales: [Scales; 2],
    bounds: Bounds<__m256i, __m256>,
}

impl Words<'_> {
    /// Computes `count` pixels of one or two rows for some channels, of which the first is that of a block.
    ///
    /// # Safety
    /// The machine must have the instruction set; lines must be whole, and so many pixels of all channels be at `to`, and
    /// below it if two rows are made.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn make(&self, channels: Range<usize>, made: usize, count: usize) {
        let (kernel, geometry) = (self.kernel, &self.kernel.geometry);
        let (taps, stride, pairs) =
            (geometry.width.kernel, geometry.width.stride, pairs(geometry, kernel.rows));
        let mut all = Columns([MaybeUninit::uninit(); ROWS / PAIR * MAX_COLUMNS]);
        // SAFETY: by contract.
        let bounds = unsafe { Avx2::target(kernel.requant.target) }.bounds();
        for first in (0..count).step_by(MAX_PIXELS) {
            let pixels = first..count.min(first + MAX_PIXELS);
            let columns = (pixels.len() - 1) * stride + taps;
            for channel in channels.clone().step_by(CHANNELS) {
                let width = CHANNELS.min(channels.end - channel);
                let scales = [0, 1].map(|half| kernel.requant.scales(channel / CHANNELS * HALVES + half));
                let block = Block { words: self, pairs, columns, channel, width, scales, bounds };
                let to = &mut all.0[..pairs * columns];
                // SAFETY: by contract; all columns are filled that are read.
                unsafe {
                    match is_signed(kernel.input) {
                        true => block.fill::<true>(first * stride, to),
                        false => block.fill::<false>(first * stride, to),
                    }
                    for below in 0..made {
                        block.row(all.0.as_ptr().cast(), below, pixels.clone());
                    }
                }
            }
        }
    }
}

impl Block<'_> {
    /// Makes the words of all columns of each pair of rows, from column `first` on.
    ///
    /// # Safety
    /// As for [`Words::make`].
    #[inline(always)]
    unsafe fn fill<const SIGNED: bool>(&self, first: usize, columns: &mut [MaybeUninit<[__m256i; HALVES]>]) {
        let (input, inside) = (self.words.kernel.input, &self.words.inside);
        let padding = [input.zero ^ input.flip; CHANNELS];
        let beside = (padding.as_ptr(), 0);
        // SAFETY: padding is as long as a load.
        let of_padding = unsafe { paired::<SIGNED>([padding.as_ptr(); PAIR]) };
        let before = inside.start.saturating_sub(first).min(self.columns);
        let after = inside.end.saturating_sub(first).clamp(before, self.columns);
        // Of the columns that the lines have, how many come before those that are made.
        let left_out = first.saturating_sub(inside.start);
        for (pair, columns) in columns.chunks_exact_mut(self.columns).enumerate() {
            let line = |row: usize| {
                self.words.lines[row]
                    .map_or(beside, |(line, step)| (line.wrapping_add(self.channel + left_out * step), step))
            };
            let ((mut upper, step_of_upper), (mut lower, step_of_lower)) =
                (line(pair * PAIR), line(pair * PAIR + 1));
            columns[..before].fill(MaybeUninit::new(of_padding));
            columns[after..].fill(MaybeUninit::new(of_padding));
            for column in &mut columns[before..after] {
                // SAFETY: by contract; as many channels of a column inside of the rows, or padding.
                column.write(unsafe {
                    match self.width {
                        CHANNELS => paired::<SIGNED>([upper, lower]),
                        width => some_paired::<SIGNED>([upper, lower], width),
                    }
                });
                upper = upper.wrapping_add(step_of_upper);
                lower = lower.wrapping_add(step_of_lower);
            }
        }
    }

    /// Computes some pixels of a row of outputs: of the first of two, or of the one `below` it. The columns are those from under the
    /// first of the pixels on.
    ///
    /// # Safety
    /// As for [`Words::make`]; the columns must be filled.
    #[inline(always)]
    unsafe fn row(&self, columns: *const __m256i, below: usize, pixels: Range<usize>) {
        let (kernel, geometry) = (self.words.kernel, &self.words.kernel.geometry);
        let (taps, stride, channels) =
            (geometry.width.kernel, geometry.width.stride, geometry.input.channels);
        let row = HALVES * self.pairs * taps * WORDS;
        let at = (self.channel / CHANNELS * kernel.rows + below) * row;
        let weights = kernel.weights.elements::<i16>(at, row).cast();
        let bias = kernel.bias.elements::<i32>(self.channel, CHANNELS).cast::<__m256i>();
        let mut sums = Sums([MaybeUninit::uninit(); MAX_PIXELS]);
        let sums = &mut sums.0[..pixels.len()];
        let to =
            self.words.to.wrapping_add(below * self.words.below + pixels.start * channels + self.channel);
        // SAFETY: by contract; there are as many weights and sums of bias, and columns under as many pixels.
        unsafe {
            let bias = [_mm256_loadu_si256(bias), _mm256_loadu_si256(bias.add(1))];
            match (taps, stride) {
                (3, 1) => self.sums::<3, 1>(columns, weights, bias, sums),
                (3, _) => self.sums::<3, 2>(columns, weights, bias, sums),
                (_, 1) => self.sums::<5, 1>(columns, weights, bias, sums),
                (_, _) => self.sums::<5, 2>(columns, weights, bias, sums),
            }
            // All were made.
            let sums = std::slice::from_raw_parts(sums.as_ptr().cast(), sums.len());
            self.store(sums, to, channels);
        }
    }

    /// The sums of some pixels.
    ///
    /// # Safety
    /// The machine must have AVX2; there must be the columns under them, and the weights of a row of outputs.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn sums<const TAPS: usize, const STRIDE: usize>(
        &self,
        columns: *const __m256i,
        weights: *const __m256i,
        bias: [__m256i; HALVES],
        sums: &mut [MaybeUninit<[__m256i; HALVES]>],
    ) {
        // Seven divide the widths of most images.
        let side = match sums.len() {
            count if count % 7 == 0 => 7,
            4.. => 4,
            _ => 1,
        };
        for at in (0..sums.len()).step_by(side) {
            // Where fewer are left, some of those before are made again.
            let at = at.min(sums.len() - side);
            let columns = columns.wrapping_add(at * STRIDE * HALVES);
            for (half, &bias) in bias.iter().enumerate() {
                let columns = columns.wrapping_add(half);
                let weights = weights.wrapping_add(half * self.pairs * TAPS);
                let to = sums[at..].as_mut_ptr().cast::<__m256i>().wrapping_add(half);
                // SAFETY: by contract; as many pixels are left.
                unsafe {
                    match side {
                        7 => self.few::<TAPS, STRIDE, 7>(columns, weights, bias, to),
                        4 => self.few::<TAPS, STRIDE, 4>(columns, weights, bias, to),
                        _ => self.few::<TAPS, STRIDE, 1>(columns, weights, bias, to),
                    }
                }
            }
        }
    }

    /// The sums of half of the channels of `P` pixels.
    ///
    /// # Safety
    /// As for [`Self::sums`].
    #[inline(always)]
    unsafe fn few<const TAPS: usize, const STRIDE: usize, const P: usize>(
        &self,
        columns: *const __m256i,
        weights: *const __m256i,
        bias: __m256i,
        to: *mut __m256i,
    ) {
        let mut sums = [bias; P];
        for pair in 0..self.pairs {
            let columns = columns.wrapping_add(pair * self.columns * HALVES);
            // SAFETY: by contract.
            unsafe {
                let mut row = [bias; TAPS];
                for (tap, weights_of_tap) in row.iter_mut().enumerate() {
                    *weights_of_tap = _mm256_loadu_si256(weights.add(pair * TAPS + tap));
                }
                // Not a loop: the compiler would keep one of so many steps, and the sums in memory.
                macro_rules! add_columns {
                    ($($i:literal)*) => {
                        $(add_column::<TAPS, STRIDE, P>($i, &mut sums, &row, columns);)*
                    };
                }
                add_columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
            }
        }
        for (pixel, &sum) in sums.iter().enumerate() {
            // SAFETY: by contract.
            unsafe { _mm256_storeu_si256(to.add(pixel * HALVES), sum) };
        }
    }

    /// Turns sums into bytes: those of the first pixel go `to`, those of the next so many bytes further.
    ///
    /// # Safety
    /// The machine must have the instruction set, and there be as many pixels.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn store(&self, sums: &[[__m256i; HALVES]], to: *mut u8, step: usize) {
        // SAFETY: by contract.
        unsafe {
            let is_one_sided = Avx2::is_one_sided(&Avx2::target(self.words.kernel.requant.target));
            match is_one_sided {
                true => self.store_with::<true>(sums, to, step),
                false => self.store_with::<false>(sums, to, step),
            }
        }
    }

    /// # Safety
    /// As for [`Self::store`].
    #[inline(always)]
    unsafe fn store_with<const ONE_SIDED: bool>(&self, sums: &[[__m256i; HALVES]], to: *mut u8, step: usize) {
        /// Brings together the halves of the first pixel, and those of the second.
        const PIXELS: i32 = 0b11_01_10_00;
        let [low, high] = self.scales;
        for (i, pixels) in sums.chunks(2).enumerate() {
            // One that is left is made twice.
            let (upper, lower) = (pixels[0], pixels[pixels.len() - 1]);
            let to = to.wrapping_add(2 * i * step);
            let below = to.wrapping_add((pixels.len() - 1) * step);
            let four = [upper[0], upper[1], lower[0], lower[1]];
            // SAFETY: by contract.
            unsafe {
                let bytes = match low.quick.is_null() {
                    true => None,
                    false => lanes_256::<ONE_SIDED>(four, [low.quick, high.quick], self.bounds),
                };
                let Some(bytes) = bytes else {
                    self.exactly(upper, to);
                    self.exactly(lower, below);
                    continue;
                };
                let bytes = _mm256_permute4x64_epi64::<PIXELS>(bytes);
                let pixels = [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)];
                for (pixel, to) in pixels.into_iter().zip([to, below]) {
                    if self.width == CHANNELS {
                        _mm_storeu_si128(to.cast(), pixel);
                    } else {
                        libc::memcpy(to.cast(), (&raw const pixel).cast(), self.width);
                    }
                }
            }
        }
    }

    /// The bytes of a pixel by the whole formula. It is far from the loops, which seldom need it.
    ///
    /// # Safety
    /// As for [`Self::store`].
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn exactly(&self, [low, high]: [__m256i; HALVES], to: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            let (low, high) = (Avx2::requantise(low, self.scales[0]), Avx2::requantise(high, self.scales[1]));
            let bytes = Avx2::pack([low, high, low, high], Avx2::target(self.words.kernel.requant.target));
            for (place, &byte) in bytes[..CHANNELS].iter().enumerate() {
                let channel = Order::Words.at(place, CHANNELS);
                if channel < self.width {
                    to.add(channel).write(byte);
                }
            }
        }
    }
}

/// The words of sixteen bytes of each of two rows, those of a channel side by side.
///
/// # Safety
/// The machine must have AVX2, and there be as many bytes.
#[inline(always)]
unsafe fn paired<const SIGNED: bool>(rows: [*const u8; PAIR]) -> [__m256i; HALVES] {
    // SAFETY: by contract.
    unsafe {
        let (upper, lower) = (_mm_loadu_si128(rows[0].cast()), _mm_loadu_si128(rows[1].cast()));
        let (upper, lower) = match SIGNED {
            true => (_mm256_cvtepi8_epi16(upper), _mm256_cvtepi8_epi16(lower)),
            false => (_mm256_cvtepu8_epi16(upper), _mm256_cvtepu8_epi16(lower)),
        };
        [_mm256_unpacklo_epi16(upper, lower), _mm256_unpackhi_epi16(upper, lower)]
    }
}

/// The same of so many bytes: a load of sixteen must not leave a row for good, which may be the end of what there is.
///
/// # Safety
/// As for [`paired`].
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn some_paired<const SIGNED: bool>(rows: [*const u8; PAIR], width: usize) -> [__m256i; HALVES] {
    let mut few = [[0; CHANNELS]; PAIR];
    // SAFETY: by contract; then they are as long as a load.
    unsafe {
        for (few, row) in few.iter_mut().zip(rows) {
            libc::memcpy(few.as_mut_ptr().cast(), row.cast(), width);
        }
        paired::<SIGNED>([few[0].as_ptr(), few[1].as_ptr()])
    }
}

/// Adds column `i`, if there is one, to all sums that it is part of.
///
/// # Safety
/// The machine must have AVX2, and there be the column.
#[inline(always)]
unsafe fn add_column<const TAPS: usize, const STRIDE: usize, const P: usize>(
    i: usize,
    sums: &mut [__m256i; P],
    weights: &[__m256i; TAPS],
    columns: *const __m256i,
) {
    if i >= (P - 1) * STRIDE + TAPS {
        return;
    }
    // SAFETY: by contract.
    unsafe {
        let column = _mm256_loadu_si256(columns.add(i * HALVES));
        for (tap, &weights) in weights.iter().enumerate() {
            if i >= tap && (i - tap).is_multiple_of(STRIDE) && (i - tap) / STRIDE < P {
                let sum = &mut sums[(i - tap) / STRIDE];
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(column, weights));
            }
        }
    }
}
