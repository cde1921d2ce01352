//! What is remembered of one compilation, and how it looks in the table.

/// A client's name for a compilation.
pub type Token = [u8; 32];

/// Whose entry it is, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub uid: u32,
    pub token: Token,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of the model cache.
    pub hash: [u8; 32],
    pub model_len: u64,
    pub data_len: u64,
    /// Of the data cache, in the driver's own store only: a client's is not proven.
    pub data_hash: Option<[u8; 32]>,
}

/// A key, its record, and when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub record: Record,
    /// A larger number for a later use.
    pub last_use: u64,
}

pub(super) type KeyBytes = [u8; 36];
pub(super) type EntryBytes = [u8; 88];

/// What stands in the table where there is no hash.
const NO_HASH: [u8; 32] = [0; 32];

impl Key {
    pub(super) fn to_bytes(self) -> KeyBytes {
        let mut bytes = [0; 36];
        bytes[..4].copy_from_slice(&self.uid.to_be_bytes());
        bytes[4..].copy_from_slice(&self.token);
        bytes
    }

    pub(super) fn from_bytes(bytes: &KeyBytes) -> Self {
        Key { uid: u32::from_be_bytes(part(bytes, 0)), token: part(bytes, 4) }
    }
}

impl Entry {
    /// Bytes of model and data cache together.
    pub fn bytes(&self) -> u64 {
        self.record.model_len.saturating_add(self.record.data_len)
    }

    pub(super) fn to_bytes(self) -> EntryBytes {
        let mut bytes = [0; 88];
        bytes[..32].copy_from_slice(&self.record.hash);
        bytes[32..64].copy_from_slice(&self.record.data_hash.unwrap_or(NO_HASH));
        for (to, number) in
            bytes[64..].chunks_exact_mut(8).zip([self.record.model_len, self.record.data_len, self.last_use])
        {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(key: Key, bytes: &EntryBytes) -> Self {
        let number = |at| u64::from_le_bytes(part(bytes, at));
        let data_hash = Some(part(bytes, 32)).filter(|hash| *hash != NO_HASH);
        let record = Record { hash: part(bytes, 0), model_len: number(64), data_len: number(72), data_hash };
        Entry { key, record, last_use: number(80) }
    }
}

/// The bytes from `at` on, which are there.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
