//! How long the tests go on that do the same again and again: briefly in CI, and as long as `NNHAL_CAMPAIGN=long` asks.

/// How much of its work a test does: what `variable` says, or else `long` in the long campaign and `usual` otherwise.
pub fn amount(variable: &str, usual: u64, long: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")),
        Err(_) if std::env::var("NNHAL_CAMPAIGN").as_deref() == Ok("long") => long,
        Err(_) => usual,
    }
}
