//! What device buffers take, against what clients may have of them.

use super::BufferError;
use crate::quota::{Exhausted, Permit, Quota};
use std::sync::Arc;

/// What clients have, against what they may have.
pub struct Account {
    pub bytes: Arc<Quota>,
    pub buffers: Arc<Quota>,
}

impl Account {
    /// Half as much for all as the `private` memory that they may have.
    pub fn beside(private: u64) -> Self {
        let bytes = private / 2;
        Account {
            bytes: Quota::with_floor(bytes, bytes / 2, 1 << 20),
            buffers: Quota::with_floor(8192, 2048, 16),
        }
    }
}

fn exhausted(why: Exhausted) -> BufferError {
    BufferError::Exhausted(format!("the limit of device buffers, or of their bytes: {why}; free some first"))
}

/// One buffer's share of the account, given back on drop.
pub struct Charge {
    _buffer: Permit,
    bytes: Permit,
}

impl Charge {
    pub fn new(account: &Account, uid: u32, bytes: usize) -> Result<Charge, BufferError> {
        let buffer = account.buffers.take(uid, 1).map_err(exhausted)?;
        let bytes = account.bytes.take(uid, bytes as u64).map_err(exhausted)?;
        Ok(Charge { _buffer: buffer, bytes })
    }

    pub fn raise(&mut self, bytes: usize) -> Result<(), BufferError> {
        self.bytes.raise(bytes as u64).map_err(exhausted)
    }

    pub fn lower(&mut self, bytes: usize) {
        self.bytes.lower(bytes as u64);
    }
}
