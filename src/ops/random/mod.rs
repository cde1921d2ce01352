//! Operations built on pseudo-random numbers and hashes: sampling and locality-sensitive hashing.

mod fingerprint;
mod lsh_projection;
mod multinomial;
mod philox;

pub use lsh_projection::LSH_PROJECTION;
pub use multinomial::RANDOM_MULTINOMIAL;
