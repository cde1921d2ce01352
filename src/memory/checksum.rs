//! A sum that tells whether bytes still are those that were written.
//!
//! It finds accidents, not forgeries: who wants to makes other bytes of the same sum. So it must prove nothing that
//! steers.

/// What `bytes`, the first of which is byte `start` of a file, add to the file's sum. Shares may be added up in any
/// order, by wrapping; zeroes add nothing.
///
/// The sum is that of the file's words of eight bytes, little-endian, each times an odd number of its own.
pub fn share(start: u64, bytes: &[u8]) -> u64 {
    const WORD: u64 = 8;
    let weight = |word: u64| word.wrapping_mul(2) | 1;
    let single = |at: u64, byte: u8| (u64::from(byte) << (at % WORD * 8)).wrapping_mul(weight(at / WORD));
    let singles = |start: u64, bytes: &[u8]| {
        let each = bytes.iter().zip(start..).map(|(&byte, at)| single(at, byte));
        each.fold(0, u64::wrapping_add)
    };
    let before = start.next_multiple_of(WORD) - start;
    let (first, bytes) = bytes.split_at((before as usize).min(bytes.len()));
    let (words, last) = bytes.as_chunks::<{ WORD as usize }>();
    let start_of_words = start + before;
    let mut factor = weight(start_of_words / WORD);
    let mut sum = 0u64;
    for &word in words {
        sum = sum.wrapping_add(u64::from_le_bytes(word).wrapping_mul(factor));
        factor = factor.wrapping_add(2);
    }
    let end_of_words = start_of_words + words.len() as u64 * WORD;
    sum.wrapping_add(singles(start, first)).wrapping_add(singles(end_of_words, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_wherever_a_file_is_cut() {
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(77) ^ 0xa5).collect();
        let whole = share(0, &bytes);
        for cut in 0..=bytes.len() {
            for second in cut..=bytes.len() {
                let parts = [0..cut, cut..second, second..bytes.len()];
                let shares = parts.map(|part| share(part.start as u64, &bytes[part]));
                assert_eq!(shares.into_iter().fold(0, u64::wrapping_add), whole, "cut at {cut} and {second}");
            }
        }
        assert_eq!(share(40, &[0; 64]), 0);
    }

    #[test]
    fn changes_show() {
        let bytes: Vec<u8> = (0..4096u32).map(|i| ((i * i) >> 3) as u8 | 1).collect();
        let changed = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            share(0, &bytes)
        };
        let whole = share(0, &bytes);
        (0..bytes.len()).for_each(|at| assert_ne!(changed(&|bytes| bytes[at] ^= 0x80), whole, "byte {at}"));
        // What a file loses that is cut, and grows again.
        (0..4095).for_each(|end| assert_ne!(changed(&|bytes| bytes[..=end].fill(0)), whole, "up to {end}"));
        assert_ne!(changed(&|bytes| bytes.rotate_left(8)), whole);
        assert_ne!(changed(&|bytes| bytes.swap_with_slice(&mut [7; 4096])), whole);
    }
}
