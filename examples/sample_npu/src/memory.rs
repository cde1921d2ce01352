//! Memory that executions use without a copy: client memory that the device took in, and device buffers.

use crate::layout::{self, Shape};
use crate::link::Link;
use crate::plan::MOST_BYTES;
use crate::region::Region;
use nnhal::backend::{BackendError, ClientMemory, ClientMemoryKind, DeviceMemory};
use nnhal::memory::{Access, ClientSlice, Mapping, MemoryError};
use nnhal::tensor::TensorInfo;
use std::sync::Arc;

/// Client memory that the device mapped. The client may change it, or truncate its file: the device must expect that at
/// any moment, as the driver does.
#[derive(Debug)]
pub struct Imported {
    pub link: Arc<Link>,
    pub id: u64,
    /// The same memory here, for copies.
    mapping: Arc<Mapping>,
}

impl Imported {
    /// `None` for what is better copied, and for whatever is wrong with it: the driver maps it then, and finds the words
    /// for its client.
    pub fn new(link: &Arc<Link>, memory: &ClientMemory) -> Option<Self> {
        let ClientMemory { fd, offset, len, kind, access } = *memory;
        if kind == ClientMemoryKind::HardwareBuffer {
            return None; // a real device imports just these, by dma-buf
        }
        // Mapped here first: that checks that the file really has these bytes.
        let map = |access| Mapping::new(fd, offset, len, access).ok();
        let mapping = match access {
            Some(access) => map(access),
            None => map(Access::ReadWrite).or_else(|| map(Access::Read)),
        }?;
        let id = link.import(fd, offset, len, mapping.access()).ok()?;
        Some(Imported { link: link.clone(), id, mapping: Arc::new(mapping) })
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.link.release(self.id);
    }
}

impl DeviceMemory for Imported {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn access(&self) -> Access {
        self.mapping.access()
    }

    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        ClientSlice::whole(self.mapping.clone()).copy_to(to)
    }

    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError> {
        from.copy_to(&ClientSlice::whole(self.mapping.clone()))
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
    pub fn new(link: &Arc<Link>, operand: &TensorInfo) -> Result<Option<Self>, BackendError> {
        let len = operand.byte_size().unwrap_or(usize::MAX);
        if !operand.ty.is_quant8_asymm() || len == 0 || len > MOST_BYTES {
            return Ok(None);
        }
        let shape = Shape::of(&operand.dims);
        Ok(Some(Tiled { region: Region::new(link, shape.tiled_len())?, shape }))
    }

    /// What a buffer held is lost with the device, though its bytes are still mapped.
    fn slice(&self) -> Result<ClientSlice, MemoryError> {
        self.region.link.check().map_err(|_| MemoryError::Unsupported("the device is lost"))?;
        self.region.slice()
    }
}

impl DeviceMemory for Tiled {
    fn len(&self) -> usize {
        self.shape.plain_len()
    }

    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        to.write(&layout::plain(&self.slice()?.to_private()?, self.shape))
    }

    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError> {
        self.slice()?.write(&layout::tiled(&from.to_private()?, self.shape))
    }
}
