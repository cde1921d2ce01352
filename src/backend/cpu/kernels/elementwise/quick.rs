//! Bytes by way of floats, where those are sure of what they round to, with the bytes of exact arithmetic. Nothing here knows
//! the operation.

use super::loops::OfTwo;

/// Pairs of bytes that have no second look one by one: where one is in doubt, all are computed exactly.
const BLOCK: usize = 64;

/// What becomes of two bytes, quickly and exactly.
pub struct Quick<R, E> {
    /// The result before it is rounded, as the number of an unsigned byte and within its bounds.
    pub real: R,
    /// How far `real` may be from what `exact` rounds: a number that is so close to the middle between two is in doubt.
    pub unsure: f32,
    /// What unsigned bytes are xored with to be the output's.
    pub flip: u8,
    pub exact: E,
}

impl<R: Fn(u8, u8) -> f32, E: Fn(u8, u8) -> u8> Quick<R, E> {
    /// The byte, and whether it is in doubt.
    #[inline(always)]
    fn byte(&self, (a, b): (u8, u8)) -> (u8, bool) {
        /// A float of this size has no fraction, and its lowest byte is that of the number added to it.
        const WHOLE: f32 = (3 << 22) as f32;
        let real = (self.real)(a, b);
        let shifted = real + WHOLE;
        let off = (real - (shifted - WHOLE)).abs();
        (shifted.to_bits() as u8 ^ self.flip, off > 0.5 - self.unsure)
    }

    /// Puts at most a block.
    #[inline(always)]
    fn block(&self, len: usize, get: impl Fn(usize) -> (u8, u8), mut put: impl FnMut(usize, u8)) {
        let (mut bytes, mut doubts) = ([0; BLOCK], 0);
        for (i, byte) in bytes[..len].iter_mut().enumerate() {
            let doubt;
            (*byte, doubt) = self.byte(get(i));
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
