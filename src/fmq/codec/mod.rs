//! The packets of a burst, as HAL 1.2 lays them out: a number of datums of equal size, each with a tag in its first byte.
//!
//! A packet comes from a peer that may put anything into it: parsing is total, believes no count, and allocates for what
//! is there only.

mod request;
mod result;

pub use request::{Argument, RequestPacket};
pub use result::{OutputShape, ResultPacket, NO_TIMING};

/// Bytes of a datum, of a request as of a result.
pub const QUANTUM: usize = 24;

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ill-formed packet: {0}")]
pub struct IllFormed(pub &'static str);

/// One datum.
type Datum = [u8; QUANTUM];

/// Reads datums one by one.
struct Cursor<'a> {
    datums: &'a [Datum],
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, IllFormed> {
        let (datums, rest) = bytes.as_chunks::<QUANTUM>();
        match rest.is_empty() {
            true => Ok(Cursor { datums }),
            false => Err(IllFormed("half a datum")),
        }
    }

    /// How many datums are left.
    fn left(&self) -> usize {
        self.datums.len()
    }

    /// The next datum, which must have this tag.
    fn next(&mut self, tag: u8) -> Result<&'a Datum, IllFormed> {
        let (first, rest) = self.datums.split_first().ok_or(IllFormed("it ends too early"))?;
        if first[0] != tag {
            return Err(IllFormed("a datum of another kind than expected"));
        }
        self.datums = rest;
        Ok(first)
    }

    /// The next `count` datums of this tag, each by `read`. The count is a peer's.
    fn many<T>(&mut self, count: u32, tag: u8, read: impl Fn(&Datum) -> T) -> Result<Vec<T>, IllFormed> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > self.left() {
            return Err(IllFormed("a count of more than the packet holds"));
        }
        (0..count).map(|_| self.next(tag).map(&read)).collect()
    }

    fn end(self) -> Result<(), IllFormed> {
        match self.datums.is_empty() {
            true => Ok(()),
            false => Err(IllFormed("it goes on after its end")),
        }
    }
}

/// The 32-bit number at `offset` of a datum.
fn u32_at(datum: &Datum, offset: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&datum[offset..offset + 4]);
    u32::from_ne_bytes(bytes)
}

fn u64_at(datum: &Datum, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&datum[offset..offset + 8]);
    u64::from_ne_bytes(bytes)
}

/// The truth value at `offset` of a datum. C++ has but two.
fn bool_at(datum: &Datum, offset: usize) -> Result<bool, IllFormed> {
    match datum[offset] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(IllFormed("a truth value that is neither")),
    }
}

/// A datum of this tag with these 32-bit numbers from `offset` on.
fn datum(tag: u8, offset: usize, numbers: &[u32]) -> Datum {
    let mut datum = [0; QUANTUM];
    datum[0] = tag;
    for (place, number) in datum[offset..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    datum
}

/// Says how many datums there are in the first of them, right after `offset`, and gives their bytes.
fn finish(mut datums: Vec<Datum>, offset: usize) -> Vec<u8> {
    let count = u32::try_from(datums.len()).unwrap_or(u32::MAX);
    if let Some(first) = datums.first_mut() {
        first[offset..offset + 4].copy_from_slice(&count.to_ne_bytes());
    }
    datums.into_flattened()
}

#[cfg(test)]
mod tests;
