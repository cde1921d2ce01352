//! Shared memory that a client passes to a driver: files in memory, reached with plain reads and writes.

use crate::aidl;
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A region of shared memory.
pub struct Shared {
    file: File,
    size: u64,
}

impl Shared {
    /// A region of `size` bytes, all zero.
    pub fn new(size: u64) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"nnhal", flags)?);
        file.set_len(size)?;
        // A process that gets its descriptor must not be able to shrink it under a mapping of ours.
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
        Ok(Shared { file, size })
    }

    /// Bytes that it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file, to map it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Copies `bytes` into the region, from byte `offset` on.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Fills `bytes` from the region, from byte `offset` on; an error if it ends before.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// The region as the interface names it, under a descriptor of its own.
    pub fn memory(&self) -> io::Result<aidl::Memory> {
        let size = i64::try_from(self.size).map_err(io::Error::other)?;
        let fd = binder::ParcelFileDescriptor::new(self.file.try_clone()?);
        Ok(aidl::Memory::Ashmem(aidl::Ashmem { fd: Some(fd), size }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pool;

    #[test]
    fn the_driver_side_maps_what_was_written() {
        let shared = Shared::new(100).unwrap();
        shared.write(96, &[1, 2, 3, 4]).unwrap();
        let memory = shared.memory().unwrap();
        let pool = Pool::new(&memory).unwrap();
        assert_eq!(pool.size(), 100);
        pool.map().unwrap();
        let mut back = [0; 4];
        shared.read(96, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        assert!(shared.read(97, &mut back).is_err(), "a read beyond the end must fail");
    }
}
