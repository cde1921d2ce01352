//! Sixteen channels at a time: the bytes that four rows have for a channel lie together and are multiplied at once.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Channels that are summed side by side.
pub const CHANNELS: usize = 16;
/// Rows that are multiplied at once.
pub const ROWS: usize = 4;
/// Bytes of a quad: of four rows, for sixteen channels.
pub const QUAD: usize = CHANNELS * ROWS;

/// Whether the bytes of quads are signed, which is as the architecture multiplies them with signed weights.
pub const SIGNED: bool = cfg!(target_arch = "aarch64");

/// The number that a byte of a quad stands for.
#[inline(always)]
pub fn number(byte: u8) -> i32 {
    if SIGNED {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

/// How sums become bytes, by channel. Multipliers are as in [`crate::tensor::requant::Multiplier`].
#[derive(Clone, Copy)]
pub struct Scaling<'a> {
    pub mantissa: &'a [i32; CHANNELS],
    /// Bits to shift left before multiplying, if that is so for any channel.
    pub left: Option<&'a [i32; CHANNELS]>,
    /// Bits to shift right after multiplying.
    pub right: &'a [i32; CHANNELS],
    pub output_zero: i32,
    /// Less the zero point.
    pub range: (i32, i32),
}

/// The instructions that quads are multiplied with.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what is read or written.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Quads {
    /// Sixteen 32-bit sums.
    type Sums: Copy;
    type Weight: bytemuck::Pod;

    /// Where the weight of row `row` of channel `channel` is among the `QUAD` of a quad.
    fn place(channel: usize, row: usize) -> usize;
    unsafe fn load(sums: *const i32) -> Self::Sums;
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS];
    /// Adds the products of the rows' bytes with their weights.
    unsafe fn add(sums: Self::Sums, quad: *const u8, weights: *const Self::Weight) -> Self::Sums;
    unsafe fn requantise(sums: Self::Sums, scaling: &Scaling) -> [u8; CHANNELS];
}

/// Sixteen bytes of each of four rows as a quad, each byte xored with `flip`.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
pub fn interleave(rows: [[u8; CHANNELS]; ROWS], flip: u8) -> [u8; QUAD] {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the base instruction set of the architecture has these; the arrays are as large as the vectors.
        unsafe {
            let flip = _mm_set1_epi8(flip as i8);
            let [a, b, c, d] = rows.map(|row| _mm_xor_si128(_mm_loadu_si128(row.as_ptr().cast()), flip));
            let (ab, cd) = (_mm_unpacklo_epi8(a, b), _mm_unpacklo_epi8(c, d));
            let (ab_high, cd_high) = (_mm_unpackhi_epi8(a, b), _mm_unpackhi_epi8(c, d));
            let quads = [
                _mm_unpacklo_epi16(ab, cd),
                _mm_unpackhi_epi16(ab, cd),
                _mm_unpacklo_epi16(ab_high, cd_high),
                _mm_unpackhi_epi16(ab_high, cd_high),
            ];
            std::mem::transmute(quads)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|i| rows[i % ROWS][i / ROWS] ^ flip)
}

/// `x` times a multiplier, without a branch.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn scale(x: i32, mantissa: i32, left: u32, right: u32) -> i32 {
    let shifted = x << left;
    let x = if shifted >> left == x { shifted } else { (x >> 31) ^ i32::MAX };
    // A mantissa is never negative, so that adding half before the shift rounds as the division of the nudged product.
    let product = i64::from(x) * i64::from(mantissa);
    let high = ((product + (1 << 30)) as u64 >> 31) as i32;
    // Half away from zero.
    let mask = 1i32.wrapping_shl(right).wrapping_sub(1);
    (high >> right) + i32::from((high & mask) > (mask >> 1) + i32::from(high < 0))
}

#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn requantise(sums: [i32; CHANNELS], scaling: &Scaling) -> [u8; CHANNELS] {
    let (lo, hi) = scaling.range;
    let mut bytes = [0; CHANNELS];
    for i in 0..CHANNELS {
        let left = scaling.left.map_or(0, |left| left[i]);
        let scaled = scale(sums[i], scaling.mantissa[i], left as u32, scaling.right[i] as u32);
        bytes[i] = scaled.max(lo).min(hi).wrapping_add(scaling.output_zero) as u8;
    }
    bytes
}

/// Plain loops, where every machine has no vectors or few.
#[cfg(not(target_arch = "aarch64"))]
pub struct Base;

// SAFETY: plain Rust; pointers are used for sixteen sums and a quad only.
#[cfg(not(target_arch = "aarch64"))]
unsafe impl Quads for Base {
    type Sums = [i32; CHANNELS];
    type Weight = i16;

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
    unsafe fn requantise(sums: Self::Sums, scaling: &Scaling) -> [u8; CHANNELS] {
        requantise(sums, scaling)
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
    unsafe fn add(mut sums: Self::Sums, quad: *const u8, weights: *const i16) -> Self::Sums {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: by the trait's contract.
            unsafe {
                let bytes = _mm256_loadu_si256(quad.add(i * 32).cast());
                let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
                let odd = _mm256_srli_epi16::<8>(bytes);
                let weights = weights.add(i * 32);
                let even = _mm256_madd_epi16(even, _mm256_loadu_si256(weights.cast()));
                let odd = _mm256_madd_epi16(odd, _mm256_loadu_si256(weights.add(16).cast()));
                *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn requantise(sums: Self::Sums, scaling: &Scaling) -> [u8; CHANNELS] {
        // SAFETY: by the trait's contract.
        requantise(unsafe { Self::store(sums) }, scaling)
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
    unsafe fn requantise(sums: Self::Sums, scaling: &Scaling) -> [u8; CHANNELS] {
        // SAFETY: by the trait's contract; arrays have sixteen elements.
        unsafe {
            let mantissa = _mm512_loadu_si512(scaling.mantissa.as_ptr().cast());
            let right = _mm512_loadu_si512(scaling.right.as_ptr().cast());
            let mut x = sums;
            if let Some(left) = scaling.left {
                let left = _mm512_loadu_si512(left.as_ptr().cast());
                let shifted = _mm512_sllv_epi32(x, left);
                let lost = _mm512_cmpneq_epi32_mask(_mm512_srav_epi32(shifted, left), x);
                let most = _mm512_xor_si512(_mm512_srai_epi32::<31>(x), _mm512_set1_epi32(i32::MAX));
                x = _mm512_mask_mov_epi32(shifted, lost, most);
            }
            // 64-bit products of even and of odd channels, of which bits 31 to 62 count once half is added.
            let half = _mm512_set1_epi64(1 << 30);
            let even = _mm512_add_epi64(_mm512_mul_epi32(x, mantissa), half);
            let odd = _mm512_mul_epi32(_mm512_srli_epi64::<32>(x), _mm512_srli_epi64::<32>(mantissa));
            let odd = _mm512_add_epi64(odd, half);
            let high =
                _mm512_mask_mov_epi32(_mm512_srli_epi64::<31>(even), 0xaaaa, _mm512_slli_epi64::<1>(odd));
            // Half away from zero.
            let one = _mm512_set1_epi32(1);
            let mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, right), one);
            let threshold = _mm512_sub_epi32(_mm512_srli_epi32::<1>(mask), _mm512_srai_epi32::<31>(high));
            let up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(high, mask), threshold);
            let scaled = _mm512_srav_epi32(high, right);
            let scaled = _mm512_mask_add_epi32(scaled, up, scaled, one);
            let (lo, hi) = scaling.range;
            let within =
                _mm512_min_epi32(_mm512_max_epi32(scaled, _mm512_set1_epi32(lo)), _mm512_set1_epi32(hi));
            let bytes = _mm512_add_epi32(within, _mm512_set1_epi32(scaling.output_zero));
            std::mem::transmute(_mm512_cvtepi32_epi8(bytes))
        }
    }
}
