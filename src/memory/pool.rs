//! Memory pools as the interface passes them: which part of which file, and how it may be used.

use super::device::{ClientMemory, ClientMemoryKind};
use super::hardware_buffer::{Description, HardwareBuffer, Library};
use super::identity::Identity;
use super::image::bytes_per_pixel;
use super::MemoryError;
use super::{Access, Mapping};
use crate::aidl;
use crate::ipc::{self, ParcelFileDescriptor};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A pool whose description has been checked. It is mapped only when somebody needs its bytes.
pub struct Pool<'a> {
    source: Source<'a>,
    size: usize,
}

enum Source<'a> {
    File {
        fd: &'a ParcelFileDescriptor,
        offset: u64,
        /// What the pool declares; `None` if that is for its file to say.
        access: Option<Access>,
        kind: ClientMemoryKind,
    },
    Hardware {
        buffer: &'a aidl::HardwareBuffer,
        /// Bytes of a pixel.
        pixel: usize,
    },
}

/// How a file is mapped: its descriptor, offset, length and access.
type MapFile = fn(BorrowedFd, u64, usize, Access) -> Result<Mapping, MemoryError>;

impl<'a> Pool<'a> {
    /// Checks what `memory` says of itself; what its file really holds is checked when it is mapped.
    pub fn new(memory: &'a aidl::Memory) -> Result<Self, MemoryError> {
        match memory {
            aidl::Memory::Ashmem(ashmem) => {
                let (fd, kind) = (present(&ashmem.fd)?, ClientMemoryKind::Ashmem);
                let source = Source::File { fd, offset: 0, access: None, kind };
                Ok(Pool { source, size: size(ashmem.size)? })
            }
            aidl::Memory::MappableFile(file) => {
                let offset = u64::try_from(file.offset).map_err(|_| {
                    MemoryError::Invalid(format!("offset {} of a mappable file", file.offset))
                })?;
                let (fd, access) = (present(&file.fd)?, Some(access(file.prot)?));
                let kind = ClientMemoryKind::MappableFile;
                Ok(Pool { source: Source::File { fd, offset, access, kind }, size: size(file.length)? })
            }
            aidl::Memory::HardwareBuffer(buffer) => {
                let (pixel, size) = pixel_and_size(buffer)?;
                Ok(Pool { source: Source::Hardware { buffer, pixel }, size })
            }
        }
    }

    /// Whether `memory` is a hardware buffer that is no BLOB by what it says of itself.
    pub fn describes_image(memory: &aidl::Memory) -> bool {
        matches!(memory, aidl::Memory::HardwareBuffer(buffer) if !is_blob(buffer))
    }

    /// Whether it is a hardware buffer that is no BLOB: an argument of an execution whole, and nothing else.
    pub fn is_image(&self) -> bool {
        matches!(self.source, Source::Hardware { buffer, .. } if !is_blob(buffer))
    }

    /// Size in bytes; of an image, that of its pixels.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What this pool is, if its file can tell: a pool of the same identity as one that is kept is the same memory.
    pub fn identity(&self) -> Option<Identity<BorrowedFd<'a>>> {
        match self.source {
            Source::File { fd, offset, access, .. } => {
                Identity::new(ipc::file(fd), offset, self.size, access)
            }
            Source::Hardware { buffer, .. } => {
                let files = buffer.handle.fds.iter().map(ipc::file);
                let says = &buffer.description;
                let usage = says.usage.0 as u64;
                let shape = [says.width, says.height, says.layers, says.format.0, says.stride];
                let numbers =
                    [&buffer.handle.ints[..], &shape, &[usage as i32, (usage >> 32) as i32]].concat();
                Some(Identity::of_open_files(files, numbers, self.size))
            }
        }
    }

    /// The pool as its client describes it, for a device that imports it. `None` if it has no descriptor, or is an image: only
    /// the graphics allocator can tell from the handle where an image's rows lie.
    pub fn client_memory(&self) -> Option<ClientMemory<'a>> {
        let len = self.size;
        match self.source {
            Source::File { fd, offset, access, kind } => {
                Some(ClientMemory { fd: ipc::file(fd), offset, len, kind, access })
            }
            Source::Hardware { .. } if self.is_image() => None,
            Source::Hardware { buffer, .. } => {
                let (fd, kind) = (ipc::file(buffer.handle.fds.first()?), ClientMemoryKind::HardwareBuffer);
                Some(ClientMemory { fd, offset: 0, len, kind, access: None })
            }
        }
    }

    /// Maps the pool with the access it declares. One that does not declare any (ashmem, hardware buffers) and cannot
    /// be written is mapped to be read.
    pub fn map(&self) -> Result<Arc<Mapping>, MemoryError> {
        self.map_with(Library::of_this_machine(), Mapping::new)
    }

    /// As [`map`](Self::map), for constants, which are read once.
    pub fn map_to_read_once(&self) -> Result<Arc<Mapping>, MemoryError> {
        self.map_with(Library::of_this_machine(), Mapping::or_copy)
    }

    /// As [`map`](Self::map), for one execution that is about to run.
    pub fn map_for_one_use(&self) -> Result<Arc<Mapping>, MemoryError> {
        self.map_with(Library::of_this_machine(), Mapping::for_one_use)
    }

    /// Maps the pool, a hardware buffer by means of `library`, a file by `map`.
    fn map_with(&self, library: Option<Library>, map: MapFile) -> Result<Arc<Mapping>, MemoryError> {
        match (&self.source, library) {
            (Source::File { fd, offset, access, .. }, _) => self.map_file(fd, *offset, *access, map),
            (Source::Hardware { buffer, pixel }, Some(library)) => {
                let fds: Vec<_> = buffer.handle.fds.iter().map(AsRawFd::as_raw_fd).collect();
                let description = description(buffer);
                HardwareBuffer::import(library, &description, *pixel, &fds, &buffer.handle.ints)
                    .map(|buffer| Arc::new(Mapping::hardware(buffer)))
            }
            (Source::Hardware { .. }, None) if self.is_image() => Err(MemoryError::Unsupported(
                "hardware buffers that are not of format BLOB need libnativewindow, which is not here",
            )),
            (Source::Hardware { buffer, .. }, None) => {
                let fd = buffer.handle.fds.first().ok_or(MemoryError::Unsupported(
                    "a hardware buffer whose handle has no file descriptor cannot be mapped",
                ))?;
                self.map_file(fd, 0, None, map)
            }
        }
    }

    fn map_file(
        &self,
        fd: &ParcelFileDescriptor,
        offset: u64,
        access: Option<Access>,
        map: MapFile,
    ) -> Result<Arc<Mapping>, MemoryError> {
        let map = |access| map(ipc::file(fd), offset, self.size, access);
        let mapping = match access {
            Some(access) => map(access),
            None => match map(Access::ReadWrite) {
                Err(MemoryError::Access(_)) => map(Access::Read),
                other => other,
            },
        };
        mapping.map(Arc::new)
    }
}

fn is_blob(buffer: &aidl::HardwareBuffer) -> bool {
    buffer.description.format == aidl::PixelFormat::BLOB
}

/// Bytes of a pixel of a hardware buffer, and of all of them. Those of a BLOB are plain bytes, `width` of them.
fn pixel_and_size(buffer: &aidl::HardwareBuffer) -> Result<(usize, usize), MemoryError> {
    let aidl::HardwareBufferDescription { width, height, layers, format, .. } = buffer.description;
    if buffer.handle.fds.is_empty() && buffer.handle.ints.is_empty() {
        return Err(MemoryError::Unsupported("a hardware buffer without a handle"));
    }
    let pixel = bytes_per_pixel(format).ok_or(MemoryError::Unsupported(
        "only hardware buffers of format BLOB, or with pixels of whole bytes in one plane, can be mapped",
    ))?;
    if is_blob(buffer) && (height, layers) != (1, 1) {
        return Err(MemoryError::Invalid(format!(
            "a BLOB hardware buffer of height {height} and {layers} layers; expected 1 of each"
        )));
    }
    if [width, height, layers].iter().any(|&extent| extent < 1) {
        return Err(MemoryError::Invalid(format!(
            "a hardware buffer of {width} x {height} pixels and {layers} layers; expected 1 or more of each"
        )));
    }
    if layers > 1 {
        return Err(MemoryError::Unsupported(
            "a hardware buffer of several layers, which cannot be locked for the CPU",
        ));
    }
    let pixels = i64::from(width) * i64::from(height);
    Ok((pixel, size(pixels.saturating_mul(pixel as i64))?))
}

/// What the client says of its buffer, for the allocator to compare with the handle.
fn description(buffer: &aidl::HardwareBuffer) -> Description {
    let says = &buffer.description;
    Description {
        width: says.width as u32,
        height: says.height as u32,
        layers: says.layers as u32,
        format: says.format.0 as u32,
        usage: says.usage.0 as u64,
        stride: says.stride as u32,
        ..Default::default()
    }
}

fn present(fd: &Option<ParcelFileDescriptor>) -> Result<&ParcelFileDescriptor, MemoryError> {
    fd.as_ref().ok_or_else(|| MemoryError::Invalid("a memory pool without a file descriptor".into()))
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

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
