//! Sixteen channels at a time: the bytes that four rows have for a channel lie together and are multiplied at once.

use super::super::gemm::{Lanes, Scales};
#[cfg(not(target_arch = "aarch64"))]
use super::super::simd;
#[cfg(target_arch = "x86_64")]
use super::super::simd::Avx512;
use super::layout::{interleave, number, CHANNELS, QUAD, ROWS};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A row of the input from its first column on, or padding, which stands still; and how far it is from column to column.
pub type Line = (*const u8, usize);

/// Pixels that are turned into bytes at once.
pub const PIXELS: usize = 4;

/// What sums of `Q` become bytes with.
pub type Target<Q> = <<Q as Quads>::V as Lanes>::Target;

/// The instructions that quads are multiplied with.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what is read or written.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Quads {
    /// Sixteen 32-bit sums.
    type Sums: Copy;
    type Weight: bytemuck::Pod + From<i8>;
    type Cell: Cell;
    /// The vectors in which sums become bytes.
    type V: Lanes;
    /// Pixels whose sums stay in registers beside each other, while weights are loaded once for all of them: a part of [`PIXELS`].
    const BESIDE: usize = 1;

    /// Where the weight of row `row` of channel `channel` is among the `QUAD` of a quad: where [`interleave`] has it, should
    /// weights be bytes.
    fn place(channel: usize, row: usize) -> usize;
    unsafe fn load(sums: *const i32) -> Self::Sums;
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS];
    /// Adds the products of the rows' bytes with their weights.
    unsafe fn add(sums: Self::Sums, quad: *const Self::Cell, weights: *const Self::Weight) -> Self::Sums;
    /// Sixteen bytes of each of four rows as a quad, each byte xored with `flip`.
    #[inline(always)]
    unsafe fn interleave(rows: [*const u8; ROWS], flip: u8) -> [Self::Cell; QUAD] {
        // SAFETY: by the trait's contract.
        unsafe { Cell::kept(interleave(rows.map(|row| row.cast::<[u8; CHANNELS]>().read_unaligned()), flip)) }
    }
    /// The bytes of a few pixels.
    unsafe fn requantise(
        pixels: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS];
}

/// A byte as a quad has it as long as it is kept for all outputs above it.
pub trait Cell: Copy {
    /// A quad of cells, from the bytes as [`interleave`] has them.
    ///
    /// # Safety
    /// The machine must have the instruction set that multiplies such cells.
    unsafe fn kept(quad: [u8; QUAD]) -> [Self; QUAD];
    fn number(self) -> i32;
}

impl Cell for u8 {
    #[inline(always)]
    unsafe fn kept(quad: [u8; QUAD]) -> [u8; QUAD] {
        quad
    }
    #[inline(always)]
    fn number(self) -> i32 {
        number(self)
    }
}

/// For AVX2: even rows of eight channels, then their odd rows.
#[cfg(target_arch = "x86_64")]
impl Cell for i16 {
    #[inline(always)]
    unsafe fn kept(quad: [u8; QUAD]) -> [i16; QUAD] {
        // SAFETY: by contract the machine has AVX2; any bits are numbers, and there are as many.
        unsafe {
            let [low, high] = std::mem::transmute::<[u8; QUAD], [__m256i; 2]>(quad);
            let even = _mm256_set1_epi16(0xff);
            std::mem::transmute([
                _mm256_and_si256(low, even),
                _mm256_srli_epi16::<8>(low),
                _mm256_and_si256(high, even),
                _mm256_srli_epi16::<8>(high),
            ])
        }
    }
    #[inline(always)]
    fn number(self) -> i32 {
        self.into()
    }
}

/// Scales of the vectors of sixteen sums, which are four at most, from the first on and over again.
pub type PixelScales = [[Scales; 2]; 2];

/// What [`Quads::requantise`] does, where sixteen sums are two vectors.
///
/// # Safety
/// As for the trait.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
unsafe fn requantise_halves<V: Lanes<Packed = [u8; 32]>>(
    pixels: [[V::I; 2]; PIXELS],
    scales: &PixelScales,
    target: V::Target,
) -> [[u8; CHANNELS]; PIXELS] {
    let mut bytes = [[0; 32]; PIXELS / 2];
    for (bytes, pair) in bytes.iter_mut().zip(pixels.chunks_exact(2)) {
        // SAFETY: by contract.
        unsafe {
            let sums = [pair[0][0], pair[0][1], pair[1][0], pair[1][1]];
            *bytes = V::bytes(sums, &V::constants(&scales[0]), target);
        }
    }
    bytemuck::cast(bytes)
}

/// Plain loops, where every machine has no vectors or few.
#[cfg(not(target_arch = "aarch64"))]
pub struct Base;

// SAFETY: plain Rust; pointers are used for sixteen sums and a quad only.
#[cfg(not(target_arch = "aarch64"))]
unsafe impl Quads for Base {
    type Sums = [i32; CHANNELS];
    type Weight = i16;
    type Cell = u8;
    type V = simd::Base;

    fn place(channel: usize, row: usize) -> usize {
        channel * ROWS + row
    }
    #[inline(always)]
    unsafe fn load(sums: *const i32) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe { sums.cast::<Self::Sums>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS] {
        sums
    }
    #[inline(always)]
    unsafe fn add(mut sums: Self::Sums, quad: *const u8, weights: *const i16) -> Self::Sums {
        // SAFETY: by the trait's contract.
        let (quad, weights) = unsafe {
            (quad.cast::<[u8; QUAD]>().read_unaligned(), weights.cast::<[i16; QUAD]>().read_unaligned())
        };
        for (i, sum) in sums.iter_mut().enumerate() {
            for j in i * ROWS..(i + 1) * ROWS {
                *sum = sum.wrapping_add(i32::from(quad[j]) * i32::from(weights[j]));
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn requantise(
        pixels: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS] {
        // SAFETY: by the trait's contract; sixteen sums are two vectors.
        unsafe { requantise_halves::<Self::V>(bytemuck::cast(pixels), scales, target) }
    }
}

/// AVX2: bytes are widened to 16 bits, those of even and of odd rows apart.
#[cfg(target_arch = "x86_64")]
pub struct Avx2;

// SAFETY: callers have detected the instruction set, as the trait demands; all loads are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Quads for Avx2 {
    type Sums = [__m256i; 2];
    type Weight = i16;
    /// Widened once, when the quad is made: several pixels are above it.
    type Cell = i16;
    type V = simd::Avx2;
    const BESIDE: usize = PIXELS;

    fn place(channel: usize, row: usize) -> usize {
        // Even rows of eight channels, then their odd rows.
        channel / 8 * 32 + row % 2 * 16 + channel % 8 * 2 + row / 2
    }
    #[inline(always)]
    unsafe fn load(sums: *const i32) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe { [_mm256_loadu_si256(sums.cast()), _mm256_loadu_si256(sums.add(8).cast())] }
    }
    #[inline(always)]
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS] {
        // SAFETY: any bits are numbers, and there are as many.
        unsafe { std::mem::transmute(sums) }
    }
    #[inline(always)]
    unsafe fn add(mut sums: Self::Sums, quad: *const i16, weights: *const i16) -> Self::Sums {
        for (i, sum) in sums.iter_mut().enumerate() {
            for at in [i * 32, i * 32 + 16] {
                // SAFETY: by the trait's contract.
                unsafe {
                    let (bytes, weights) = (quad.add(at).cast(), weights.add(at).cast());
                    let products = _mm256_madd_epi16(_mm256_loadu_si256(bytes), _mm256_loadu_si256(weights));
                    *sum = _mm256_add_epi32(*sum, products);
                }
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn requantise(
        pixels: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS] {
        // SAFETY: by the trait's contract.
        unsafe { requantise_halves::<Self::V>(pixels, scales, target) }
    }
}

/// AVX-512 with its neural network instructions.
#[cfg(target_arch = "x86_64")]
pub struct Vnni;

// SAFETY: callers have detected the instruction set, as the trait demands; all loads are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Quads for Vnni {
    type Sums = __m512i;
    type Weight = i8;
    type Cell = u8;
    type V = Avx512;

    fn place(channel: usize, row: usize) -> usize {
        channel * ROWS + row
    }
    #[inline(always)]
    unsafe fn load(sums: *const i32) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_loadu_si512(sums.cast()) }
    }
    #[inline(always)]
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS] {
        // SAFETY: any bits are numbers, and there are as many.
        unsafe { std::mem::transmute(sums) }
    }
    #[inline(always)]
    unsafe fn add(sums: Self::Sums, quad: *const u8, weights: *const i8) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe {
            _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(quad.cast()), _mm512_loadu_si512(weights.cast()))
        }
    }
    #[inline(always)]
    unsafe fn interleave(rows: [*const u8; ROWS], flip: u8) -> [u8; QUAD] {
        /// Brings together what four lanes have of four channels, and within those what they have of one.
        const CHANNELS_OF_ROWS: [i32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        const ROWS_OF_A_CHANNEL: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe {
            let [a, b, c, d] = rows;
            let lanes = _mm512_castsi128_si512(_mm_loadu_si128(a.cast()));
            let lanes = _mm512_inserti32x4::<1>(lanes, _mm_loadu_si128(b.cast()));
            let lanes = _mm512_inserti32x4::<2>(lanes, _mm_loadu_si128(c.cast()));
            let lanes = _mm512_inserti32x4::<3>(lanes, _mm_loadu_si128(d.cast()));
            let order = _mm512_loadu_si512(CHANNELS_OF_ROWS.as_ptr().cast());
            let channels = _mm512_permutexvar_epi32(order, lanes);
            let order = _mm512_broadcast_i32x4(_mm_loadu_si128(ROWS_OF_A_CHANNEL.as_ptr().cast()));
            let quad = _mm512_shuffle_epi8(channels, order);
            std::mem::transmute(_mm512_xor_si512(quad, _mm512_set1_epi8(flip as i8)))
        }
    }
    #[inline(always)]
    unsafe fn requantise(
        pixels: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS] {
        // SAFETY: by the trait's contract.
        unsafe {
            // Sixteen sums are one vector, and all scales those of the first.
            bytemuck::cast(Avx512::bytes(pixels, &scales[0], target))
        }
    }
}
