//! The cache files of one compilation: a client's, so of any size, at any offset, and in anybody's hands.
//!
//! Must not lock them, nor ask whether they are locked: Android's policy allows no driver that, and a lock is the client's
//! own affair. In this process nobody reads what another writes. What anybody else writes meanwhile is found by the hash
//! of the model and the stamp of the data.

use super::mapped;
use super::{CacheError, Place, DATA_FILES, MODEL_FILES};
use crate::memory::{check_blocking, guarded_len, stamp_start, Mapping, MemoryError, Weights};
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for files that others use.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes at the end of a data cache that tell which model cache it was written with.
const STAMP: usize = 8;

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// How a data cache looks from outside: its length, and when it last changed. It tells of most changes, not of all: to a
/// mapping, or within the same few milliseconds. More would not be worth its price, as data decide nothing but values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    len: u64,
    changed: (i64, i64),
}

/// Duplicates of a client's cache files, checked.
#[derive(Debug)]
pub struct CacheFiles {
    model: File,
    data: File,
    /// Of both.
    identities: [Identity; 2],
}

impl CacheFiles {
    /// Checks the files' number and access, and keeps duplicates.
    pub fn new<F: AsFd>(models: &[F], data: &[F]) -> Result<Self, CacheError> {
        let ([model], [data]) = (models, data) else {
            const { assert!(MODEL_FILES == 1 && DATA_FILES == 1) };
            return Err(CacheError::Count { models: models.len(), data: data.len() });
        };
        let (model, model_identity) = duplicate("model", model.as_fd())?;
        let (data, data_identity) = duplicate("data", data.as_fd())?;
        if model_identity == data_identity {
            return Err(CacheError::SameFile);
        }
        Ok(CacheFiles { model, data, identities: [model_identity, data_identity] })
    }

    /// Waits, for a while, until nobody else in this process reads or writes these files.
    pub fn lock(&self) -> Result<Lock<'_>, CacheError> {
        let deadline = Instant::now() + PATIENCE;
        let mut in_use = in_use();
        while self.identities.iter().any(|file| in_use.contains(file)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let (guard, timeout) =
                IN_USE.1.wait_timeout(in_use, left).unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return Err(CacheError::Busy);
            }
            in_use = guard;
        }
        in_use.extend(self.identities);
        Ok(Lock { files: self })
    }
}

/// Files that this process reads or writes, and a bell for when there are fewer of them.
static IN_USE: LazyLock<(Mutex<HashSet<Identity>>, Condvar)> = LazyLock::new(Default::default);

fn in_use() -> MutexGuard<'static, HashSet<Identity>> {
    IN_USE.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn duplicate(what: &'static str, fd: BorrowedFd) -> Result<(File, Identity), CacheError> {
    let io = |why| CacheError::Io { what, why };
    // Before anything that who serves the file would have to answer.
    check_blocking(fd).map_err(|why| match why {
        MemoryError::Unsupported(_) => CacheError::Served(what),
        _ => CacheError::Access(what),
    })?;
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(|why| io(why.into()))?;
    let flags = OFlag::from_bits_truncate(flags);
    let file = File::from(fd.try_clone_to_owned().map_err(io)?);
    let facts = file.metadata().map_err(io)?;
    // Reading from anything but a file could wait for ever, and what is written to one that appends goes astray.
    let usable = flags & OFlag::O_ACCMODE == OFlag::O_RDWR
        && !flags.intersects(OFlag::O_PATH | OFlag::O_APPEND)
        && facts.is_file();
    if !usable {
        return Err(CacheError::Access(what));
    }
    Ok((file, (facts.dev(), facts.ino())))
}

/// Cache files that nobody else in this process uses.
#[derive(Debug)]
pub struct Lock<'f> {
    files: &'f CacheFiles,
}

impl Lock<'_> {
    /// Where the model cache is.
    pub fn place(&self) -> Place {
        let (device, inode) = self.files.identities[0];
        Place { device, inode }
    }

    /// Writes both files, from their starts and whatever they held before.
    pub fn write(&self, model: &[u8], data: &[(u64, Weights)], data_len: u64) -> Result<(), CacheError> {
        let model_io = |why| CacheError::Io { what: "model", why };
        let data_io = |why| CacheError::Io { what: "data", why };
        let file = &self.files.data;
        self.files.model.set_len(0).map_err(model_io)?;
        // Emptied first, and stamped last, so that nobody takes a mixture for whole.
        file.set_len(0).map_err(data_io)?;
        for_each_part(data, |start, bytes| file.write_all_at(bytes, start).map_err(data_io))?;
        file.set_len(data_file_len(data_len)?).map_err(data_io)?;
        if let (Some(start), Some(stamp)) = (stamp_start(data_len), model.first_chunk::<STAMP>()) {
            if data_len > 0 {
                file.write_all_at(stamp, start).map_err(data_io)?;
            }
        }
        file.sync_data().map_err(data_io)?;
        self.files.model.write_all_at(model, 0).map_err(model_io)
    }

    /// Makes `bytes` all that the model cache holds.
    pub fn write_model(&self, bytes: &[u8]) -> Result<(), CacheError> {
        let io = |why| CacheError::Io { what: "model", why };
        self.files.model.set_len(0).map_err(io)?;
        self.files.model.write_all_at(bytes, 0).map_err(io)
    }

    pub fn look_at_data(&self) -> Result<Look, CacheError> {
        let facts = self.files.data.metadata().map_err(|why| CacheError::Io { what: "data", why })?;
        Ok(Look { len: facts.len(), changed: (facts.ctime(), facts.ctime_nsec()) })
    }

    /// Whether a prepared model of this process computes with the data cache.
    pub fn is_mapped(&self) -> bool {
        mapped::contains(self.files.identities[1])
    }

    /// A private copy of the model cache, which must have one of these `lengths`.
    pub fn read_model(&self, mut lengths: impl Iterator<Item = u64>) -> Result<Vec<u8>, CacheError> {
        let io = |why| CacheError::Io { what: "model", why };
        let len = self.files.model.metadata().map_err(io)?.len();
        if !lengths.any(|expected| expected == len) {
            return Err(CacheError::Changed);
        }
        // What the registry says was written by this driver, within its limits.
        let mut model = vec![0; usize::try_from(len).map_err(|_| CacheError::Changed)?];
        self.files.model.read_exact_at(&mut model, 0).map_err(io)?;
        Ok(model)
    }

    /// The first `len` bytes of the data cache, mapped: for files that only this driver writes.
    pub fn map_data(&self, len: u64) -> Result<Arc<Mapping>, CacheError> {
        let mapping = match usize::try_from(len) {
            Ok(0) => return Mapping::anonymous(0).map(Arc::new).map_err(CacheError::Data),
            Ok(len) => Mapping::guarded(self.files.data.as_fd(), len),
            Err(_) => return Err(CacheError::Changed),
        };
        let mapping = mapping.map(Arc::new).map_err(CacheError::Data)?;
        mapped::insert(self.files.identities[1], &mapping);
        Ok(mapping)
    }

    /// A private copy of the first `len` bytes of the data cache, which must have been written together with `model`: from
    /// here on its files may change, or vanish.
    pub fn copy_data(&self, len: u64, model: &[u8]) -> Result<Arc<Mapping>, CacheError> {
        let io = |why| CacheError::Io { what: "data", why };
        let Some(stamp_at) = stamp_start(len).filter(|_| len > 0) else {
            return Mapping::anonymous(0).map(Arc::new).map_err(CacheError::Data);
        };
        let bytes = usize::try_from(len).map_err(|_| CacheError::Changed)?;
        let copy = Mapping::private_copy(&self.files.data, bytes).map_err(CacheError::Data)?;
        // Afterwards: who writes the file anew meanwhile empties it first, and stamps it last.
        let mut stamp = [0; STAMP];
        let whole = self.files.data.metadata().map_err(io)?.len() >= data_file_len(len)?;
        if !whole
            || self.files.data.read_exact_at(&mut stamp, stamp_at).is_err()
            || !model.starts_with(&stamp)
        {
            return Err(CacheError::DataChanged);
        }
        Ok(Arc::new(copy))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let mut in_use = in_use();
        in_use.retain(|file| !self.files.identities.contains(file));
        drop(in_use);
        IN_USE.1.notify_all();
    }
}

/// How long the file of so much data is: it ends in what tells whether it is whole.
pub fn data_file_len(data_len: u64) -> Result<u64, CacheError> {
    match data_len {
        0 => Ok(0),
        len => guarded_len(len).ok_or(CacheError::TooLarge(usize::MAX)),
    }
}

/// Calls `each(start, bytes)` for all bytes of a data cache in order, with zeroes between its parts.
pub fn for_each_part(
    data: &[(u64, Weights)],
    mut each: impl FnMut(u64, &[u8]) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    let mut end = 0;
    for (start, part) in data {
        let gap = start.saturating_sub(end) as usize;
        each(end, &vec![0; gap])?;
        let bytes = part.to_private().map_err(CacheError::Data)?;
        each(*start, &bytes)?;
        end = start + bytes.len() as u64;
    }
    Ok(())
}

/// Bytes that nobody can guess.
pub fn salt<const N: usize>() -> Result<[u8; N], CacheError> {
    let mut salt = [0; N];
    getrandom::fill(&mut salt).map_err(|why| CacheError::Io { what: "model", why: why.into() })?;
    Ok(salt)
}
