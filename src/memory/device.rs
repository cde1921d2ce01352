//! Memory as executions use it: mapped into this process, or a device's own.
//!
//! What a device's memory looks like is its backend's matter; here it has a size, and copies in and out.

use super::{Access, ClientSlice, Mapping, MemoryError};
use std::any::Any;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Memory of a device: client memory that it imported, or memory of its own in whatever layout it likes.
pub trait DeviceMemory: Any + Debug + Send + Sync {
    /// Bytes of the value or pool that it stands for, as a client counts them: in the plain layout.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The access that the client allows; the driver keeps to it. Memory that is the device's own may be read and written.
    fn access(&self) -> Access {
        Access::ReadWrite
    }

    /// Whether a value lies in it in the plain layout, so that it serves for values of other dimensions as well: `read` and
    /// `write` then come with as many bytes as such a value has.
    fn is_plain(&self) -> bool {
        false
    }

    /// Its bytes in the plain layout, where they lie in memory of this process that it may copy from and to: the driver then
    /// copies itself, and lets others compute meanwhile.
    fn bytes(&self) -> Option<ClientSlice> {
        None
    }

    /// Copies all of it to `to`, which is [`len`](Self::len) bytes long, in the plain layout.
    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError>;

    /// Fills it from `from`, which is [`len`](Self::len) bytes long, in the plain layout.
    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError>;
}

impl dyn DeviceMemory {
    /// The memory as the backend that made it knows it; `None` if it is of another type.
    pub fn downcast<T: DeviceMemory>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A memory that arguments lie in. Clones are the same memory.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Mapped into this process.
    Mapped(Arc<Mapping>),
    /// The device's.
    Device(Arc<dyn DeviceMemory>),
}

impl Memory {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Memory::Mapped(mapping) => mapping.len(),
            Memory::Device(memory) => memory.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        match self {
            Memory::Mapped(mapping) => mapping.access(),
            Memory::Device(memory) => memory.access(),
        }
    }

    /// Whether it is a hardware buffer that is no BLOB, which is one operand whole.
    pub fn is_image(&self) -> bool {
        matches!(self, Memory::Mapped(mapping) if mapping.is_image())
    }

    /// Whether it is known that its file shrank.
    pub fn vanished(&self) -> bool {
        matches!(self, Memory::Mapped(mapping) if mapping.vanished())
    }

    /// Whether it is the same object, and so surely the same memory.
    pub fn is(&self, other: &Memory) -> bool {
        match (self, other) {
            (Memory::Mapped(a), Memory::Mapped(b)) => Arc::ptr_eq(a, b),
            (Memory::Device(a), Memory::Device(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Client memory as its client describes it, for a device that maps or imports it itself. Nothing about it was checked
/// but what the description says: the file may be shorter, and may change or shrink at any moment.
#[derive(Clone, Copy, Debug)]
pub struct ClientMemory<'a> {
    /// The file; for a hardware buffer, the first descriptor of its handle.
    pub fd: BorrowedFd<'a>,
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    pub kind: ClientMemoryKind,
    /// What the client allows; `None` where that is for the file to say.
    pub access: Option<Access>,
}

/// How a client describes a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMemoryKind {
    Ashmem,
    MappableFile,
    /// A hardware buffer of format BLOB; most likely a dma-buf.
    HardwareBuffer,
}
