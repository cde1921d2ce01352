//! Products of bytes in AVX2, AVX-VNNI, AVX-512 and its VNNI.

use super::dot::{Dot, Sums};
use super::lanes::Lanes;
use crate::backend::cpu::kernels::simd::{Avx2, Avx512};
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Even and odd bytes of 64, widened to 16 bits.
///
/// # Safety
/// The machine must have AVX-512 BW.
#[inline(always)]
unsafe fn widened_512(p: *const i8) -> [__m512i; 2] {
    // SAFETY: by contract.
    unsafe {
        let bytes = _mm512_loadu_si512(p.cast());
        [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes)), _mm512_srai_epi16::<8>(bytes)]
    }
}

/// Inputs of a row that [`Avx2`] widens at once for a panel.
const WIDENED: usize = 512;
/// From a row's to the next row's: where rows lie a part of 4096 bytes apart, loads wait for stores to others.
const APART: usize = WIDENED + 32;

/// Sixteen bytes, widened to 16 bits.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn widened<const SIGNED: bool>(bytes: __m128i) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        if SIGNED {
            _mm256_cvtepi8_epi16(bytes)
        } else {
            _mm256_cvtepu8_epi16(bytes)
        }
    }
}

/// Widens sixteen bytes.
///
/// # Safety
/// As for [`widen`].
#[inline(always)]
unsafe fn sixteen<const SIGNED: bool>(from: *const u8, to: *mut i16) {
    // SAFETY: by contract.
    unsafe { _mm256_storeu_si256(to.cast(), widened::<SIGNED>(_mm_loadu_si128(from.cast()))) }
}

/// The same of eight.
///
/// # Safety
/// As for [`widen`].
#[inline(always)]
unsafe fn eight<const SIGNED: bool>(from: *const u8, to: *mut i16) {
    // SAFETY: by contract.
    unsafe {
        let words = widened::<SIGNED>(_mm_loadl_epi64(from.cast()));
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(words));
    }
}

/// Widens `count` bytes, an even number of them.
///
/// # Safety
/// The machine must have AVX2, and there be as many bytes to read and words to write.
#[inline(always)]
pub unsafe fn widen<const SIGNED: bool>(from: *const u8, to: *mut i16, count: usize) {
    // SAFETY: by contract. The last of several stores writes once more what the one before has written.
    unsafe {
        match count {
            16.. => {
                let mut i = 0;
                while i + 16 < count {
                    sixteen::<SIGNED>(from.add(i), to.add(i));
                    i += 16;
                }
                sixteen::<SIGNED>(from.add(count - 16), to.add(count - 16));
            }
            8.. => {
                eight::<SIGNED>(from, to);
                eight::<SIGNED>(from.add(count - 8), to.add(count - 8));
            }
            _ => {
                for i in (0..count).step_by(2) {
                    let pair = _mm_cvtsi32_si128(from.add(i).cast::<u16>().read_unaligned().into());
                    let words = _mm256_castsi256_si128(widened::<SIGNED>(pair));
                    to.add(i).cast::<i32>().write_unaligned(_mm_cvtsi128_si32(words));
                }
            }
        }
    }
}

/// Adds the products of `pairs` pairs of inputs of each of `M` rows, which are widened, to the sums of the first panel. The first
/// row lies at `inputs`, the others `apart` words from each other.
///
/// # Safety
/// The machine must have AVX2, and there be the inputs and the weights of a panel.
#[inline(always)]
pub unsafe fn add_pairs<const M: usize, const P: usize, const V: usize>(
    sums: &mut [[[__m256i; 2]; P]; M],
    inputs: *const i16,
    apart: usize,
    weights: *const i8,
    pairs: usize,
) {
    if let (6, 2) = (M, V) {
        // Written out, as sums that are indexed by a variable would be kept in memory all along.
        macro_rules! rows {
            ($($m:literal)*) => { [$(sums[$m.min(M - 1)][0]),*] };
        }
        let mut six = rows!(0 1 2 3 4 5);
        // SAFETY: the same contract; `M` is six.
        unsafe { add_six(&mut six, inputs, apart, weights, pairs) };
        sums.iter_mut().zip(six).for_each(|(sums, six)| sums[0] = six);
        return;
    }
    for i in 0..pairs {
        // SAFETY: by contract.
        unsafe {
            let b = Avx2::weights(weights.add(i * 4 * <Avx2 as Lanes>::LANES));
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_epi32(inputs.add(m * apart + i * 2).cast::<i32>().read_unaligned());
                for v in 0..V {
                    sums[0][v] = Avx2::dot::<true>(sums[0][v], a, b[v]);
                }
            }
        }
    }
}

/// The same of six rows. They take all registers: what the compiler makes of intrinsics may need one more, and each step then
/// waits for a sum that the one before it stored.
///
/// # Safety
/// As for [`add_pairs`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_six(
    [a, b, c, d, e, f]: &mut [[__m256i; 2]; 6],
    inputs: *const i16,
    apart: usize,
    weights: *const i8,
    pairs: usize,
) {
    macro_rules! row {
        ($at:literal, $sums:literal) => {
            concat!(
                "vpbroadcastd {both}, dword ptr [",
                $at,
                "]\n",
                "vpmaddwd {product}, {both}, {low}\n",
                "vpmaddwd {both}, {both}, {high}\n",
                "vpaddd {",
                $sums,
                "0}, {",
                $sums,
                "0}, {product}\n",
                "vpaddd {",
                $sums,
                "1}, {",
                $sums,
                "1}, {both}",
            )
        };
    }
    // SAFETY: by contract, of which it reads as many inputs and weights; it changes nothing but registers.
    unsafe {
        asm!(
            "test {pairs}, {pairs}",
            "jz 3f",
            "2:",
            "vpmovsxbw {low}, xmmword ptr [{weights}]",
            "vpmovsxbw {high}, xmmword ptr [{weights} + 16]",
            row!("{upper}", "a"),
            row!("{upper} + {apart}", "b"),
            row!("{upper} + 2 * {apart}", "c"),
            row!("{lower}", "d"),
            row!("{lower} + {apart}", "e"),
            row!("{lower} + 2 * {apart}", "f"),
            "add {upper}, 4",
            "add {lower}, 4",
            "add {weights}, 32",
            "dec {pairs}",
            "jnz 2b",
            "3:",
            low = out(ymm_reg) _,
            high = out(ymm_reg) _,
            both = out(ymm_reg) _,
            product = out(ymm_reg) _,
            weights = inout(reg) weights => _,
            upper = inout(reg) inputs => _,
            lower = inout(reg) inputs.wrapping_add(3 * apart) => _,
            apart = in(reg) apart * size_of::<i16>(),
            pairs = inout(reg) pairs => _,
            a0 = inout(ymm_reg) a[0],
            a1 = inout(ymm_reg) a[1],
            b0 = inout(ymm_reg) b[0],
            b1 = inout(ymm_reg) b[1],
            c0 = inout(ymm_reg) c[0],
            c1 = inout(ymm_reg) c[1],
            d0 = inout(ymm_reg) d[0],
            d1 = inout(ymm_reg) d[1],
            e0 = inout(ymm_reg) e[0],
            e1 = inout(ymm_reg) e[1],
            f0 = inout(ymm_reg) f[0],
            f1 = inout(ymm_reg) f[1],
            options(readonly, nostack),
        );
    }
}

// SAFETY: callers have detected AVX2, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Avx2 {
    type V = Avx2;
    /// Bytes widened to 16 bits, a pair in each lane: the instruction that multiplies bytes would saturate.
    type A = __m256i;
    type B = __m256i;
    const GROUP: usize = 2;
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { widened::<SIGNED>(_mm_set1_epi16(p.cast::<i16>().read_unaligned())) }
    }
    /// Inputs are widened once for both vectors of a panel, and then repeated in all lanes by loads alone.
    #[inline(always)]
    unsafe fn products<const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
        sums: &mut [[[Sums<Self>; 2]; P]; M],
        inputs: [*const u8; M],
        mut weights: *const i8,
        padded: usize,
    ) -> usize {
        let mut room = MaybeUninit::<[[i16; APART]; M]>::uninit();
        let rows = room.as_mut_ptr().cast::<i16>();
        for first in (0..padded).step_by(WIDENED) {
            let count = (padded - first).min(WIDENED);
            // SAFETY: each row has the padded inputs and weights, a whole number of pairs, and as much room; what is read
            // there has been written.
            unsafe {
                for (m, inputs) in inputs.iter().enumerate() {
                    widen::<SIGNED>(inputs.add(first), rows.add(m * APART), count);
                }
                add_pairs::<M, P, V>(sums, rows, APART, weights, count / Self::GROUP);
                weights = weights.add(count * 2 * Self::V::LANES);
            }
        }
        padded
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe {
            let halves = [_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast())];
            [widened::<true>(halves[0]), widened::<true>(halves[1])]
        }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }
}

/// AVX2 with products of bytes.
#[derive(Clone, Copy)]
pub struct AvxVnni;

// SAFETY: callers have detected AVX-VNNI, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for AvxVnni {
    type V = Avx2;
    type A = __m256i;
    type B = __m256i;
    const FLIP: [bool; 2] = [false, true];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        let (unsigned, signed) = if SIGNED { (b, a) } else { (a, b) };
        // SAFETY: by the trait's contract.
        unsafe { _mm256_dpbusd_avx_epi32(sums, unsigned, signed) }
    }
}

// SAFETY: callers have detected AVX-512 BW, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Avx512 {
    type V = Avx512;
    /// Bytes widened to 16 bits, even and odd, as in AVX2.
    type A = [__m512i; 2];
    type B = [__m512i; 2];
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe {
            let four = _mm512_set1_epi32(p.cast::<i32>().read_unaligned());
            if SIGNED {
                [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(four)), _mm512_srai_epi16::<8>(four)]
            } else {
                [_mm512_and_si512(four, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(four)]
            }
        }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [widened_512(p), widened_512(p.add(64))] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe {
            let sums = _mm512_add_epi32(sums, _mm512_madd_epi16(a[0], b[0]));
            _mm512_add_epi32(sums, _mm512_madd_epi16(a[1], b[1]))
        }
    }
}

/// AVX-512 with products of bytes.
#[derive(Clone, Copy)]
pub struct Vnni;

// SAFETY: callers have detected AVX-512 VNNI, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Vnni {
    type V = Avx512;
    type A = __m512i;
    type B = __m512i;
    const FLIP: [bool; 2] = [false, true];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [_mm512_loadu_si512(p.cast()), _mm512_loadu_si512(p.add(64).cast())] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        let (unsigned, signed) = if SIGNED { (b, a) } else { (a, b) };
        // SAFETY: by the trait's contract.
        unsafe { _mm512_dpbusd_epi32(sums, unsigned, signed) }
    }
}
