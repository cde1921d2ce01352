//! What decoding an operand needs to know of its model: extensions, values, pools, and limits on what is copied.

use super::extensions::Extensions;
use super::{Extension, ModelError};
use crate::aidl;
use crate::memory::{ClientSlice, Mapping, MemoryError, Pool};
use crate::ops::pace::Pace;
use crate::ops::Interrupt;
use std::cell::OnceCell;
use std::sync::Arc;

/// Bytes of constants that may be copied while a model is checked: no client needs more in operands that steer
/// execution, and many operands may name the same bytes.
const MAX_PRIVATE_CONSTANTS: usize = 256 << 20;

/// Bytes that are copied in an elementary step, about.
const BYTES_IN_A_STEP: usize = 4;

/// What decoding an operand needs to know of its model.
pub(super) struct Context<'a> {
    pub extensions: Extensions<'a>,
    pub operand_values: &'a [u8],
    pools: Pools<'a>,
    /// Number of referenced subgraphs.
    pub referenced: usize,
    private_bytes: usize,
    pub pace: Pace<'a>,
}

impl<'a> Context<'a> {
    /// Checks the model's tables of extensions and pools.
    pub fn new(model: &'a aidl::Model, known: &'a [Extension], pace: Pace<'a>) -> Result<Self, ModelError> {
        Ok(Context {
            extensions: Extensions::new(&model.extensionNameToPrefix, known)?,
            operand_values: &model.operandValues,
            pools: Pools::new(&model.pools)?,
            referenced: model.referenced.len(),
            private_bytes: 0,
            pace,
        })
    }

    /// A part of a pool, which is mapped if it is not yet: that may have to wait for a process that serves it.
    pub fn slice(&self, index: i32, offset: usize, length: usize) -> Result<ClientSlice, ModelError> {
        self.pools.slice(index, offset, length, self.pace.interrupt())
    }

    /// Counts bytes about to be copied against the limit, and as work.
    pub fn count_private(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.pace.spend(bytes / BYTES_IN_A_STEP)?;
        self.private_bytes = self.private_bytes.saturating_add(bytes);
        if self.private_bytes > MAX_PRIVATE_CONSTANTS {
            return Err(ModelError::TooLarge(format!(
                "constants that must be copied exceed {MAX_PRIVATE_CONSTANTS} bytes"
            )));
        }
        Ok(())
    }
}

/// The model's pools; each is mapped when a constant first needs it.
struct Pools<'a> {
    pools: Vec<LazyPool<'a>>,
}

struct LazyPool<'a> {
    is_image: bool,
    /// Why it cannot be used, for a pool of a kind that the driver does not map.
    pool: Result<Pool<'a>, MemoryError>,
    mapping: OnceCell<Arc<Mapping>>,
}

impl<'a> Pools<'a> {
    fn new(memories: &'a [aidl::Memory]) -> Result<Self, ModelError> {
        let mut pools = Vec::with_capacity(memories.len());
        for (i, memory) in memories.iter().enumerate() {
            let pool = Pool::new(memory);
            // An unusable pool fails only what needs it; a pool that is described wrongly makes the model invalid.
            if let Err(MemoryError::Invalid(why)) = &pool {
                return Err(ModelError::Invalid(format!("pool {i}: {why}")));
            }
            let is_image = Pool::describes_image(memory);
            pools.push(LazyPool { is_image, pool, mapping: OnceCell::new() });
        }
        Ok(Pools { pools })
    }

    fn slice(
        &self,
        index: i32,
        offset: usize,
        length: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<ClientSlice, ModelError> {
        let found = usize::try_from(index).ok().and_then(|i| self.pools.get(i));
        let LazyPool { is_image, pool, mapping } = found.ok_or_else(|| {
            ModelError::Invalid(format!("pool {index} does not exist; the model has {}", self.pools.len()))
        })?;
        if *is_image {
            return Err(ModelError::Invalid(format!(
                "pool {index} is a hardware buffer of another format than BLOB; constants cannot lie in it"
            )));
        }
        let failed = |source: MemoryError| match source {
            MemoryError::Invalid(why) => ModelError::Invalid(format!("pool {index}: {why}")),
            source => ModelError::Memory { what: format!("pool {index}"), source },
        };
        let pool = match pool {
            Ok(pool) => pool,
            Err(MemoryError::Unsupported(why)) => return Err(failed(MemoryError::Unsupported(why))),
            Err(other) => return Err(ModelError::Invalid(format!("pool {index}: {other}"))),
        };
        if offset.checked_add(length).is_none_or(|end| end > pool.size()) {
            return Err(ModelError::Invalid(format!(
                "bytes {offset}+{length} lie outside of pool {index}, which has {}",
                pool.size()
            )));
        }
        let mapping = match mapping.get() {
            Some(mapping) => mapping.clone(),
            None => {
                interrupt.before_waiting();
                let fresh = pool.map_to_read_once().map_err(failed)?;
                mapping.get_or_init(|| fresh).clone()
            }
        };
        ClientSlice::new(mapping, offset, length).map_err(failed)
    }
}

/// `error` with the place it happened at in front.
pub(super) fn within(place: &str, error: ModelError) -> ModelError {
    match error {
        ModelError::Invalid(why) => ModelError::Invalid(format!("{place}, {why}")),
        ModelError::TooLarge(why) => ModelError::TooLarge(format!("{place}, {why}")),
        ModelError::Memory { what, source } => {
            ModelError::Memory { what: format!("{place}, {what}"), source }
        }
        ModelError::Interrupted(_) => error,
    }
}
