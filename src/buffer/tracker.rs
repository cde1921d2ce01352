//! All device buffers of the driver: their tokens, their owners, and what they may take.

use super::{invalid, Allocator, BufferError, DeviceBuffer, Owner, Plan, Role};
use crate::memory::machine_bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a buffer costs besides its bytes and roles: an entry here, a mapping, a binder object.
const OVERHEAD: usize = 4096;

/// How much memory device buffers may take, overhead included.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one client, that is of one uid.
    pub client_bytes: usize,
    /// Buffers of one client.
    pub client_buffers: usize,
    /// Bytes of all clients.
    pub bytes: usize,
    /// Buffers of all clients: each is a mapping, of which a process has only so many.
    pub buffers: usize,
}

impl Default for Limits {
    /// An eighth of this machine's memory for one client, a quarter for all.
    fn default() -> Self {
        let memory = machine_bytes();
        Limits { client_bytes: memory / 8, client_buffers: 2048, bytes: memory / 4, buffers: 8192 }
    }
}

/// Every device buffer that is alive, by token.
#[derive(Clone, Default)]
pub struct BufferTracker {
    buffers: Arc<Mutex<HashMap<i32, Arc<DeviceBuffer>>>>,
    account: Arc<Account>,
}

impl BufferTracker {
    pub fn new(limits: Limits) -> Self {
        BufferTracker { account: Arc::new(Account { limits, used: Mutex::default() }), ..Self::default() }
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
        let mut buffers = self.lock();
        let token = loop {
            let token = random_token()?;
            if !buffers.contains_key(&token) {
                break token;
            }
        };
        let buffer = Arc::new(DeviceBuffer::new(token, owner, plan, allocator, charge)?);
        buffers.insert(token, buffer.clone());
        Ok(BufferHandle { buffer, tracker: self.clone() })
    }

    /// The buffer of `owner` that has this token. Whether it is another's or nobody's is not told.
    pub fn find(&self, owner: Owner, token: i32) -> Result<Arc<DeviceBuffer>, BufferError> {
        match self.lock().get(&token).filter(|buffer| buffer.owner() == owner) {
            Some(buffer) => Ok(buffer.clone()),
            None => {
                invalid(format!("no buffer has the token {token}; it was freed, or is not this process's"))
            }
        }
    }

    /// How many buffers are alive, and what they take.
    #[cfg(test)]
    pub(super) fn usage(&self) -> (usize, usize) {
        let used = self.account.lock();
        (used.all.buffers, used.all.bytes)
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

/// What clients have, against what they may have.
#[derive(Default)]
struct Account {
    limits: Limits,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: Usage,
    by_uid: HashMap<u32, Usage>,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    buffers: usize,
    bytes: usize,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what `uid` has, if that leaves it and the driver within limits.
    fn add(&self, uid: u32, more: Usage) -> Result<(), BufferError> {
        let mut used = self.lock();
        let sum = |a: Usage| Usage {
            buffers: a.buffers.saturating_add(more.buffers),
            bytes: a.bytes.saturating_add(more.bytes),
        };
        let (client, all) = (sum(used.by_uid.get(&uid).copied().unwrap_or_default()), sum(used.all));
        let limits = &self.limits;
        let of_client = client.bytes > limits.client_bytes || client.buffers > limits.client_buffers;
        if of_client || all.bytes > limits.bytes || all.buffers > limits.buffers {
            let whose = if of_client { "this client's" } else { "all clients'" };
            return Err(BufferError::Exhausted(format!(
                "device buffers of {} more bytes exceed {whose} limit; free some first",
                more.bytes
            )));
        }
        used.all = all;
        used.by_uid.insert(uid, client);
        Ok(())
    }

    fn subtract(&self, uid: u32, less: Usage) {
        let mut used = self.lock();
        let subtract = |usage: &mut Usage| {
            usage.buffers = usage.buffers.saturating_sub(less.buffers);
            usage.bytes = usage.bytes.saturating_sub(less.bytes);
            usage.buffers == 0 && usage.bytes == 0
        };
        subtract(&mut used.all);
        if used.by_uid.get_mut(&uid).is_some_and(subtract) {
            used.by_uid.remove(&uid);
        }
    }
}

/// One buffer's share of the account, given back on drop.
pub(super) struct Charge {
    account: Arc<Account>,
    uid: u32,
    bytes: usize,
}

impl Charge {
    fn new(account: &Arc<Account>, uid: u32, bytes: usize) -> Result<Charge, BufferError> {
        account.add(uid, Usage { buffers: 1, bytes })?;
        Ok(Charge { account: account.clone(), uid, bytes })
    }

    pub fn raise(&mut self, bytes: usize) -> Result<(), BufferError> {
        self.account.add(self.uid, Usage { buffers: 0, bytes })?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    pub fn lower(&mut self, bytes: usize) {
        self.account.subtract(self.uid, Usage { buffers: 0, bytes });
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.uid, Usage { buffers: 1, bytes: self.bytes });
    }
}
