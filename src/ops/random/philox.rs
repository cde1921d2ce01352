//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
//!
//! The interface's reference samples with it: the same seed gives the same stream here as there.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Added to the key after each round: the golden ratio and the square root of 3.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One block of four random words.
fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let b = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// A stream of random numbers.
pub struct Philox {
    counter: u128,
    key: [u32; 2],
    words: [u32; 4],
    /// Words of the block that have been given out.
    used: usize,
}

impl Philox {
    /// The stream of two seeds: one is the key, the other the upper half of the counter.
    pub fn new(seed: i64, seed2: i64) -> Self {
        let counter = u128::from(seed2 as u64) << 64;
        Philox { counter, key: [seed as u32, (seed >> 32) as u32], words: [0; 4], used: 4 }
    }

    fn word(&mut self) -> u32 {
        if self.used == 4 {
            let counter = [0, 32, 64, 96].map(|shift| (self.counter >> shift) as u32);
            self.words = block(counter, self.key);
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// A number in [0, 1), from the lower 20 bits of one word and all of the next.
    pub fn unit(&mut self) -> f64 {
        let high = u64::from(self.word() & 0xf_ffff);
        let mantissa = high << 32 | u64::from(self.word());
        mantissa as f64 / (1u64 << 52) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors of the generator publish with it.
    #[test]
    fn gives_the_known_answers() {
        assert_eq!(block([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            block([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn seeds_are_key_and_upper_counter() {
        let mut stream = Philox::new(-2, 7);
        let expected: Vec<u32> =
            (0..2).flat_map(|i| block([i, 0, 7, 0], [0xffff_fffe, 0xffff_ffff])).collect();
        assert_eq!((0..8).map(|_| stream.word()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn units_are_below_one() {
        let mut stream = Philox::new(1, 2);
        let units: Vec<f64> = (0..10_000).map(|_| stream.unit()).collect();
        assert!(units.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = units.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "mean {mean}");
    }
}
