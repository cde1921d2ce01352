//! Where a queue lies in memory: the description that one side gives the other, and its check.

use super::FmqError;
use crate::ipc;
use crate::memory::{check_blocking, page_size, same_memory};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::statfs::{fstatfs, TMPFS_MAGIC};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

/// One reader, one writer, and nothing is ever overwritten: libfmq's kSynchronizedReadWrite, the only kind used here.
pub const SYNCHRONIZED: i64 = 1;

/// Where libfmq wants counters: at multiples of this.
const WORD: u64 = 8;
/// Most files that a descriptor may spread a queue over: one per grantor.
const MAX_FILES: usize = 4;

/// Largest ring that this side makes.
const MAX_RING: usize = 1 << 30;

/// The two counters, the ring and the event flag.
const GRANTORS: usize = 4;

/// A region of a queue's memory, as described: signed as on the wire, and not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grantor {
    pub fd_index: i64,
    pub offset: i64,
    pub extent: i64,
}

/// What one side says of a queue: nothing in it is checked yet.
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    pub grantors: Vec<Grantor>,
    pub files: Vec<BorrowedFd<'a>>,
    /// Bytes of one element.
    pub quantum: i64,
    pub flags: i64,
}

/// A region, checked against its description; what its file really holds shows when it is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region<'a> {
    pub file: BorrowedFd<'a>,
    pub offset: u64,
    pub len: usize,
}

/// A queue's regions.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub read_counter: Region<'a>,
    pub write_counter: Region<'a>,
    pub data: Region<'a>,
    /// What both sides sleep on; a queue that is not blocking has none.
    pub event_flag: Option<Region<'a>>,
}

impl Region<'_> {
    fn overlaps(&self, other: &Region) -> bool {
        let apart = |x: &Region, y: &Region| x.offset.saturating_add(x.len as u64) <= y.offset;
        !apart(self, other) && !apart(other, self) && same_memory(self.file, other.file)
    }
}

fn lie<T>(why: impl Into<String>) -> Result<T, FmqError> {
    Err(FmqError::Descriptor(why.into()))
}

impl<'a> Descriptor<'a> {
    /// Checks everything that the descriptor says: a queue of elements of `quantum` bytes, at most `max_elements`, with
    /// or without an event flag.
    pub(super) fn check(&self, quantum: usize, max_elements: usize) -> Result<Layout<'a>, FmqError> {
        if self.flags != SYNCHRONIZED {
            return lie(format!("flags {}: expected a synchronized queue, {SYNCHRONIZED}", self.flags));
        }
        if usize::try_from(self.quantum) != Ok(quantum) {
            return lie(format!("elements of {} bytes, expected {quantum}", self.quantum));
        }
        if self.files.is_empty() || self.files.len() > MAX_FILES {
            return lie(format!("{} files; expected 1 to {MAX_FILES}", self.files.len()));
        }
        let regions = self.regions()?;
        let [read_counter, write_counter, data, event_flag @ ..] = &regions[..] else {
            return lie(format!("{} grantors; expected at least counters and ring", regions.len()));
        };
        let (read_counter, write_counter, data) = (*read_counter, *write_counter, *data);
        let event_flag = event_flag.first().copied();
        let flag_len = event_flag.map_or(4, |flag| flag.len);
        if (read_counter.len, write_counter.len, flag_len) != (8, 8, 4) {
            return lie(format!(
                "counters of {} and {} bytes and an event flag of {flag_len}; expected 8, 8 and 4",
                read_counter.len, write_counter.len
            ));
        }
        if data.len == 0 || !data.len.is_multiple_of(quantum) || data.len / quantum > max_elements {
            return lie(format!(
                "a ring of {} bytes; expected 1 to {max_elements} times {quantum}",
                data.len
            ));
        }
        check_overlap(&regions)?;
        Ok(Layout { read_counter, write_counter, data, event_flag })
    }

    /// Where counters, ring and event flag lie, as many as there are.
    fn regions(&self) -> Result<Vec<Region<'a>>, FmqError> {
        let place = |(index, grantor)| {
            self.place(grantor).map_err(|why| FmqError::Descriptor(format!("grantor {index}: {why}")))
        };
        // libfmq may append grantors that older peers do not know.
        self.grantors.iter().take(GRANTORS).enumerate().map(place).collect()
    }

    /// Checks that two queues share no byte: what is written to one of such would be there to be read from the other.
    pub fn check_apart(&self, other: &Descriptor) -> Result<(), FmqError> {
        let (ours, theirs) = (self.regions()?, other.regions()?);
        match ours.iter().any(|a| theirs.iter().any(|b| a.overlaps(b))) {
            true => lie("it shares memory with that of the other queue"),
            false => Ok(()),
        }
    }

    fn place(&self, grantor: &Grantor) -> Result<Region<'a>, String> {
        let file = usize::try_from(grantor.fd_index).ok().and_then(|i| self.files.get(i).copied());
        let file = file.ok_or_else(|| format!("file {} of {}", grantor.fd_index, self.files.len()))?;
        let (offset, len) = (u64::try_from(grantor.offset), usize::try_from(grantor.extent));
        let (Ok(offset), Ok(len)) = (offset, len) else {
            return Err(format!("offset {} and extent {}", grantor.offset, grantor.extent));
        };
        if !offset.is_multiple_of(WORD) {
            return Err(format!("offset {offset}; expected a multiple of {WORD}"));
        }
        // Before anything that who serves the file would have to answer.
        check_blocking(file).map_err(|why| format!("its file: {why}"))?;
        // A page of any other file system may take as long to come as its owner likes, and never.
        match fstatfs(file) {
            Ok(system) if system.filesystem_type() == TMPFS_MAGIC => Ok(Region { file, offset, len }),
            Ok(_) => Err("its file is not shared memory; expected a memfd or ashmem".into()),
            Err(why) => Err(format!("its file: {why}")),
        }
    }

    /// This description as the interface puts it.
    pub fn to_aidl<T: Default>(
        &self,
    ) -> Result<ipc::fmq::MQDescriptor<T, ipc::fmq::SynchronizedReadWrite>, FmqError> {
        let wide = |_| FmqError::Descriptor("a value is too large for the interface".into());
        let mut descriptor = ipc::fmq::MQDescriptor::default();
        for grantor in &self.grantors {
            descriptor.grantors.push(ipc::fmq::GrantorDescriptor {
                fdIndex: i32::try_from(grantor.fd_index).map_err(wide)?,
                offset: i32::try_from(grantor.offset).map_err(wide)?,
                extent: grantor.extent,
            });
        }
        for file in &self.files {
            let copy = file.try_clone_to_owned().map_err(|why| FmqError::Descriptor(why.to_string()))?;
            descriptor.handle.fds.push(ipc::ParcelFileDescriptor::new(copy));
        }
        descriptor.quantum = i32::try_from(self.quantum).map_err(wide)?;
        descriptor.flags = i32::try_from(self.flags).map_err(wide)?;
        Ok(descriptor)
    }

    /// What a peer sent, unchecked.
    pub fn from_aidl<T>(
        sent: &'a ipc::fmq::MQDescriptor<T, ipc::fmq::SynchronizedReadWrite>,
    ) -> Descriptor<'a> {
        let grantor = |g: &ipc::fmq::GrantorDescriptor| Grantor {
            fd_index: g.fdIndex.into(),
            offset: g.offset.into(),
            extent: g.extent,
        };
        Descriptor {
            grantors: sent.grantors.iter().map(grantor).collect(),
            files: sent.handle.fds.iter().map(ipc::file).collect(),
            quantum: sent.quantum.into(),
            flags: sent.flags.into(),
        }
    }
}

/// Regions must not share bytes: no queue can work that way.
fn check_overlap(regions: &[Region]) -> Result<(), FmqError> {
    for (i, a) in regions.iter().enumerate() {
        if let Some(j) = regions[i + 1..].iter().position(|b| a.overlaps(b)) {
            return lie(format!("grantors {i} and {} overlap", i + 1 + j));
        }
    }
    Ok(())
}

/// The memory of a queue that this side made: libfmq's layout, in a file of its own.
pub struct SharedQueue {
    file: File,
    quantum: usize,
    grantors: Vec<Grantor>,
}

impl SharedQueue {
    /// Memory for a queue of `elements` elements of `quantum` bytes. It can neither shrink nor grow.
    pub fn create(elements: usize, quantum: usize) -> Result<Self, FmqError> {
        // The interface has 32 bits for offsets, of which the event flag's is the last.
        let ring = elements.checked_mul(quantum).filter(|&len| (1..=MAX_RING).contains(&len));
        let ring = ring.ok_or(FmqError::Length(elements.saturating_mul(quantum)))? as u64;
        let flag = (2 * WORD + ring).next_multiple_of(WORD);
        let grantor =
            |offset: u64, extent: u64| Grantor { fd_index: 0, offset: offset as i64, extent: extent as i64 };
        let grantors = vec![grantor(0, 8), grantor(8, 8), grantor(2 * WORD, ring), grantor(flag, 4)];
        let failed = |e: nix::errno::Errno| FmqError::Memory(crate::memory::MemoryError::Map(e.into()));
        let file = memfd_create(c"MessageQueue", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(failed)?;
        let file = File::from(file);
        let size = (flag + 4).next_multiple_of(page_size());
        file.set_len(size).map_err(crate::memory::MemoryError::Map)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(failed)?;
        Ok(SharedQueue { file, quantum, grantors })
    }

    pub fn descriptor(&self) -> Descriptor<'_> {
        Descriptor {
            grantors: self.grantors.clone(),
            files: vec![self.file.as_fd()],
            quantum: self.quantum as i64,
            flags: SYNCHRONIZED,
        }
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
