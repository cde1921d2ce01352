//! The integer sums of tiles of 4 x 4 output bytes, which are exact, in vectors of either width.
//!
//! With the points 0, 1, -1, 2, -2 and infinity, along each dimension, places are sums `B d` of inputs that fit 16 bits: at most
//! 10 times an input, so 100 times one of 128 at most. The matrices have `G g` without its fractions (see
//! [`matrices`](super::matrices)), which leaves outputs a known multiple too large: 24, 12, 6 and 6 along either dimension.
//!
//! That multiple is three times a power of two, along both dimensions nine times 2^6 at most. Sums go round at 32 bits. An odd
//! factor is taken out by its inverse for numbers of 32 bits, and a power of two by shifting: what is left are the lower 26 bits
//! of an output's sum at least, with its sign. So sums must be less than 2^25 either way ([`MOST`]).

use super::super::gemm::{multiply_words, multiply_words_512, Lanes, Requant};
use super::super::simd::{Avx2, Avx512};
use super::words_x86::Words;
use super::{Made, Sums};

/// Outputs and inputs of a tile along each dimension.
pub const WRITTEN: usize = 4;
const READ: usize = 6;
/// Channels of an input at least.
pub const LEAST: usize = <Avx2 as Words>::WORDS;
/// A sum, without its bias, is less than this, positive or negative.
pub const MOST: usize = 1 << 25;

/// Makes the places of a tile, `apart` words from one to the next, of the pixels under it, row by row: of signed bytes, or of
/// unsigned ones less 128.
///
/// # Safety
/// The machine must have what the vectors need, pointers be valid for so many channels, at least as many as a vector has words,
/// and there be room for them at each place.
#[inline(always)]
unsafe fn to_places<V: Words, const SIGNED: bool>(
    from: &[*const u8; READ * READ],
    channels: usize,
    to: *mut i16,
    apart: usize,
) {
    let flip = if SIGNED { 0 } else { i8::MIN };
    for start in (0..channels).step_by(V::WORDS) {
        // The last vector makes some once more.
        let start = start.min(channels - V::WORDS);
        // SAFETY: so many channels can be read, and there is room for what is made of them.
        unsafe {
            let mut columns = [column::<V>(from, start, flip); READ];
            for j in 1..READ {
                columns[j] = column::<V>(&from[j..], start, flip);
            }
            let [a, b, c, d, e, f] = columns;
            for i in 0..READ {
                for (j, made) in six::<V>([a[i], b[i], c[i], d[i], e[i], f[i]]).into_iter().enumerate() {
                    V::put_words(made, to.wrapping_add((i * READ + j) * apart + start));
                }
            }
        }
    }
}

/// What becomes of a column of pixels, from the first of these on, of which each line has six.
///
/// # Safety
/// As for [`to_places`].
#[inline(always)]
unsafe fn column<V: Words>(from: &[*const u8], start: usize, flip: i8) -> [V::W; READ] {
    // SAFETY: by contract.
    unsafe {
        six::<V>([
            V::widened(from[0].wrapping_add(start), flip),
            V::widened(from[READ].wrapping_add(start), flip),
            V::widened(from[2 * READ].wrapping_add(start), flip),
            V::widened(from[3 * READ].wrapping_add(start), flip),
            V::widened(from[4 * READ].wrapping_add(start), flip),
            V::widened(from[5 * READ].wrapping_add(start), flip),
        ])
    }
}

/// What becomes of six inputs along one dimension: `B d`.
///
/// # Safety
/// The machine must have what the vectors need.
#[inline(always)]
unsafe fn six<V: Words>([a, b, c, d, e, f]: [V::W; READ]) -> [V::W; READ] {
    // SAFETY: by contract.
    unsafe {
        let even = V::sub_words(e, V::shift_words::<2>(c));
        let odd = V::sub_words(d, V::shift_words::<2>(b));
        let near = V::sub_words(e, c);
        let far = V::shift_words::<1>(V::sub_words(d, b));
        [
            outer::<V>(a, c, e),
            V::add_words(even, odd),
            V::sub_words(even, odd),
            V::add_words(near, far),
            V::sub_words(near, far),
            outer::<V>(b, d, f),
        ]
    }
}

/// Four times the first, less five times the second, and the third.
///
/// # Safety
/// The machine must have what the vectors need.
#[inline(always)]
unsafe fn outer<V: Words>(x: V::W, y: V::W, z: V::W) -> V::W {
    // SAFETY: by contract.
    unsafe { V::add_words(V::shift_words::<2>(V::sub_words(x, y)), V::sub_words(z, y)) }
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
///
/// # Safety
/// The machine must have what the vectors need.
#[inline(always)]
unsafe fn four<V: Words>([a, b, c, d, e, f]: [V::I; READ]) -> [V::I; WRITTEN] {
    // SAFETY: by contract.
    unsafe {
        let (near, aside) = (V::add(b, c), V::sub(b, c));
        let (far, beyond) = (V::add(d, e), V::sub(d, e));
        [
            V::add(V::sub(a, V::shift::<2>(near)), far),
            V::sub(beyond, V::shift::<1>(aside)),
            V::sub(far, near),
            V::add(V::sub(V::shift::<1>(beyond), aside), f),
        ]
    }
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
    /// They become bytes, with the constants of a panel of this number.
    Bytes(&'a Requant, usize),
}

/// Makes the outputs of a tile, of a panel's columns, of which it has as many as are to be made.
///
/// # Safety
/// The machine must have what the vectors need, the sums be there for the panel, as well as what is added to them, and there be room
/// for what is made: whole vectors of what is kept, the outputs of as many channels.
#[inline(always)]
unsafe fn from_places<V: Words>(sums: Sums<i32>, before: Before, after: After, made: Made<u8>) {
    for (half, first) in (0..made.channels.min(2 * V::LANES)).step_by(V::LANES).enumerate() {
        let (sums, before) = (
            Sums { at: sums.at.wrapping_add(first), ..sums },
            Before { at: before.at.wrapping_add(first), ..before },
        );
        // SAFETY: by contract.
        let outputs = unsafe { outputs_of::<V>(sums, before) };
        match after {
            After::Kept(to, step) => {
                for (i, &output) in outputs.as_flattened().iter().take(made.rows * WRITTEN).enumerate() {
                    // SAFETY: by contract.
                    unsafe { V::put(output, to.wrapping_add(i * step + first)) };
                }
            }
            After::Bytes(requant, panel) => {
                let scales = requant.scales(2 * panel + half);
                // SAFETY: by contract.
                let finish = unsafe { (V::constants(&[scales; 2]), V::target(requant.target)) };
                let mut nowhere = [0u8; MOST_LANES];
                for (i, &row) in outputs.iter().enumerate().take(made.rows) {
                    let mut to = [nowhere.as_mut_ptr(); WRITTEN];
                    for (j, to) in to.iter_mut().enumerate().take(made.columns) {
                        *to = made.to.wrapping_add(i * made.line + j * made.pixel + first);
                    }
                    // SAFETY: by contract.
                    unsafe { V::store_halves(V::bytes(row, &finish.0, finish.1), to, made.channels - first) };
                }
            }
        }
    }
}

/// The outputs of a tile, of a vector of columns, with what is added to them.
///
/// # Safety
/// As for [`from_places`].
#[inline(always)]
unsafe fn outputs_of<V: Words>(sums: Sums<i32>, before: Before) -> [[V::I; WRITTEN]; WRITTEN] {
    // SAFETY: by contract.
    unsafe {
        let mut rows = [[V::splat(0); WRITTEN]; READ];
        for (i, row) in rows.iter_mut().enumerate() {
            let mut places = [V::splat(0); READ];
            for (j, place) in places.iter_mut().enumerate() {
                *place = V::load(sums.at.wrapping_add((i * READ + j) * sums.distance));
            }
            *row = four::<V>(places);
        }
        let mut outputs = [[V::splat(0); WRITTEN]; WRITTEN];
        let [a, b, c, d, e, f] = rows;
        for j in 0..WRITTEN {
            for (i, sum) in four::<V>([a[j], b[j], c[j], d[j], e[j], f[j]]).into_iter().enumerate() {
                let before = V::load(before.at.wrapping_add((i * WRITTEN + j) * before.step));
                outputs[i][j] = V::add(V::scaled::<SHIFT>(sum, FACTORS[i][j]), before);
            }
        }
        outputs
    }
}

/// Lanes of the widest vector.
const MOST_LANES: usize = Avx512::LANES;

/// What an instruction set does to tiles of bytes.
///
/// # Safety
/// The functions do what those of the same name do, and need the instruction set.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Set: Send + Sync {
    const NAME: &str;
    /// Rows and columns that are multiplied at once; the latter are a panel.
    const ROWS: usize;
    const COLUMNS: usize;

    unsafe fn to_places<const SIGNED: bool>(
        from: &[*const u8; READ * READ],
        channels: usize,
        to: *mut i16,
        apart: usize,
    );
    /// Multiplies rows of words, so many words from each other, by so many columns' pairs of words, whose panels lie one after the
    /// other: to where rows are so many sums apart.
    unsafe fn multiply(
        rows: (*const i16, usize, usize),
        weights: (*const i16, usize, usize),
        to: (*mut i32, usize),
    );
    unsafe fn from_places(sums: Sums<i32>, before: Before, after: After, made: Made<u8>);
}

macro_rules! set {
    ($set:ident, $name:literal, $features:literal, $vectors:ty, $rows:literal, $multiply:path) => {
        pub struct $set;

        // SAFETY: the functions need what the set has, and are those of the same name.
        unsafe impl Set for $set {
            const NAME: &str = $name;
            const ROWS: usize = $rows;
            const COLUMNS: usize = 2 * <$vectors>::LANES;

            unsafe fn to_places<const SIGNED: bool>(
                from: &[*const u8; READ * READ],
                channels: usize,
                to: *mut i16,
                apart: usize,
            ) {
                #[target_feature(enable = $features)]
                unsafe fn run<const SIGNED: bool>(
                    from: &[*const u8; READ * READ],
                    channels: usize,
                    to: *mut i16,
                    apart: usize,
                ) {
                    // SAFETY: the same contract. Few channels are less than a wide vector has.
                    unsafe {
                        match channels >= <$vectors>::WORDS {
                            true => to_places::<$vectors, SIGNED>(from, channels, to, apart),
                            false => to_places::<Avx2, SIGNED>(from, channels, to, apart),
                        }
                    }
                }
                // SAFETY: the same contract.
                unsafe { run::<SIGNED>(from, channels, to, apart) }
            }

            unsafe fn multiply(
                rows: (*const i16, usize, usize),
                weights: (*const i16, usize, usize),
                to: (*mut i32, usize),
            ) {
                // SAFETY: the same contract.
                unsafe { $multiply(rows, weights, to) }
            }

            unsafe fn from_places(sums: Sums<i32>, before: Before, after: After, made: Made<u8>) {
                #[target_feature(enable = $features)]
                unsafe fn run(sums: Sums<i32>, before: Before, after: After, made: Made<u8>) {
                    // SAFETY: the same contract.
                    unsafe { from_places::<$vectors>(sums, before, after, made) }
                }
                // SAFETY: the same contract.
                unsafe { run(sums, before, after, made) }
            }
        }
    };
}

set!(InAvx2, "avx2", "avx2,fma", Avx2, 6, multiply_words);
set!(InAvx512, "avx512", "avx512f,avx512bw,avx512dq,avx512vl", Avx512, 12, multiply_words_512::<false>);
set!(InVnni, "avx512-vnni", "avx512f,avx512bw,avx512dq,avx512vl", Avx512, 12, multiply_words_512::<true>);
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
