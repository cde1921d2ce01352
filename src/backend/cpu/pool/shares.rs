//! Which chunks of a call each of its threads takes first: the same part of the whole in each, as what a thread reads then mostly is
//! what it wrote. It knows neither calls nor threads.

/// The first of `chunks` chunks that thread `i` of `threads` takes by itself; the caller is thread 0. Where they are not even, those
/// have one more who begin first.
pub fn first_of(chunks: usize, i: usize, threads: usize) -> usize {
    chunks / threads * i + (chunks % threads).min(i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_about_even_and_the_first_are_larger() {
        for (chunks, threads) in [(0, 2), (1, 2), (5, 2), (8, 3), (65_535, 64)] {
            let firsts: Vec<usize> = (0..=threads).map(|i| first_of(chunks, i, threads)).collect();
            assert_eq!((firsts[0], firsts[threads]), (0, chunks));
            let shares: Vec<usize> = firsts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[threads - 1] <= 1, "{shares:?}");
        }
    }
}
