//! The integer sums of tiles of 4 x 4 output bytes in AVX2, which are exact.
//!
//! With the points 0, 1, -1, 2, -2 and infinity, along each dimension, places are sums `B d` of inputs that fit 16 bits: at most
//! 10 times an input, so 100 times one of 128 at most. The matrices have `G g` without its fractions (see
//! [`matrices`](super::matrices)), which leaves outputs a known multiple too large: 24, 12, 6 and 6 along either dimension.
//!
//! That multiple is three times a power of two, along both dimensions nine times 2^6 at most. Sums go round at 32 bits. An odd
//! factor is taken out by its inverse for numbers of 32 bits, and a power of two by shifting: what is left are the lower 26 bits
//! of an output's sum at least, with its sign. So sums must be less than 2^25 either way ([`MOST`]).

use super::super::gemm::{Lanes, Requant, Scales};
use super::super::simd::Avx2;
use super::{Made, Sums};
use std::arch::x86_64::*;

/// Outputs and inputs of a tile along each dimension.
pub const WRITTEN: usize = 4;
const READ: usize = 6;
/// Columns of a panel.
pub const COLUMNS: usize = 2 * Avx2::LANES;
/// Inputs in a vector.
pub const LANES: usize = 16;
/// A sum, without its bias, is less than this, positive or negative.
pub const MOST: usize = 1 << 25;

/// Makes the places of a tile, `apart` words from one to the next, of the pixels under it, row by row: of signed bytes, or of
/// unsigned ones less 128.
///
/// # Safety
/// The machine must have AVX2, pointers be valid for so many channels, at least [`LANES`], and there be room for them at each place.
#[target_feature(enable = "avx2")]
pub unsafe fn to_places<const SIGNED: bool>(
    from: &[*const u8; READ * READ],
    channels: usize,
    to: *mut i16,
    apart: usize,
) {
    let flip = _mm_set1_epi8(if SIGNED { 0 } else { i8::MIN });
    for start in (0..channels).step_by(LANES) {
        // The last vector makes some once more.
        let start = start.min(channels - LANES);
        let mut columns = [[_mm256_setzero_si256(); READ]; READ];
        for (j, column) in columns.iter_mut().enumerate() {
            let mut pixels = [_mm256_setzero_si256(); READ];
            for (i, pixel) in pixels.iter_mut().enumerate() {
                // SAFETY: so many channels can be read.
                let bytes = unsafe { _mm_loadu_si128(from[i * READ + j].wrapping_add(start).cast()) };
                *pixel = _mm256_cvtepi8_epi16(_mm_xor_si128(bytes, flip));
            }
            *column = six(pixels);
        }
        for i in 0..READ {
            let [a, b, c, d, e, f] = &columns;
            for (j, made) in six([a[i], b[i], c[i], d[i], e[i], f[i]]).into_iter().enumerate() {
                // SAFETY: there is room for them.
                unsafe { _mm256_storeu_si256(to.wrapping_add((i * READ + j) * apart + start).cast(), made) };
            }
        }
    }
}

/// What becomes of six inputs along one dimension: `B d`.
#[inline]
#[target_feature(enable = "avx2")]
fn six([a, b, c, d, e, f]: [__m256i; READ]) -> [__m256i; READ] {
    let five = _mm256_set1_epi16(5);
    let four_times = |x| _mm256_slli_epi16::<2>(x);
    let even = _mm256_sub_epi16(e, four_times(c));
    let odd = _mm256_sub_epi16(d, four_times(b));
    let near = _mm256_sub_epi16(e, c);
    let far = _mm256_slli_epi16::<1>(_mm256_sub_epi16(d, b));
    let outer = |x, y, z| {
        _mm256_add_epi16(_mm256_sub_epi16(_mm256_slli_epi16::<2>(x), _mm256_mullo_epi16(y, five)), z)
    };
    [
        outer(a, c, e),
        _mm256_add_epi16(even, odd),
        _mm256_sub_epi16(even, odd),
        _mm256_add_epi16(near, far),
        _mm256_sub_epi16(near, far),
        outer(b, d, f),
    ]
}

/// By which power of two outputs of a row or a column are too large, beside three.
const SHIFTS: [u32; WRITTEN] = [3, 2, 1, 1];
/// The largest of both dimensions.
const SHIFT: u32 = 6;

/// What an output's sum of 32 bits is multiplied by, so that 2^6 times the output is left.
const FACTORS: [[i32; WRITTEN]; WRITTEN] = {
    let (mut factors, mut i) = ([[0; WRITTEN]; WRITTEN], 0);
    while i < WRITTEN * WRITTEN {
        let (row, column) = (i / WRITTEN, i % WRITTEN);
        factors[row][column] = inverse(9) << (SHIFT - SHIFTS[row] - SHIFTS[column]);
        i += 1;
    }
    factors
};

/// The number that gives 1 with an odd one, at 32 bits.
const fn inverse(odd: i32) -> i32 {
    // Newton's iteration: each step doubles the bits that are right, of which there are three to begin with.
    let (mut found, mut step) = (odd, 0);
    while step < 4 {
        found = found.wrapping_mul(2i32.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

/// What becomes of the sums of six places along one dimension: outputs that are 24, 12, 6 and 6 times too large.
#[inline]
#[target_feature(enable = "avx2")]
fn four([a, b, c, d, e, f]: [__m256i; READ]) -> [__m256i; WRITTEN] {
    let (near, aside) = (_mm256_add_epi32(b, c), _mm256_sub_epi32(b, c));
    let (far, beyond) = (_mm256_add_epi32(d, e), _mm256_sub_epi32(d, e));
    [
        _mm256_add_epi32(_mm256_sub_epi32(a, _mm256_slli_epi32::<2>(near)), far),
        _mm256_sub_epi32(beyond, _mm256_slli_epi32::<1>(aside)),
        _mm256_sub_epi32(far, near),
        _mm256_add_epi32(_mm256_sub_epi32(_mm256_slli_epi32::<1>(beyond), aside), f),
    ]
}

/// What is added to the sums of a panel's outputs.
#[derive(Clone, Copy)]
pub struct Before {
    pub at: *const i32,
    /// From an output's to the next one's.
    pub step: usize,
}

/// Where sums of a panel's outputs go.
#[derive(Clone, Copy)]
pub enum After<'a> {
    /// To memory, where so many lie from an output to the next.
    Kept(*mut i32, usize),
    /// They become bytes.
    Bytes(&'a Finish),
}

/// What sums of a panel become bytes with.
#[derive(Clone, Copy)]
pub struct Finish {
    scales: [Scales; 2],
    target: <Avx2 as Lanes>::Target,
}

impl Finish {
    /// That of a panel of this number.
    #[target_feature(enable = "avx2,fma")]
    pub fn of(requant: &Requant, panel: usize) -> Self {
        // Those of a vector beyond the last are those of the last.
        let scales = [requant.scales(2 * panel), requant.scales(2 * panel + 1)];
        // SAFETY: the machine has AVX2.
        Finish { scales, target: unsafe { Avx2::target(requant.target) } }
    }

    /// The bytes of two outputs.
    ///
    /// # Safety
    /// The machine must have AVX2 and FMA, and the constants it was made of be there.
    #[inline(always)]
    unsafe fn bytes(&self, [[a, b], [c, d]]: [[__m256i; 2]; 2]) -> <Avx2 as Lanes>::Packed {
        // SAFETY: by contract.
        unsafe { Avx2::bytes([a, b, c, d], &self.scales, self.target) }
    }
}

/// Makes the outputs of a tile, of a panel's columns, of which it has as many as are to be made.
///
/// # Safety
/// The machine must have AVX2 and FMA, the sums be there for the panel, as well as what is added to them, and there be room for what is
/// made: whole panels of what is kept, the outputs of as many channels.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn from_places(sums: Sums<i32>, before: Before, after: After, made: Made<u8>) {
    let mut rows = [[[_mm256_setzero_si256(); READ]; 2]; WRITTEN];
    for j in 0..READ {
        for half in 0..2 {
            let from = sums.at.wrapping_add(j * sums.distance + half * Avx2::LANES);
            let mut column = [_mm256_setzero_si256(); READ];
            for (i, sum) in column.iter_mut().enumerate() {
                // SAFETY: by contract.
                *sum = unsafe { Avx2::load(from.wrapping_add(i * READ * sums.distance)) };
            }
            for (row, made) in rows.iter_mut().zip(four(column)) {
                row[half][j] = made;
            }
        }
    }
    for (i, (&[low, high], factors)) in rows.iter().zip(FACTORS).enumerate().take(made.rows) {
        let (low, high) = (four(low), four(high));
        let mut outputs = [[_mm256_setzero_si256(); 2]; WRITTEN];
        for j in 0..WRITTEN {
            let factor = _mm256_set1_epi32(factors[j]);
            let before = before.at.wrapping_add((i * WRITTEN + j) * before.step);
            for (half, sum) in [low[j], high[j]].into_iter().enumerate() {
                let sum = _mm256_srai_epi32::<{ SHIFT as i32 }>(_mm256_mullo_epi32(sum, factor));
                // SAFETY: by contract.
                let before = unsafe { Avx2::load(before.wrapping_add(half * Avx2::LANES)) };
                outputs[j][half] = _mm256_add_epi32(sum, before);
            }
        }
        match after {
            After::Kept(to, step) => {
                for (j, halves) in outputs.into_iter().enumerate() {
                    let to = to.wrapping_add((i * WRITTEN + j) * step);
                    for (half, sum) in halves.into_iter().enumerate() {
                        // SAFETY: by contract.
                        unsafe { _mm256_storeu_si256(to.wrapping_add(half * Avx2::LANES).cast(), sum) };
                    }
                }
            }
            After::Bytes(finish) => {
                let (pairs, _) = outputs.as_chunks::<2>();
                let mut nowhere = [0u8; COLUMNS];
                for (pair, &sums) in pairs.iter().enumerate() {
                    let to = [2 * pair, 2 * pair + 1].map(|j| match j < made.columns {
                        true => made.to.wrapping_add(i * made.line + j * made.pixel),
                        false => nowhere.as_mut_ptr(),
                    });
                    // SAFETY: by contract.
                    unsafe { Avx2::store(finish.bytes(sums), to, made.channels.min(COLUMNS)) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_has_an_inverse() {
        assert_eq!(inverse(9).wrapping_mul(9), 1);
        assert_eq!(FACTORS[0][0], inverse(9), "which is as much too large as any");
        assert_eq!(FACTORS[3][3], inverse(9) << 4);
    }
}
