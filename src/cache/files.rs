//! The cache files of one compilation: a client's, so of any size, at any offset, and in anybody's hands.
//!
//! Must not wait for a client: it may hold a lock for ever. Whoever waits for files gives up after a while.

use super::mapped;
use super::{CacheError, DATA_FILES, MODEL_FILES};
use crate::memory::{check_blocking, guarded_len, stamp_start, Mapping, MemoryError, Weights};
use nix::fcntl::{fcntl, FcntlArg, FlockArg, OFlag};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for files that others use.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// What files are locked for: others may read together with who reads, and nobody with who writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Purpose {
    Read,
    Write,
}

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

    /// Waits, for a while, until nobody else reads or writes these files. In this process nobody does both at once,
    /// for descriptors that a client duplicated share one lock of the kernel's.
    pub fn lock(&self, purpose: Purpose) -> Result<Lock<'_>, CacheError> {
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
        drop(in_use);
        let lock = Lock { files: self };
        // Against other processes.
        while !lock.try_flock(purpose) {
            if Instant::now() >= deadline {
                return Err(CacheError::Busy);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(lock)
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
    // Reading from anything but a file could wait for ever.
    let usable =
        flags & OFlag::O_ACCMODE == OFlag::O_RDWR && !flags.contains(OFlag::O_PATH) && facts.is_file();
    if !usable {
        return Err(CacheError::Access(what));
    }
    Ok((file, (facts.dev(), facts.ino())))
}

/// Cache files that nobody else uses, as far as anybody asks.
#[derive(Debug)]
pub struct Lock<'f> {
    files: &'f CacheFiles,
}

impl Lock<'_> {
    fn try_flock(&self, purpose: Purpose) -> bool {
        let operation = match purpose {
            Purpose::Read => FlockArg::LockSharedNonblock,
            Purpose::Write => FlockArg::LockExclusiveNonblock,
        };
        flock(&self.files.model, operation) && flock(&self.files.data, operation)
    }

    /// Writes both files, from their starts and whatever they held before.
    pub fn write(&self, model: &[u8], data: &[(u64, Weights)], data_len: u64) -> Result<(), CacheError> {
        let model_io = |why| CacheError::Io { what: "model", why };
        let data_io = |why| CacheError::Io { what: "data", why };
        let file = &self.files.data;
        self.files.model.set_len(0).map_err(model_io)?;
        // Emptied first, so that nobody computes with a mixture: of whoever has it mapped, and in whatever process, it
        // has vanished, for good as the stamp at its end is going to be another.
        file.set_len(0).map_err(data_io)?;
        for_each_part(data, |start, bytes| file.write_all_at(bytes, start).map_err(data_io))?;
        file.set_len(data_file_len(data_len)?).map_err(data_io)?;
        if let (Some(start), Some(stamp)) = (stamp_start(data_len), model.first_chunk::<8>()) {
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

    /// A private copy of the model cache, which must have `len` bytes.
    pub fn read_model(&self, len: u64) -> Result<Vec<u8>, CacheError> {
        let io = |why| CacheError::Io { what: "model", why };
        if self.files.model.metadata().map_err(io)?.len() != len {
            return Err(CacheError::Changed);
        }
        // What the registry says was written by this driver, within its limits.
        let mut model = vec![0; usize::try_from(len).map_err(|_| CacheError::Changed)?];
        self.files.model.read_exact_at(&mut model, 0).map_err(io)?;
        Ok(model)
    }

    /// The first `len` bytes of the data cache, mapped.
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
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // The client may hold the descriptors that these were duplicated from, and with them the locks.
        for file in [&self.files.model, &self.files.data] {
            flock(file, FlockArg::Unlock);
        }
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

/// Whether `flock` did it. The crates that wrap it want to own the file, or to wait.
fn flock(file: &File, operation: FlockArg) -> bool {
    #[allow(deprecated)] // its replacement unlocks by closing, which does not unlock a duplicate
    nix::fcntl::flock(file.as_raw_fd(), operation).is_ok()
}

/// Bytes that nobody can guess.
pub fn salt<const N: usize>() -> Result<[u8; N], CacheError> {
    let mut salt = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut salt))
        .map_err(|why| CacheError::Io { what: "model", why })?;
    Ok(salt)
}
