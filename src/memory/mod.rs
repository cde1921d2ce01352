//! Memory: our own buffers, and client memory, which is hostile.
//!
//! Client memory changes under us and may vanish. No reference into it ever leaves this module: what leaves it are copies,
//! and pointers for kernels to compute through.

mod access;
mod accessed;
mod aligned;
mod allocator;
mod apart;
mod arena;
pub(crate) mod blocking;
mod budget;
mod checksum;
mod common;
mod device;
mod error;
mod file;
mod guard;
mod handed;
mod hardware_buffer;
mod identity;
mod idle;
mod image;
mod kernel;
mod machine;
mod mapping;
mod pages;
mod pool;
mod regions;
mod served;
mod slab;
mod slice;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod trap;
mod unmapped;
mod view;
mod weights;
#[cfg(feature = "tool")]
mod whole_file;
mod word;
mod zeroed;

pub use access::Access;
pub use accessed::Accessed;
pub use aligned::AlignedBuf;
pub use allocator::{give_back_after, give_back_soon};
pub use apart::ApartLists;
pub use arena::{Arena, FEW};
pub use blocking::{check as check_blocking, file_type};
pub use budget::{
    bytes_for_clients, client_of_thread, forget_refusals, note_idle, on_account_of, refused, Account, Budget,
    Counted, Entered,
};
pub use checksum::share as checksum_share;
pub use common::Common;
pub use device::{ClientMemory, ClientMemoryKind, DeviceMemory, Memory};
pub use error::MemoryError;
pub use file::has_sync_file_failed;
pub use guard::losses as losses_of_memory;
pub use handed::{
    receive, receive_unread, receive_within, seal, send, send_with_body, unnamed_file, Message,
};
pub use hardware_buffer::stand_in_for_native_window;
#[cfg(test)]
pub(crate) use hardware_buffer::tests::{memory_of_a_busy_device, memory_of_a_device};
pub use identity::{same_memory, Identity};
pub use idle::Keeper;
pub use kernel::{
    give_up_new_privileges, is_empty_stream, is_unix_socket, look_for_others, page_size, process_descriptor,
    set_time_slice, time_slice,
};
pub use machine::{machine_bytes, mappable_bytes};
pub use mapping::Mapping;
pub use pages::{guarded_len, stamp_start};
pub use pool::Pool;
pub use slab::{Slab, FORM};
pub use slice::ClientSlice;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use trap::{refuse_trapped_calls, Trapped, Traps};
pub use view::{Target, View};
pub use weights::{Weights, WEIGHTS_ALIGNMENT};
#[cfg(feature = "tool")]
pub use whole_file::whole_file;
pub use word::{SharedU32, SharedU64};
pub use zeroed::{bytes_of_pages, prefer_huge_pages};
