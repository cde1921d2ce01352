//! Rows of floats as bytes, each with a scale and a zero point of its own.
//!
//! A row may lie in a client's memory and change meanwhile: it is read twice, and only what its bytes stand for may then be wrong.

#[cfg(target_arch = "aarch64")]
use crate::backend::cpu::kernels::neon::Neon;
use crate::backend::cpu::kernels::simd::Base;
#[cfg(target_arch = "x86_64")]
use crate::backend::cpu::kernels::simd::{Avx2, Avx512};
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// What a row's bytes stand for: `(byte - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Not a number if one in the row is infinite or not a number.
    pub scale: f32,
    pub zero: i32,
}

/// Numbers of a vector, the widest there is.
const SIDE: usize = 16;
/// A byte's greatest value.
const MOST: f32 = 255.0;
/// Adding it leaves a number below 2^22 rounded, the even one of two, in the last bits.
const ROUND: f32 = 12_582_912.0;

/// What a row's numbers are within.
#[derive(Clone, Copy)]
struct Span {
    low: [f32; SIDE],
    high: [f32; SIDE],
    sum: [f32; SIDE],
}

impl Span {
    const NONE: Span = Span { low: [0.0; SIDE], high: [0.0; SIDE], sum: [0.0; SIDE] };

    /// With a number in each place.
    #[inline(always)]
    fn with(mut self, numbers: [f32; SIDE]) -> Self {
        for (i, x) in numbers.into_iter().enumerate() {
            self.low[i] = if x < self.low[i] { x } else { self.low[i] };
            self.high[i] = if x > self.high[i] { x } else { self.high[i] };
            self.sum[i] += x;
        }
        self
    }

    /// With what is within another one.
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        let sum = self.sum;
        let mut both = self.with(other.low).with(other.high);
        both.sum = std::array::from_fn(|i| sum[i] + other.sum[i]);
        both
    }

    /// The least and the greatest, and the sum: that of what is looked at twice counts twice.
    #[inline(always)]
    fn ends(mut self) -> (f32, f32, f32) {
        let mut side = SIDE / 2;
        while side > 0 {
            for i in 0..side {
                let (low, high) = (self.low[i + side], self.high[i + side]);
                self.low[i] = if low < self.low[i] { low } else { self.low[i] };
                self.high[i] = if high > self.high[i] { high } else { self.high[i] };
                self.sum[i] += self.sum[i + side];
            }
            side /= 2;
        }
        (self.low[0], self.high[0], self.sum[0])
    }
}

/// What numbers are within.
///
/// # Safety
/// There must be so many.
#[inline(always)]
unsafe fn span(from: *const f32, count: usize) -> Span {
    // SAFETY: by contract, of which each is asked for at most as many as there are.
    unsafe {
        let at = |i: usize| from.add(i).cast::<[f32; SIDE]>().read_unaligned();
        if count < SIDE {
            let mut few = [0.0; SIDE];
            few.iter_mut().enumerate().take(count).for_each(|(i, x)| *x = from.add(i).read_unaligned());
            return Span::NONE.with(few);
        }
        // Two by turns, as each waits for the one before. The last are looked at twice, if need be.
        let (mut even, mut odd, mut i) = (Span::NONE, Span::NONE.with(at(count - SIDE)), 0);
        while i + 2 * SIDE <= count {
            (even, odd) = (even.with(at(i)), odd.with(at(i + SIDE)));
            i += 2 * SIDE;
        }
        if i + SIDE <= count {
            even = even.with(at(i));
        }
        even.and(odd)
    }
}

/// How bytes stand for what is between two numbers and 0, and how many there are for 1.
#[inline(always)]
fn scale(low: f32, high: f32) -> (Row, f32) {
    // Each by itself: their difference may be beyond all floats.
    let scale = (high - low) * (1.0 / MOST);
    let scale = if scale < f32::INFINITY { scale } else { high / MOST - low / MOST };
    // What is that small makes no difference to any sum of floats, and has no inverse.
    if scale < f32::MIN_POSITIVE {
        return (Row { scale: 0.0, zero: 0 }, 0.0);
    }
    let inverse = 1.0 / scale;
    (Row { scale, zero: byte(-low * inverse).into() }, inverse)
}

/// The nearest byte.
#[inline(always)]
fn byte(x: f32) -> u8 {
    let x = if x > 0.0 { x } else { 0.0 };
    let x = if x < MOST { x } else { MOST };
    (x + ROUND).to_bits() as u8
}

/// Vectors that make numbers bytes. Of plain loops the compiler makes shuffles of single bytes.
///
/// # Safety
/// The machine must have the instruction set of the type, and there be [`SIDE`] numbers to read and as many bytes to write.
pub unsafe trait Rounds {
    /// Bytes of `number * scale + zero`, the nearest ones, with what `flip` has xored.
    unsafe fn bytes(from: *const f32, scale: f32, zero: f32, flip: u8, to: *mut u8);
}

// SAFETY: plain Rust on every machine.
unsafe impl Rounds for Base {
    #[inline(always)]
    unsafe fn bytes(from: *const f32, scale: f32, zero: f32, flip: u8, to: *mut u8) {
        for i in 0..SIDE {
            // SAFETY: by contract.
            unsafe { to.add(i).write(byte(from.add(i).read_unaligned() * scale + zero) ^ flip) };
        }
    }
}

// SAFETY: callers have detected AVX2; all loads and stores are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Rounds for Avx2 {
    #[inline(always)]
    unsafe fn bytes(from: *const f32, scale: f32, zero: f32, flip: u8, to: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            let (scale, zero) = (_mm256_set1_ps(scale), _mm256_set1_ps(zero));
            let rounded = |i: usize| {
                let x = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(from.add(i)), scale), zero);
                // What is no number becomes 0, as it is the first operand.
                let x = _mm256_min_ps(_mm256_max_ps(x, _mm256_setzero_ps()), _mm256_set1_ps(MOST));
                _mm256_cvtps_epi32(x)
            };
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(rounded(0), rounded(8)));
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.cast(), _mm_xor_si128(bytes, _mm_set1_epi8(flip as i8)));
        }
    }
}

// SAFETY: callers have detected AVX-512; all loads and stores are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Rounds for Avx512 {
    #[inline(always)]
    unsafe fn bytes(from: *const f32, scale: f32, zero: f32, flip: u8, to: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            let x = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(scale));
            let x = _mm512_add_ps(x, _mm512_set1_ps(zero));
            // As in AVX2. What is too large becomes the greatest byte, or a negative word, which does, too.
            let x = _mm512_max_ps(x, _mm512_setzero_ps());
            let bytes = _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x));
            _mm_storeu_si128(to.cast(), _mm_xor_si128(bytes, _mm_set1_epi8(flip as i8)));
        }
    }
}

// SAFETY: every 64-bit Arm machine has NEON; all loads and stores may be unaligned.
#[cfg(target_arch = "aarch64")]
unsafe impl Rounds for Neon {
    #[inline(always)]
    unsafe fn bytes(from: *const f32, scale: f32, zero: f32, flip: u8, to: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            let zero = vdupq_n_f32(zero);
            let rounded = |i: usize| {
                // Not fused, as elsewhere. What is no number becomes 0 when it is converted, and what is too large the most.
                let x = vaddq_f32(vmulq_n_f32(vld1q_f32(from.add(i)), scale), zero);
                vqmovn_u32(vcvtnq_u32_f32(x))
            };
            let [low, high] = [0, 8].map(|i| vqmovn_u16(vcombine_u16(rounded(i), rounded(i + 4))));
            vst1q_u8(to, veorq_u8(vcombine_u8(low, high), vdupq_n_u8(flip)));
        }
    }
}

/// Makes a row bytes: each of its segments of `depth` numbers so many, `apart` bytes from the next one. Signed bytes are by 128 less, as their
/// zero point is.
///
/// # Safety
/// The machine must have the instruction set of `R`, each segment have its numbers, and there be room for as many bytes.
#[inline(always)]
pub unsafe fn row<'a, R: Rounds, const SIGNED: bool>(
    segments: impl Iterator<Item = &'a *const f32> + Clone,
    depth: usize,
    to: *mut u8,
    apart: usize,
) -> Row {
    let flip = if SIGNED { 0x80 } else { 0 };
    let mut all = Span::NONE;
    for &from in segments.clone() {
        // SAFETY: by contract.
        all = all.and(unsafe { span(from, depth) });
    }
    let (low, high, sum) = all.ends();
    let (mut row, inverse) = scale(low, high);
    // Numbers may add up to what is beyond all floats, but not if all are near 0.
    if !sum.is_finite() {
        for &from in segments.clone() {
            // SAFETY: by contract.
            let is_one = |i: usize| unsafe { from.add(i).read_unaligned().is_finite() };
            if !(0..depth).all(is_one) {
                row.scale = f32::NAN;
            }
        }
    }
    let zero = row.zero as f32;
    for (i, &from) in segments.enumerate() {
        let to = to.wrapping_add(i * apart);
        // SAFETY: by contract. The last ones are made twice, if need be.
        unsafe {
            if depth < SIDE {
                for i in 0..depth {
                    to.add(i).write(byte(from.add(i).read_unaligned() * inverse + zero) ^ flip);
                }
                continue;
            }
            let mut first = 0;
            while first + SIDE < depth {
                R::bytes(from.add(first), inverse, zero, flip, to.add(first));
                first += SIDE;
            }
            R::bytes(from.add(depth - SIDE), inverse, zero, flip, to.add(depth - SIDE));
        }
    }
    Row { scale: row.scale, zero: row.zero - i32::from(flip) }
}
