//! Small shared memory for one use only: read by calls, as to map it, and to fault its pages in, costs more.
//!
//! What is written is mapped for that, once: a call that writes takes the lock of the file, which a client can hold for as long
//! as it likes, by a call of its own that waits for memory which never comes. Such a thread would be lost, with its turn.
//!
//! Must be no different from a mapping but in what it costs: where it would be, it is for [`super::pages`] to do.

use super::kernel::page_size;
use super::pages::Pages;
use super::{Access, MemoryError};
use nix::fcntl::{fcntl, FcntlArg, OFlag, SealFlag};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Beyond so many bytes a mapping is the cheaper.
pub const MOST_BYTES: usize = 256 << 10;

/// A part of a client's file.
pub(super) struct Unmapped {
    file: File,
    start: u64,
    len: usize,
    access: Access,
    vanished: AtomicBool,
    /// All of it, once somebody has written there.
    pages: OnceLock<Pages>,
}

impl Unmapped {
    /// `len` bytes of `fd` from `offset`. `None` where they have to be mapped, if only to find out what is wrong.
    pub fn of_file(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Option<Self> {
        if len == 0 || len > MOST_BYTES {
            return None;
        }
        // Only shared memory has seals. Asking about or reading any other file may block.
        let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS).ok()?);
        let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).ok()?);
        if flags.contains(OFlag::O_APPEND) || !allows(flags, seals, access) {
            return None;
        }
        let file = File::from(fd.try_clone_to_owned().ok()?);
        let facts = file.metadata().ok()?;
        offset.checked_add(len as u64).filter(|&end| end <= facts.len())?;
        // Huge pages are refused, which the mapping does.
        (facts.blksize() == page_size()).then_some(Unmapped {
            file,
            start: offset,
            len,
            access,
            vanished: AtomicBool::new(false),
            pages: OnceLock::new(),
        })
    }

    pub fn vanished(&self) -> bool {
        self.vanished.load(Ordering::Relaxed) || self.pages.get().is_some_and(Pages::vanished)
    }

    /// Gives back what was written to pages that are in place of a lost file.
    pub fn give_back_lost(&self) {
        self.pages.get().into_iter().for_each(Pages::give_back_lost);
    }

    /// Copies the bytes from `offset` on, which the caller has checked to be there, into `to`.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        self.take_note(self.file.read_exact_at(to, self.start + offset as u64))
    }

    /// All of it, mapped to be written.
    pub fn to_write(&self) -> Result<&Pages, MemoryError> {
        if let Some(pages) = self.pages.get() {
            return Ok(pages);
        }
        let mapped = Pages::of_file(self.file.as_fd(), self.start, self.len, self.access);
        let pages = mapped.map_err(|why| match why {
            // The file had these bytes before.
            MemoryError::Invalid(_) => self.lost(),
            other => other,
        })?;
        Ok(self.pages.get_or_init(|| pages))
    }

    fn take_note(&self, done: Result<(), Error>) -> Result<(), MemoryError> {
        done.map_err(|why| match why.kind() {
            ErrorKind::UnexpectedEof => self.lost(),
            _ => MemoryError::Map(why),
        })
    }

    fn lost(&self) -> MemoryError {
        self.vanished.store(true, Ordering::Relaxed);
        MemoryError::Vanished
    }
}

/// Whether a file that was opened and sealed so could be mapped for `access`.
fn allows(flags: OFlag, seals: SealFlag, access: Access) -> bool {
    let mode = flags & OFlag::O_ACCMODE;
    let sealed = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_FUTURE_WRITE;
    match access {
        Access::Read => mode == OFlag::O_RDONLY || mode == OFlag::O_RDWR,
        Access::Write | Access::ReadWrite => mode == OFlag::O_RDWR && !seals.intersects(sealed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{ClientSlice, Mapping};
    use nix::sys::memfd::{memfd_create, MFdFlags};
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    fn memory(bytes: &[u8]) -> File {
        let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        file.write_all(bytes).unwrap();
        file
    }

    fn is_unmapped(file: &File, offset: u64, len: usize, access: Access) -> bool {
        Unmapped::of_file(file.as_fd(), offset, len, access).is_some()
    }

    fn reopened(file: &File, options: &mut OpenOptions) -> File {
        options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    #[test]
    fn it_is_as_good_as_a_mapping() {
        let file = memory(&[7; 100]);
        let unmapped = Mapping::for_one_use(file.as_fd(), 10, 80, Access::ReadWrite).unwrap();
        assert!(unmapped.pointer(0).is_none(), "not mapped");
        let unmapped = Arc::new(unmapped);
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 100, Access::ReadWrite).unwrap());
        ClientSlice::new(unmapped.clone(), 5, 3).unwrap().write(&[1, 2, 3]).unwrap();
        ClientSlice::new(mapping, 18, 1).unwrap().write(&[4]).unwrap();
        let mut bytes = [0; 80];
        ClientSlice::whole(unmapped.clone()).read(&mut bytes).unwrap();
        assert_eq!(bytes[4..10], [7, 1, 2, 3, 4, 7]);
        let slice = ClientSlice::new(unmapped, 79, 1).unwrap();
        assert!(slice.write(&[0; 2]).is_err() && slice.read(&mut [0; 2]).is_err(), "beyond its end");
    }

    #[test]
    fn what_is_not_plain_small_shared_memory_is_mapped() {
        let file = memory(&[0; MOST_BYTES + 1]);
        for (offset, len, unmapped) in
            [(0, MOST_BYTES, true), (1, MOST_BYTES, true), (2, MOST_BYTES, false), (0, MOST_BYTES + 1, false)]
                .into_iter()
                .chain([(0, 0, false), (u64::MAX, 1, false), (MOST_BYTES as u64 + 1, 1, false)])
        {
            assert_eq!(is_unmapped(&file, offset, len, Access::ReadWrite), unmapped, "{offset} {len}");
        }
        assert!(!is_unmapped(&tempfile::tempfile_in("/proc/self/cwd").unwrap(), 0, 1, Access::Read));
        let huge = memfd_create(c"test", MFdFlags::MFD_HUGETLB | MFdFlags::MFD_ALLOW_SEALING);
        if let Ok(huge) = huge.map(File::from) {
            huge.set_len(2 << 20).unwrap();
            assert!(!is_unmapped(&huge, 0, 1, Access::Read));
        }
    }

    #[test]
    fn a_descriptor_must_allow_what_a_mapping_would_need() {
        use Access::{Read, ReadWrite, Write};
        let file = memory(&[0; 8]);
        let all = |file: &File| [Read, Write, ReadWrite].map(|access| is_unmapped(file, 0, 8, access));
        assert_eq!(all(&file), [true; 3]);
        assert_eq!(all(&reopened(&file, OpenOptions::new().read(true))), [true, false, false]);
        assert_eq!(all(&reopened(&file, OpenOptions::new().write(true))), [false; 3]);
        assert_eq!(all(&reopened(&file, OpenOptions::new().read(true).append(true))), [false; 3]);
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_FUTURE_WRITE)).unwrap();
        assert_eq!(all(&file), [true, false, false]);
    }

    #[test]
    fn what_a_file_has_lost_is_missed() {
        let file = memory(&[7; 100]);
        let unmapped = Mapping::for_one_use(file.as_fd(), 0, 100, Access::ReadWrite).unwrap();
        let slice = ClientSlice::whole(Arc::new(unmapped));
        file.set_len(99).unwrap();
        assert!(matches!(slice.read(&mut [0; 100]), Err(MemoryError::Vanished)));
        file.set_len(100).unwrap();
        assert!(slice.read(&mut [0]).is_err() && slice.write(&[0]).is_err(), "what is lost once stays so");
    }

    #[test]
    fn what_a_file_has_lost_is_not_put_back_by_a_write() {
        let file = memory(&[7; 100]);
        for mapped in [false, true] {
            file.set_len(100).unwrap();
            let unmapped = Mapping::for_one_use(file.as_fd(), 0, 100, Access::ReadWrite).unwrap();
            let slice = ClientSlice::whole(Arc::new(unmapped));
            assert!(!mapped || slice.write(&[1]).is_ok());
            file.set_len(0).unwrap();
            assert!(matches!(slice.write(&[1]), Err(MemoryError::Vanished)));
            assert_eq!(file.metadata().unwrap().len(), 0);
        }
    }
}
