//! Products of two tensors of bytes in AVX2: products of words, which are scaled and rounded as the sums of matrices are. What is
//! in doubt, and what is left of a block, is made in another way.

use super::super::gemm::{lanes_256, Bounds, Form, Lanes, Requant, Requantisation};
use super::super::simd::Avx2;
use super::super::vector::{Level, Vectors};
use super::functions::OfTwo;
use std::arch::x86_64::*;

/// Bytes that are made at once.
const BLOCK: usize = 32;
/// Words of a vector.
const WORDS: usize = BLOCK / 2;

/// Products of bytes, which are `A` and `B` signed, less their zero points.
pub struct Products<const A: bool, const B: bool, O> {
    zeros: [i16; 2],
    requant: Requant,
    others: O,
}

impl<const A: bool, const B: bool, O> Products<A, B, O> {
    /// `others` makes the same bytes of any pairs, and is given back where this machine has other vectors, or where products are
    /// made larger.
    pub fn new(zeros: [i16; 2], requantisation: &Requantisation, others: O) -> Result<Self, O> {
        if Level::detect().0 != Vectors::Avx2 {
            return Err(others);
        }
        match Requant::new(requantisation, Form::Wide, Avx2::LANES, 0) {
            Some(requant) if !requant.scales(0).quick.is_null() => Ok(Products { zeros, requant, others }),
            _ => Err(others),
        }
    }
}

impl<const A: bool, const B: bool, O: OfTwo<u8, u8>> Products<A, B, O> {
    /// Makes `len` bytes, in whole blocks.
    ///
    /// # Safety
    /// The machine must have AVX2 and FMA, and there be as many elements of each input and of the output.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn blocks<const ONE_SIDED: bool>(
        &self,
        bounds: Bounds<__m256i, __m256>,
        len: usize,
        [a, b]: [*const u8; 2],
        to: *mut u8,
    ) {
        let quick = self.requant.scales(0).quick;
        let (zero_a, zero_b) = (_mm256_set1_epi16(self.zeros[0]), _mm256_set1_epi16(self.zeros[1]));
        for at in (0..len).step_by(BLOCK) {
            let (a, b, to) = (a.wrapping_add(at), b.wrapping_add(at), to.wrapping_add(at));
            // SAFETY: by contract; a block is left of each.
            unsafe {
                let [p, q] = multiplied(words::<A>(a, zero_a), words::<B>(b, zero_b));
                let (a_next, b_next) = (a.wrapping_add(WORDS), b.wrapping_add(WORDS));
                let [r, s] = multiplied(words::<A>(a_next, zero_a), words::<B>(b_next, zero_b));
                match lanes_256::<ONE_SIDED>([p, q, r, s], [quick; 2], bounds) {
                    // Halves of the first words come before those of the others.
                    Some(bytes) => {
                        _mm256_storeu_si256(to.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes));
                    }
                    None => self.others.along(BLOCK, [a, b], to),
                }
            }
        }
    }
}

/// Sixteen bytes as words, less their zero point.
///
/// # Safety
/// The machine must have AVX2, and there be as many bytes.
#[inline(always)]
unsafe fn words<const SIGNED: bool>(bytes: *const u8, zero: __m256i) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.cast());
        _mm256_sub_epi16(if SIGNED { _mm256_cvtepi8_epi16(bytes) } else { _mm256_cvtepu8_epi16(bytes) }, zero)
    }
}

/// Products of words, in the order that packing them undoes.
#[inline]
#[target_feature(enable = "avx2")]
fn multiplied(a: __m256i, b: __m256i) -> [__m256i; 2] {
    let (low, high) = (_mm256_mullo_epi16(a, b), _mm256_mulhi_epi16(a, b));
    [_mm256_unpacklo_epi16(low, high), _mm256_unpackhi_epi16(low, high)]
}

// SAFETY: the others do so.
unsafe impl<const A: bool, const B: bool, O: OfTwo<u8, u8>> OfTwo<u8, u8> for Products<A, B, O> {
    #[inline(always)]
    fn run(&self, len: usize, get: impl Fn(usize) -> (u8, u8), put: impl FnMut(usize, u8)) {
        self.others.run(len, get, put);
    }

    #[inline(always)]
    unsafe fn along(&self, len: usize, [a, b]: [*const u8; 2], to: *mut u8) {
        let whole = len - len % BLOCK;
        let rest = [a, b].map(|from| from.wrapping_add(whole));
        // SAFETY: by contract; it was made where the machine has the instruction set.
        unsafe {
            let target = Avx2::target(self.requant.target);
            match Avx2::is_one_sided(&target) {
                true => self.blocks::<true>(target.bounds(), whole, [a, b], to),
                false => self.blocks::<false>(target.bounds(), whole, [a, b], to),
            }
            self.others.along(len - whole, rest, to.wrapping_add(whole));
        }
    }
}
