//! Memory pools as the interface passes them: which part of which file, and how it may be used.

use super::client::{Access, Mapping};
use super::identity::Identity;
use super::MemoryError;
use crate::aidl;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A pool whose description has been checked. It is mapped only when somebody needs its bytes.
pub struct Pool<'a> {
    fd: &'a binder::ParcelFileDescriptor,
    offset: u64,
    size: usize,
    access: Access,
}

impl<'a> Pool<'a> {
    /// Checks what `memory` says of itself; what its file really holds is checked when it is mapped.
    pub fn new(memory: &'a aidl::Memory) -> Result<Self, MemoryError> {
        match memory {
            aidl::Memory::Ashmem(ashmem) => Ok(Pool {
                fd: present(&ashmem.fd)?,
                offset: 0,
                size: size(ashmem.size)?,
                access: Access::ReadWrite,
            }),
            aidl::Memory::MappableFile(file) => Ok(Pool {
                fd: present(&file.fd)?,
                offset: u64::try_from(file.offset).map_err(|_| {
                    MemoryError::Invalid(format!("offset {} of a mappable file", file.offset))
                })?,
                size: size(file.length)?,
                access: access(file.prot)?,
            }),
            aidl::Memory::HardwareBuffer(buffer) => {
                if buffer.handle.fds.is_empty() && buffer.handle.ints.is_empty() {
                    return Err(MemoryError::Invalid("a hardware buffer without a handle".into()));
                }
                Err(MemoryError::Unsupported(
                    "hardware buffers cannot be mapped yet; use ashmem or a mappable file",
                ))
            }
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What this pool is, if its file can tell: two pools of the same identity are the same memory.
    pub fn identity(&self) -> Option<Identity> {
        Identity::new(self.fd.as_fd(), self.offset, self.size, self.access.into())
    }

    /// Maps the pool with the access it declares. An ashmem region whose descriptor only allows reading is mapped so.
    pub fn map(&self) -> Result<Arc<Mapping>, MemoryError> {
        let map = |access| Mapping::new(self.fd.as_fd(), self.offset, self.size, access);
        let mapping = match map(self.access) {
            Err(MemoryError::Map(e)) if self.access == Access::ReadWrite && is_permission(&e) => {
                map(Access::Read)
            }
            other => other,
        };
        mapping.map(Arc::new)
    }
}

fn present(fd: &Option<binder::ParcelFileDescriptor>) -> Result<&binder::ParcelFileDescriptor, MemoryError> {
    fd.as_ref().ok_or_else(|| MemoryError::Invalid("a memory pool without a file descriptor".into()))
}

fn is_permission(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn size(size: i64) -> Result<usize, MemoryError> {
    // The interface counts pool sizes in 32 bits.
    u32::try_from(size).ok().filter(|&size| size > 0).map(|size| size as usize).ok_or_else(|| {
        MemoryError::Invalid(format!("a memory pool of {size} bytes; expected 1 to {}", u32::MAX))
    })
}

fn access(prot: i32) -> Result<Access, MemoryError> {
    const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
    match prot {
        libc::PROT_READ => Ok(Access::Read),
        libc::PROT_WRITE => Ok(Access::Write),
        READ_WRITE => Ok(Access::ReadWrite),
        _ => Err(MemoryError::Invalid(format!(
            "protection {prot:#x} of a mappable file; expected read, write or both"
        ))),
    }
}
