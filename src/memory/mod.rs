//! Memory: our own buffers, and client memory, which is hostile.
//!
//! Client memory changes under us and may vanish. No reference into it ever leaves this module: what leaves it are copies,
//! and pointers for kernels to compute through.

mod aligned;
mod allocator;
mod arena;
pub(crate) mod blocking;
mod brief;
mod budget;
mod client;
mod device;
mod file;
mod guard;
mod handed;
mod hardware_buffer;
mod held;
mod identity;
mod kernel;
mod pages;
mod pool;
mod served;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod trap;
mod view;
mod weights;
mod word;
mod zeroed;

pub use aligned::AlignedBuf;
pub use allocator::give_back_soon;
pub use arena::Arena;
pub use blocking::{check as check_blocking, file_type};
pub use budget::{be_one_of_two, client_of_thread, machine_bytes, on_account_of, private_memory, Counted};
pub use client::{Access, ClientSlice, Mapping};
pub use device::{ClientMemory, ClientMemoryKind, DeviceMemory, Memory};
pub use file::is_failed_sync_file;
pub use handed::{constant_file, receive, seal, send, unnamed_file, Part};
pub use held::Held;
pub use identity::Identity;
pub use kernel::{is_empty_stream, process_descriptor};
pub use pages::{guarded_len, page_size, stamp_start};
pub use pool::Pool;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use trap::{refuse_trapped_calls, Trapped, Traps};
pub use view::{Target, View};
pub use weights::{Weights, WEIGHTS_ALIGNMENT};
pub use word::{SharedU32, SharedU64};

/// Why memory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The client's description is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Access(&'static str),
    /// Of a kind that this driver cannot use.
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("cannot map the memory: {0}")]
    Map(std::io::Error),
    #[error("no memory for {0} bytes")]
    OutOfMemory(usize),
    /// Its file shrank while we used it.
    #[error("the memory vanished: its file was truncated while in use")]
    Vanished,
    /// A limit of this process; trying again later can help.
    #[error("{0}")]
    Exhausted(&'static str),
}
