//! Memory that both processes have: a client's that is lent, and what arguments are copied to that cannot be.
//!
//! Its descriptor is kept, so that it can be lent to the next process when one has ended: what is in it does not end.

use super::life::{new_number, Life};
use super::message::{Order, With};
use crate::backend::{BackendError, ClientMemoryKind};
use crate::memory::{seal, unnamed_file, Access, ClientSlice, DeviceMemory, Mapping, MemoryError};
use crate::scheduler::Permit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub struct Lent {
    number: u64,
    file: OwnedFd,
    offset: u64,
    kind: ClientMemoryKind,
    mapping: Arc<Mapping>,
    /// The life of the process that has it.
    life: Mutex<Weak<Life>>,
    /// For its descriptor, of the client whose memory it is.
    permit: Permit,
}

impl Lent {
    /// `file` from `offset` on, which is mapped here already.
    pub fn new(file: OwnedFd, offset: u64, kind: ClientMemoryKind, mapping: Mapping, permit: Permit) -> Self {
        Lent {
            number: new_number(),
            file,
            offset,
            kind,
            mapping: Arc::new(mapping),
            life: Mutex::default(),
            permit,
        }
    }

    /// Fresh memory, all zero.
    pub fn buffer(len: usize, permit: Permit) -> Result<Self, MemoryError> {
        let file = unnamed_file(len).map_err(MemoryError::Map)?;
        seal(&file, false).map_err(MemoryError::Map)?;
        let mapping = Mapping::new(file.as_fd(), 0, len, Access::ReadWrite)?;
        Ok(Lent::new(file.into(), 0, ClientMemoryKind::MappableFile, mapping, permit))
    }

    /// Its bytes.
    pub fn slice(&self) -> ClientSlice {
        ClientSlice::whole(self.mapping.clone())
    }

    /// Lends it, unless this process has it already; gives its number. Waits for so long at the most, should the process have
    /// too much to read.
    pub fn lend(&self, life: &Arc<Life>, patience: Duration) -> Result<u64, BackendError> {
        let mut has = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(has.as_ptr(), Arc::as_ptr(life)) {
            let (number, client) = (self.number, self.permit.client());
            let (offset, len) = (self.offset, self.mapping.len());
            let (access, kind) = (self.mapping.access(), self.kind);
            let order = Order::Lend { number, client, offset, len, access, kind };
            life.tell(&order, With { body: &[], files: &[self.file.as_fd()] }, patience)?;
            *has = Arc::downgrade(life);
        }
        Ok(self.number)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let life = self.life.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = life.upgrade() {
            life.release(self.number);
        }
    }
}

impl DeviceMemory for Lent {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn access(&self) -> Access {
        self.mapping.access()
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn bytes(&self) -> Option<ClientSlice> {
        Some(self.slice())
    }

    fn read(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        self.slice().part(0, to.len())?.copy_to(to)
    }

    fn write(&self, from: &ClientSlice) -> Result<(), MemoryError> {
        from.copy_to(&self.slice())
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory {} that is lent, {:?}", self.number, self.mapping)
    }
}
