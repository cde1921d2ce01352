//! All device buffers of the driver: their tokens, their owners, and what they may take.

use super::account::{Account, Charge};
use super::{invalid, Allocator, BufferError, DeviceBuffer, Owner, Plan, Role};
use crate::quota::Quota;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a buffer costs besides its bytes and roles: an entry here, a mapping, a binder object.
const OVERHEAD: usize = 4096;

/// Every device buffer that is alive, by token.
#[derive(Clone)]
pub struct BufferTracker {
    buffers: Arc<Mutex<HashMap<i32, Arc<DeviceBuffer>>>>,
    account: Arc<Account>,
}

impl BufferTracker {
    /// For clients that together may have so many bytes of private memory besides.
    pub fn for_clients_with(private: u64) -> Self {
        BufferTracker { buffers: Arc::default(), account: Arc::new(Account::beside(private)) }
    }

    /// For so many bytes of buffers, overhead included, and so many buffers: each is a mapping, of which a process has
    /// only so many.
    pub fn new(bytes: Arc<Quota>, buffers: Arc<Quota>) -> Self {
        BufferTracker { buffers: Arc::default(), account: Arc::new(Account { bytes, buffers }) }
    }

    /// Allocates a buffer for `owner`, without contents, whose memory comes from `allocator`. It lives as long as the
    /// handle, and as executions that use it.
    pub fn allocate(
        &self,
        owner: Owner,
        plan: Plan,
        allocator: Allocator,
    ) -> Result<BufferHandle, BufferError> {
        let charge = Charge::new(&self.account, owner.uid, OVERHEAD + plan.roles.len() * size_of::<Role>())?;
        // Before the table is locked: a backend's allocator may take its time.
        let buffer = DeviceBuffer::new(owner, plan, allocator, charge)?;
        let mut buffers = self.lock();
        let token = loop {
            let token = random_token()?;
            if !buffers.contains_key(&token) {
                break token;
            }
        };
        let buffer = Arc::new(buffer.called(token));
        buffers.insert(token, buffer.clone());
        Ok(BufferHandle { buffer, tracker: self.clone() })
    }

    /// The buffer of `owner` that has this token. The error does not tell whether another owner has it.
    pub fn find(&self, owner: Owner, token: i32) -> Result<Arc<DeviceBuffer>, BufferError> {
        match self.lock().get(&token).filter(|buffer| buffer.owner() == owner) {
            Some(buffer) => Ok(buffer.clone()),
            None => {
                invalid(format!("no buffer has the token {token}; it was freed, or is not this process's"))
            }
        }
    }

    /// What counts buffers and their bytes, and what it counts.
    pub fn quotas(&self) -> [(&'static str, Arc<Quota>); 2] {
        let Account { bytes, buffers } = &*self.account;
        [("device buffers are alive", buffers.clone()), ("bytes of device buffers are held", bytes.clone())]
    }

    /// How many buffers are alive, and what they take.
    #[cfg(test)]
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.account.buffers.held() as usize, self.account.bytes.held() as usize)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Arc<DeviceBuffer>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a device buffer alive; with it the token ends.
pub struct BufferHandle {
    buffer: Arc<DeviceBuffer>,
    tracker: BufferTracker,
}

impl std::ops::Deref for BufferHandle {
    type Target = Arc<DeviceBuffer>;

    fn deref(&self) -> &Arc<DeviceBuffer> {
        &self.buffer
    }
}

impl Drop for BufferHandle {
    fn drop(&mut self) {
        self.tracker.lock().remove(&self.buffer.token());
    }
}

/// A token that nobody can guess from others: positive, and random otherwise.
fn random_token() -> Result<i32, BufferError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|e| BufferError::Exhausted(format!("no random token: {e}")))?;
    Ok((i32::from_ne_bytes(bytes) & i32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Direction;
    use crate::tensor::{OperandType, TensorInfo};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn others_find_their_buffers_while_a_backend_allocates() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let tracker = BufferTracker::for_clients_with(1 << 32);
        let owner = Owner { uid: 1000, pid: 7 };
        let plan = || Plan {
            info: TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]),
            roles: vec![Role { model: 1, direction: Direction::Input, index: 0 }],
        };
        let first = tracker.allocate(owner, plan(), Arc::new(|_| Ok(None))).unwrap();
        let (finds, token) = (tracker.clone(), first.token());
        let allocator = move |_: &TensorInfo| {
            let ((tell, told), finds) = (channel(), finds.clone());
            std::thread::spawn(move || tell.send(finds.find(owner, token).is_ok()));
            assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
            Ok(None)
        };
        let second = tracker.allocate(owner, plan(), Arc::new(allocator)).unwrap();
        assert_ne!(first.token(), second.token());
        assert!(tracker.find(owner, second.token()).is_ok());
    }
}
