//! What is remembered of one compilation, and how it looks in the table.
//!
//! One token may stand for several files: two processes of a client use it, each with a directory of its own.

/// A client's name for a compilation.
pub type Token = [u8; 32];

/// Whose entry it is, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub uid: u32,
    pub token: Token,
}

/// Device and inode of the model cache that an entry was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    /// Of the driver's own store, where a key has one file only.
    pub const STORE: FileId = FileId { device: 0, inode: 0 };
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of the model cache.
    pub hash: [u8; 32],
    pub model_len: u64,
    pub data_len: u64,
    /// Of the data cache, in the driver's own store only: a client's has a checksum, no proof.
    pub data_hash: Option<[u8; 32]>,
    /// Tells models apart: under one token, only files of the same model are remembered.
    pub model: u64,
}

/// A key and file, its record, and when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub file: FileId,
    pub record: Record,
    /// A larger number for a later use.
    pub last_use: u64,
}

pub(super) type KeyBytes = [u8; 52];
pub(super) type EntryBytes = [u8; 96];

/// What stands in the table where there is no hash.
const NO_HASH: [u8; 32] = [0; 32];

impl Key {
    fn at(self, device: u64, inode: u64) -> KeyBytes {
        let mut bytes = [0; 52];
        bytes[..4].copy_from_slice(&self.uid.to_be_bytes());
        bytes[4..36].copy_from_slice(&self.token);
        bytes[36..44].copy_from_slice(&device.to_be_bytes());
        bytes[44..].copy_from_slice(&inode.to_be_bytes());
        bytes
    }

    /// The table's keys of this client and token, from the first possible one to the last.
    pub(super) fn range(self) -> [KeyBytes; 2] {
        [self.at(0, 0), self.at(u64::MAX, u64::MAX)]
    }
}

impl Entry {
    /// Bytes of model and data cache together.
    pub fn bytes(&self) -> u64 {
        self.record.model_len.saturating_add(self.record.data_len)
    }

    /// What the table knows it by.
    pub(super) fn key_bytes(&self) -> KeyBytes {
        self.key.at(self.file.device, self.file.inode)
    }

    pub(super) fn to_bytes(self) -> EntryBytes {
        let Record { hash, model_len, data_len, data_hash, model } = self.record;
        let mut bytes = [0; 96];
        bytes[..32].copy_from_slice(&hash);
        bytes[32..64].copy_from_slice(&data_hash.unwrap_or(NO_HASH));
        let numbers = [model_len, data_len, self.last_use, model];
        for (to, number) in bytes[64..].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(key: &KeyBytes, bytes: &EntryBytes) -> Self {
        let number = |at| u64::from_le_bytes(part(bytes, at));
        let data_hash = Some(part(bytes, 32)).filter(|hash| *hash != NO_HASH);
        let [device, inode] = [36, 44].map(|at| u64::from_be_bytes(part(key, at)));
        Entry {
            key: Key { uid: u32::from_be_bytes(part(key, 0)), token: part(key, 4) },
            file: FileId { device, inode },
            record: Record {
                hash: part(bytes, 0),
                model_len: number(64),
                data_len: number(72),
                data_hash,
                model: number(88),
            },
            last_use: number(80),
        }
    }
}

/// The bytes from `at` on, which are there.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
