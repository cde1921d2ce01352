//! Memory that the device reaches: its own, and client memory that it took in.

use crate::layout::{self, Shape};
use crate::link::Link;
use crate::plan::MOST_BYTES;
use crate::protocol::{whole, Span, DEVICE_BYTES, PLAIN};
use crate::Result;
use nnhal::backend::{BackendError, ClientMemory, ClientMemoryKind, DeviceMemory};
use nnhal::memory::{seal, unnamed_file, Access, ClientSlice, Mapping, MemoryError};
use nnhal::tensor::TensorInfo;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// What messages call the device's own memory.
const DEVICE: &str = "the device's memory";

/// A memory that this process and the device have mapped. It belongs to one life of the device: after its death the memory is
/// still mapped here, but nobody computes with it any more.
#[derive(Debug)]
pub struct Region {
    pub link: Arc<Link>,
    /// What the device calls it.
    pub id: u64,
    pub mapping: Arc<Mapping>,
    /// Bytes of the device's own memory that it takes: none if it is a client's.
    own: usize,
}

impl Region {
    /// `len` bytes of the device's own. It may wait until the device has read its messages.
    pub fn new(link: &Arc<Link>, len: usize) -> Result<Self> {
        let len = len.max(1); // there is no memory without bytes
        let file = unnamed_file(len).and_then(|file| seal(&file, false).map(|()| file)); // its length stays
        let file = file.map_err(MemoryError::Map).map_err(BackendError::memory(DEVICE))?;
        link.wait_to_tell();
        let (fd, access) = (file.as_fd(), Access::ReadWrite);
        let file = ClientMemory { fd, offset: 0, len, kind: ClientMemoryKind::Ashmem, access: Some(access) };
        let region = Region::shared(link, &file, access, len)?;
        let taken = link.taken.fetch_add(len, Ordering::Relaxed) + len; // the region's drop gives it back
        (taken <= DEVICE_BYTES).then_some(region).ok_or(BackendError::OutOfDeviceMemory(len as u64))
    }

    /// One that holds `bytes`.
    pub fn of(link: &Arc<Link>, bytes: &[u8]) -> Result<Self> {
        let region = Region::new(link, bytes.len())?;
        let part = ClientSlice::new(region.mapping.clone(), 0, bytes.len());
        part.and_then(|part| part.write(bytes)).map_err(BackendError::memory(DEVICE))?;
        Ok(region)
    }

    /// Client memory, which the client may change or truncate: the device must expect that at any moment, as the driver does.
    /// `None` for what is better copied, and for whatever is wrong with it: the driver maps it then, and finds the words for
    /// its client.
    pub fn import(link: &Arc<Link>, memory: &ClientMemory) -> Option<Self> {
        if memory.kind == ClientMemoryKind::HardwareBuffer {
            return None; // a real device imports just these, by dma-buf
        }
        let import = |access| Region::shared(link, memory, access, 0).ok();
        match memory.access {
            Some(access) => import(access),
            None => import(Access::ReadWrite).or_else(|| import(Access::Read)),
        }
    }

    fn shared(link: &Arc<Link>, file: &ClientMemory, access: Access, own: usize) -> Result<Self> {
        // Mapped here first: that checks that the file really has these bytes.
        let mapping = Mapping::new(file.fd, file.offset, file.len, access);
        let mapping = Arc::new(mapping.map_err(BackendError::memory(DEVICE))?);
        let id = link.tell_of(file, access)?;
        Ok(Region { link: link.clone(), id, mapping, own })
    }

    /// All of it, as a job names it.
    pub fn span(&self) -> Span {
        [self.id, 0, self.mapping.len() as u64, PLAIN]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.link.taken.fetch_sub(self.own, Ordering::Relaxed);
        self.link.release(self.id);
    }
}

/// What the driver copies itself, from and to client memory that was imported.
impl DeviceMemory for Region {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn access(&self) -> Access {
        self.mapping.access()
    }

    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        whole(&self.mapping).copy_to(to)
    }

    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError> {
        from.copy_to(&whole(&self.mapping))
    }
}

/// A device buffer, in the device's own layout.
#[derive(Debug)]
pub struct Tiled {
    pub region: Region,
    pub shape: Shape,
}

impl Tiled {
    /// `None` for an operand that the device has no layout for, and for a large one: the driver keeps these in its own
    /// memory.
    pub fn new(link: &Arc<Link>, operand: &TensorInfo) -> Result<Option<Self>> {
        let len = operand.byte_size().unwrap_or(usize::MAX);
        if !operand.ty.is_quant8_asymm() || len == 0 || len > MOST_BYTES {
            return Ok(None);
        }
        let shape = Shape::of(&operand.dims);
        Ok(Some(Tiled { region: Region::new(link, shape.tiled_len())?, shape }))
    }

    /// What a buffer held is lost with the device, though its bytes are still mapped.
    fn bytes(&self) -> Result<ClientSlice, MemoryError> {
        self.region.link.check().map_err(|_| MemoryError::Unsupported("the device is lost"))?;
        Ok(whole(&self.region.mapping))
    }
}

impl DeviceMemory for Tiled {
    fn len(&self) -> usize {
        self.shape.plain_len()
    }

    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        to.write(&layout::plain(&self.bytes()?.to_private()?, self.shape))
    }

    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError> {
        self.bytes()?.write(&layout::tiled(&from.to_private()?, self.shape))
    }
}
