//! FarmHash's 64-bit fingerprint of a seed and an item, which is never copied whole: it may be a gigabyte, and hashing it
//! comes by yield points.
//!
//! Two lanes of two words, and three words beside them, take 64 bytes at a time; the last 64 bytes, which may overlap those
//! before them, are taken once more by another multiplier. Short ones are for the crate; of long ones that are whole blocks it
//! takes one block more than FarmHash, and so than what NNAPI's own evaluation calls.

use crate::ops::pace::Pace;
use crate::ops::OpError;

const BLOCK: usize = 64;
/// Blocks between two looks whether to stop.
const BLOCKS: usize = 1 << 10;

/// FarmHash's multipliers: primes between 2^63 and 2^64.
const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// The fingerprint of `seed` followed by `item`.
pub fn fingerprint(seed: [u8; 4], item: &[u8], pace: &mut Pace) -> Result<u64, OpError> {
    let len = seed.len() + item.len();
    pace.spend(16 + len.min(BLOCK))?;
    // The bytes from `start` on.
    let read = |start: usize, to: &mut [u8]| {
        for (i, to) in to.iter_mut().enumerate() {
            let at = start + i;
            *to = if at < seed.len() { seed[at] } else { item[at - seed.len()] };
        }
    };
    let mut block = [0; BLOCK];
    if len <= BLOCK {
        read(0, &mut block[..len]);
        return Ok(farmhash::fingerprint64(&block[..len]));
    }
    read(0, &mut block);
    let mut state = State::new(word(&block, 0));
    state.mix(&block, K1, 1);
    // Whole blocks, but for the last if all ends with it.
    let blocks = (len - 1) / BLOCK;
    let body = &item[BLOCK - seed.len()..blocks * BLOCK - seed.len()];
    for blocks in body.chunks(BLOCKS * BLOCK) {
        pace.spend(blocks.len())?;
        blocks.as_chunks::<BLOCK>().0.iter().for_each(|block| state.mix(block, K1, 1));
    }
    read(len - BLOCK, &mut block);
    Ok(state.finish(&block, (len - 1) % BLOCK))
}

struct State {
    x: u64,
    y: u64,
    z: u64,
    v: [u64; 2],
    w: [u64; 2],
}

impl State {
    fn new(first: u64) -> Self {
        const SEED: u64 = 81;
        let y = SEED.wrapping_mul(K1).wrapping_add(113);
        let z = shifted(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
        State { x: SEED.wrapping_mul(K2).wrapping_add(first), y, z, v: [0; 2], w: [0; 2] }
    }

    /// Takes a block; `often` is how many times as much the lanes count in the other words.
    fn mix(&mut self, block: &[u8; BLOCK], by: u64, often: u64) {
        let State { x, y, z, v, w } = self;
        let sum = |words: &[u64]| words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        let turned = |words: &[u64], bits| sum(words).rotate_right(bits).wrapping_mul(by);
        *x = turned(&[*x, *y, v[0], word(block, 1)], 37) ^ w[1].wrapping_mul(often);
        *y = turned(&[*y, v[1], word(block, 6)], 42);
        *y = sum(&[*y, v[0].wrapping_mul(often), word(block, 5)]);
        *z = turned(&[*z, w[0]], 33);
        *v = lane(block, 0, v[1].wrapping_mul(by), sum(&[*x, w[0]]));
        *w = lane(block, 4, sum(&[*z, w[1]]), sum(&[*y, word(block, 2)]));
        std::mem::swap(z, x);
    }

    /// Takes the last 64 bytes; so many bytes, less one, are beyond the blocks that were taken.
    fn finish(mut self, last: &[u8; BLOCK], beyond: usize) -> u64 {
        let by = K1.wrapping_add((self.z & 0xff) << 1);
        self.w[0] = self.w[0].wrapping_add(beyond as u64);
        self.v[0] = self.v[0].wrapping_add(self.w[0]);
        self.w[0] = self.w[0].wrapping_add(self.v[0]);
        self.mix(last, by, 9);
        let State { x, y, z, v, w } = self;
        let first = joined(v[0], w[0], by).wrapping_add(shifted(y).wrapping_mul(K0)).wrapping_add(z);
        joined(first, joined(v[1], w[1], by).wrapping_add(x), by)
    }
}

/// The block's word of this number.
fn word(block: &[u8; BLOCK], at: usize) -> u64 {
    u64::from_le_bytes(block.as_chunks::<8>().0[at])
}

/// A lane after the four words from `first` on.
fn lane(block: &[u8; BLOCK], first: usize, a: u64, b: u64) -> [u64; 2] {
    let [w, x, y, z] = [0, 1, 2, 3].map(|i| word(block, first + i));
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let c = a.wrapping_add(x).wrapping_add(y);
    [c.wrapping_add(z), b.wrapping_add(c.rotate_right(44)).wrapping_add(a)]
}

fn shifted(x: u64) -> u64 {
    x ^ (x >> 47)
}

/// One word of two.
fn joined(u: u64, v: u64, by: u64) -> u64 {
    let a = shifted((u ^ v).wrapping_mul(by));
    shifted((v ^ a).wrapping_mul(by)).wrapping_mul(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Counting;

    #[test]
    fn fingerprints_are_farmhash_whatever_the_length() {
        let (seed, interrupt) = ([1, 2, 3, 255], Counting::default());
        let item: Vec<u8> =
            (0..3 * (BLOCKS * BLOCK) as u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
        let lengths =
            (0..400).chain((1..4).flat_map(|n| [-5, -4, -3, 0].map(|by| (n * BLOCKS * BLOCK) as i32 + by)));
        let ours = |len: usize| fingerprint(seed, &item[..len], &mut Pace::of(&interrupt));
        for len in lengths.map(|len| len as usize) {
            let whole = [&seed[..], &item[..len]].concat();
            if whole.len() <= BLOCK || !whole.len().is_multiple_of(BLOCK) {
                assert_eq!(ours(len), Ok(farmhash::fingerprint64(&whole)), "{len} bytes");
            }
        }
        // By FarmHash itself (PyPI's pyfarmhash).
        let whole_blocks = [
            (124, 0x0468_6103_2549_1c43),
            (188, 0xae4c_1b23_c7bc_e369),
            (3 * BLOCKS * BLOCK - 4, 0xb61e_83b9_3b9e_8567),
        ];
        for (len, fingerprint) in whole_blocks {
            assert_eq!(ours(len), Ok(fingerprint), "{len} bytes");
        }
    }
}
