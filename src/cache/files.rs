//! The cache files of one compilation: a client's, so of any size, at any offset, and in anybody's hands.
//!
//! Must not lock them or ask whether they are locked: Android's policy forbids both to a driver, and locks belong to the
//! client. No thread of a driver reads a file that another writes. The hash of the model and the checksum of the
//! data show whether others write meanwhile.

use super::content::{data_len, for_each_part, Content, DataFacts, LastChange, Parts, STRETCH};
use super::mapped::Mapped;
use super::{CacheError, FileId};
use crate::memory::{check_blocking, guarded_len, stamp_start, Counted, Mapping, MemoryError};
use crate::ops::{Interrupt, NeverInterrupted};
use crate::waits::wait_for;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for files that others use. Those that somebody has used for so long are not waited for: who writes to them may
/// never come back.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often who waits for files looks whether the work is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes at the end of a data cache that tell which model cache it was written with.
const STAMP: usize = 8;

/// Duplicates of a client's cache files, checked; at least one is for a model. Clones are the same duplicates.
#[derive(Clone, Debug)]
pub struct CacheFiles(Arc<Duplicates>);

#[derive(Debug)]
struct Duplicates {
    models: Vec<File>,
    data: Vec<File>,
    /// Of all, models first.
    identities: Vec<FileId>,
}

impl CacheFiles {
    /// Checks the files' access, and keeps duplicates.
    pub fn new<F: AsFd>(models: &[F], data: &[F]) -> Result<Self, CacheError> {
        let mut identities = Vec::with_capacity(models.len() + data.len());
        let mut keep = |what, fd: &F| {
            let (file, identity) = duplicate(what, fd.as_fd())?;
            if identities.contains(&identity) {
                return Err(CacheError::SameFile);
            }
            identities.push(identity);
            Ok(file)
        };
        let models = models.iter().map(|fd| keep("model", fd)).collect::<Result<Vec<_>, _>>()?;
        let data = data.iter().map(|fd| keep("data", fd)).collect::<Result<Vec<_>, _>>()?;
        if models.is_empty() {
            return Err(CacheError::NoModel);
        }
        Ok(CacheFiles(Arc::new(Duplicates { models, data, identities })))
    }

    /// How many there are: for models, and for data.
    pub fn counts(&self) -> (usize, usize) {
        (self.0.models.len(), self.0.data.len())
    }

    /// How long the one of these files has been in use that has been for the longest; `None` if none is.
    fn used_for(&self, busy: &HashMap<FileId, Instant>) -> Option<Duration> {
        self.0.identities.iter().filter_map(|file| busy.get(file)).map(Instant::elapsed).max()
    }

    /// Whether who wants these files has to wait, and may.
    pub(super) fn are_waited_for(&self, in_use: &FilesInUse) -> bool {
        self.used_for(&in_use.lock()).is_some_and(|used| used < PATIENCE)
    }

    /// Waits, for a while and without a turn of `interrupt`, until these files are not among those `in_use`, and adds them. An error
    /// once the work is to stop.
    pub(super) fn lock(&self, in_use: &FilesInUse, interrupt: &dyn Interrupt) -> Result<Lock, CacheError> {
        if self.are_waited_for(in_use) {
            interrupt.before_waiting();
        }
        let _waiting = wait_for("cache files in use");
        let since = Instant::now();
        let mut busy = in_use.lock();
        while let Some(used) = self.used_for(&busy) {
            interrupt.check().map_err(CacheError::Stopped)?;
            if used.max(since.elapsed()) >= PATIENCE {
                return Err(CacheError::Busy);
            }
            busy = in_use.0.freed.wait_timeout(busy, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let now = Instant::now();
        busy.extend(self.0.identities.iter().map(|&file| (file, now)));
        Ok(Lock { files: self.0.clone(), in_use: in_use.clone() })
    }
}

/// Files that threads of one driver use. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FilesInUse(Arc<InUse>);

#[derive(Debug, Default)]
struct InUse {
    /// Those that are read or written, and since when.
    busy: Mutex<HashMap<FileId, Instant>>,
    /// There are fewer of those.
    freed: Condvar,
    mapped: Mapped,
}

impl FilesInUse {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, Instant>> {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn duplicate(what: &'static str, fd: BorrowedFd) -> Result<(File, FileId), CacheError> {
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
    // Reading from anything but a regular file could block for ever; writes to a file that appends would miss their place.
    let usable = flags & OFlag::O_ACCMODE == OFlag::O_RDWR
        && !flags.intersects(OFlag::O_PATH | OFlag::O_APPEND)
        && facts.is_file();
    if !usable {
        return Err(CacheError::Access(what));
    }
    Ok((file, FileId { device: facts.dev(), inode: facts.ino() }))
}

/// By what terms files are read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// For the thread that reads: the work comes by yield points.
    pub interrupt: &'a dyn Interrupt,
    /// Whether threads that have no turn may help it.
    pub may_help: &'a (dyn Fn() -> bool + Sync),
}

impl Reading<'static> {
    /// By no terms.
    pub const FREELY: Reading<'static> = Reading { interrupt: &NeverInterrupted, may_help: &|| true };
}

#[cfg(test)]
impl Lock {
    /// Is waited for, as if the files came in use only now, for the next hour.
    pub(super) fn waited_for(self) -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        self.in_use.lock().values_mut().for_each(|since| *since = Instant::now() + HOUR);
        self
    }
}

/// Cache files that nobody else of the driver reads or writes.
#[derive(Debug)]
pub struct Lock {
    files: Arc<Duplicates>,
    in_use: FilesInUse,
}

impl Lock {
    /// Which file the first model cache is.
    pub fn first_model(&self) -> FileId {
        self.files.identities[0]
    }

    /// Writes all files, from their starts and whatever they held before: `head`, which begins with a salt, is put before
    /// the first model.
    pub fn write(&self, head: &[u8], content: Content) -> Result<(), CacheError> {
        let Duplicates { models, data, .. } = &*self.files;
        self.empty(models, "model")?;
        // Emptied first, and stamped last, so that nobody takes a mixture for whole.
        self.empty(data, "data")?;
        for (file, parts) in data.iter().zip(content.data) {
            write_data(file, parts, head)?;
        }
        for (i, (file, model)) in models.iter().zip(content.models).enumerate() {
            let head = if i == 0 { head } else { &[] };
            let written =
                file.write_all_at(head, 0).and_then(|()| file.write_all_at(model, head.len() as u64));
            written.map_err(|why| CacheError::Io { what: "model", why })?;
        }
        Ok(())
    }

    /// Makes `bytes` all that the first model cache holds, and nothing what the others hold.
    pub fn write_model(&self, bytes: &[u8]) -> Result<(), CacheError> {
        self.empty(&self.files.models, "model")?;
        self.files.models[0].write_all_at(bytes, 0).map_err(|why| CacheError::Io { what: "model", why })
    }

    fn empty(&self, files: &[File], what: &'static str) -> Result<(), CacheError> {
        files.iter().try_for_each(|file| file.set_len(0)).map_err(|why| CacheError::Io { what, why })
    }

    pub fn data_changes(&self) -> Result<Vec<LastChange>, CacheError> {
        let change = |file: &File| {
            let facts = file.metadata().map_err(|why| CacheError::Io { what: "data", why })?;
            Ok(LastChange { len: facts.len(), changed: (facts.ctime(), facts.ctime_nsec()) })
        };
        self.files.data.iter().map(change).collect()
    }

    fn data_identities(&self) -> &[FileId] {
        &self.files.identities[self.files.models.len()..]
    }

    /// Whether a prepared model computes with a data cache.
    pub fn is_mapped(&self) -> bool {
        self.data_identities().iter().any(|&file| self.in_use.0.mapped.contains(file))
    }

    /// Private copies of the model caches, which together must have one of these `lengths`, on their client's account.
    pub fn read_models(
        &self,
        mut lengths: impl Iterator<Item = u64>,
        interrupt: &dyn Interrupt,
    ) -> Result<(Vec<Vec<u8>>, Counted), CacheError> {
        let io = |why| CacheError::Io { what: "model", why };
        let lens = self.files.models.iter().map(|file| Ok(file.metadata().map_err(io)?.len()));
        let lens = lens.collect::<Result<Vec<_>, CacheError>>()?;
        let total = lens.iter().fold(0, |total: u64, len| total.saturating_add(*len));
        if !lengths.any(|expected| expected == total) {
            return Err(CacheError::Changed);
        }
        // What the registry says was written by this driver, within its limits: these are still large.
        let size = |len: u64| usize::try_from(len).map_err(|_| CacheError::Changed);
        let out_of_memory = |len| CacheError::Data(MemoryError::OutOfMemory(len));
        let total = size(total)?;
        let counted = Counted::take(total).ok_or(out_of_memory(total))?;
        let read = |(file, len): (&File, u64)| {
            let (len, mut model) = (size(len)?, Vec::new());
            model.try_reserve_exact(len).map_err(|_| out_of_memory(len))?;
            for start in (0..len).step_by(STRETCH) {
                interrupt.yield_point().map_err(CacheError::Stopped)?;
                model.resize(len.min(start + STRETCH), 0);
                file.read_exact_at(&mut model[start..], start as u64).map_err(io)?;
            }
            Ok(model)
        };
        let models = self.files.models.iter().zip(lens).map(read).collect::<Result<_, CacheError>>()?;
        Ok((models, counted))
    }

    /// The first bytes of each data cache, as many as `facts` say, mapped: for files that only this driver writes.
    pub fn map_data(&self, facts: &[DataFacts]) -> Result<Vec<Arc<Mapping>>, CacheError> {
        let files = self.files.data.iter().zip(self.data_identities());
        let map = |((file, identity), facts): ((&File, &FileId), &DataFacts)| {
            let mapping = match usize::try_from(facts.len) {
                Ok(0) => return Mapping::anonymous(0).map(Arc::new).map_err(CacheError::Data),
                Ok(len) => Mapping::guarded(file.as_fd(), len),
                Err(_) => return Err(CacheError::Changed),
            };
            let mapping = mapping.map(Arc::new).map_err(CacheError::Data)?;
            self.in_use.0.mapped.insert(*identity, &mapping);
            Ok(mapping)
        };
        files.zip(facts).map(map).collect()
    }

    /// Private copies of the first bytes of each data cache, which must be like `facts`: from here on the files may change,
    /// or vanish.
    pub fn copy_data(&self, facts: &[DataFacts], by: Reading) -> Result<Vec<Arc<Mapping>>, CacheError> {
        self.files.data.iter().zip(facts).map(|(file, facts)| copy_data(file, facts, by)).collect()
    }
}

fn write_data(file: &File, parts: &Parts, salt: &[u8]) -> Result<(), CacheError> {
    let io = |why| CacheError::Io { what: "data", why };
    let len = data_len(parts);
    for_each_part(parts, |start, bytes| file.write_all_at(bytes, start).map_err(io))?;
    let end = data_file_len(len)?;
    file.set_len(end).map_err(io)?;
    if let Some(last) = end.checked_sub(1) {
        // It is read to see whether the file was cut. A file system in memory has no page for it otherwise, and none to give once
        // it is full.
        file.write_all_at(&[0], last).map_err(io)?;
    }
    if let (Some(start), Some(stamp)) = (stamp_start(len), salt.first_chunk::<STAMP>()) {
        if len > 0 {
            file.write_all_at(stamp, start).map_err(io)?;
        }
    }
    file.sync_data().map_err(io)
}

fn copy_data(file: &File, facts: &DataFacts, by: Reading) -> Result<Arc<Mapping>, CacheError> {
    let len = usize::try_from(facts.len).map_err(|_| CacheError::Changed)?;
    let (copy, checksum) = match len {
        0 => (Mapping::anonymous(0).map_err(CacheError::Data)?, 0),
        _ => {
            let stops = || by.interrupt.yield_point().is_err();
            Mapping::private_copy(file, len, &stops, by.may_help).map_err(CacheError::Data)?
        }
    };
    (checksum == facts.checksum).then(|| Arc::new(copy)).ok_or(CacheError::DataChanged)
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut busy = self.in_use.lock();
        busy.retain(|file, _| !self.files.identities.contains(file));
        drop(busy);
        self.in_use.0.freed.notify_all();
    }
}

/// How long the file of so much data is: it ends in what tells whether it is whole.
pub fn data_file_len(data_len: u64) -> Result<u64, CacheError> {
    match data_len {
        0 => Ok(0),
        len => guarded_len(len).ok_or(CacheError::TooLarge(usize::MAX)),
    }
}
