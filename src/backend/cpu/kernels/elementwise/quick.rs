//! Bytes by way of floats, where those are sure of what they round to, with the bytes of exact arithmetic. Nothing here knows
//! the operation.
//!
//! What is rounded lies between 256 and 512, so that a float's bits are a whole number, whose lowest byte is the result, above
//! 15 bits of fraction. A half is added before, and what is unsure: a fraction that is nearly nothing is in doubt then.

use super::functions::OfTwo;

/// Pairs of bytes that have no second look one by one: where one is in doubt, all are computed exactly. As many as the
/// widest vector makes at once: what several vectors have put together in memory would be waited for when it is read.
const BLOCK: usize = 16;

/// Bits of a fraction.
const FRACTION: u32 = 15;
const FRACTIONS: f64 = (1 << FRACTION) as f64;
/// More than any byte.
const ABOVE: f64 = 256.0;
/// What a float less than 512 may lose when it is rounded.
pub const ROUNDED: f64 = 512.0 * HALF_UNIT;
/// What a float loses at most when it is rounded, of its size.
pub const HALF_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// How results are read from floats.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Fractions less than this are in doubt.
    doubtful: u32,
    lo: f32,
    hi: f32,
    /// What unsigned bytes are xored with to be the output's.
    flip: u8,
}

impl Reading {
    /// For results that are at most `unsure` off, as the numbers of unsigned bytes from `lo` to `hi`. `None` where too many
    /// would be in doubt.
    pub fn new(unsure: f64, (lo, hi): (i32, i32), flip: u8) -> Option<Self> {
        /// One pair of a hundred is in doubt then.
        const MOST: f64 = 1.0 / 200.0;
        let bound = |byte: i32| (f64::from(byte) + ABOVE + 0.5) as f32;
        let is_sensible = unsure < MOST && 0 <= lo && lo <= hi && hi < 256;
        is_sensible.then(|| {
            let doubtful = 2 * (unsure * FRACTIONS).ceil() as u32;
            Reading { doubtful, lo: bound(lo), hi: bound(hi), flip }
        })
    }

    /// What is to be added to results.
    pub fn start(self) -> f64 {
        ABOVE + 0.5 + f64::from(self.doubtful / 2) / FRACTIONS
    }

    /// The byte of a result to which the start was added, and whether it is in doubt.
    #[inline(always)]
    fn byte(self, result: f32) -> (u8, bool) {
        // Not clamp(), nor max(), which have more to do for a NaN. The bounds have a half for a fraction.
        let result = if result > self.lo { result } else { self.lo };
        let result = if result < self.hi { result } else { self.hi };
        let bits = result.to_bits();
        ((bits >> FRACTION) as u8 ^ self.flip, bits & ((1 << FRACTION) - 1) < self.doubtful)
    }
}

/// What becomes of two bytes, quickly and exactly.
pub struct Quick<R, E> {
    /// The result before it is rounded, with the reading's start added.
    pub real: R,
    pub reading: Reading,
    pub exact: E,
}

impl<R: Fn(u8, u8) -> f32, E: Fn(u8, u8) -> u8> Quick<R, E> {
    /// Puts at most a block.
    #[inline(always)]
    fn block(&self, len: usize, get: impl Fn(usize) -> (u8, u8), mut put: impl FnMut(usize, u8)) {
        let (mut bytes, mut doubts) = ([0; BLOCK], 0);
        for (i, byte) in bytes[..len].iter_mut().enumerate() {
            let (a, b) = get(i);
            let doubt;
            (*byte, doubt) = self.reading.byte((self.real)(a, b));
            doubts |= u32::from(doubt);
        }
        if doubts != 0 {
            for (i, byte) in bytes[..len].iter_mut().enumerate() {
                let (a, b) = get(i);
                *byte = (self.exact)(a, b);
            }
        }
        for (i, &byte) in bytes[..len].iter().enumerate() {
            put(i, byte);
        }
    }
}

// SAFETY: blocks are parts of `0..len`.
unsafe impl<R, E> OfTwo<u8, u8> for Quick<R, E>
where
    R: Fn(u8, u8) -> f32 + Send + Sync,
    E: Fn(u8, u8) -> u8 + Send + Sync,
{
    #[inline(always)]
    fn run(&self, len: usize, get: impl Fn(usize) -> (u8, u8), mut put: impl FnMut(usize, u8)) {
        let whole = len - len % BLOCK;
        for start in (0..whole).step_by(BLOCK) {
            // A length known to the compiler makes loops of vectors.
            self.block(BLOCK, |i| get(start + i), |i, byte| put(start + i, byte));
        }
        self.block(len - whole, |i| get(whole + i), |i, byte| put(whole + i, byte));
    }
}
