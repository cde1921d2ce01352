//! How much private memory the process takes for what clients want: constants, packed weights, values of runs.
//!
//! Linux promises more memory than there is and kills a process that uses all of it. So the large buffers are counted,
//! and one too many is an error while there is memory left to report it with. Each is counted on the account of the
//! client for whom the thread that takes it works, so that no client takes it all. Must not know what it is wanted for.

use crate::quota::{Permit, Quota};
use nix::unistd::{sysconf, SysconfVar};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The part of the memory that may be taken in all unless told, and the part of that which one client alone may hold.
const PART_OF_MACHINE: u64 = 2;
const PART_OF_CLIENT: u64 = 2;
/// Bytes that every client may have while the machine has them.
const FLOOR: u64 = 4 << 20;
/// The account of memory that no client asked for.
const NOBODY: u32 = u32::MAX;

thread_local! {
    static CLIENT: Cell<u32> = const { Cell::new(NOBODY) };
}

/// Has a thread work for a client, until dropped.
pub struct Account {
    before: u32,
    /// It is the thread's own.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Has the calling thread work for `client`.
pub fn on_account_of(client: u32) -> Account {
    Account { before: CLIENT.replace(client), _not_send: std::marker::PhantomData }
}

/// The client that the calling thread works for, so that another thread can go on for the same.
pub fn client_of_thread() -> u32 {
    CLIENT.get()
}

impl Drop for Account {
    fn drop(&mut self) {
        CLIENT.set(self.before);
    }
}

/// Memory of this machine in bytes; a guess where it does not tell.
pub fn machine_bytes() -> usize {
    let of = |var| sysconf(var).ok().flatten().and_then(|n| usize::try_from(n).ok());
    let memory = of(SysconfVar::_PHYS_PAGES).zip(of(SysconfVar::PAGE_SIZE));
    memory.map_or(1 << 30, |(pages, size)| pages.saturating_mul(size))
}

/// What clients may have in all, where that was told.
static TOLD: OnceLock<u64> = OnceLock::new();

/// Lets clients have so many bytes in all. For a process that begins, as [`be_one_of_two`] is.
pub fn let_clients_have(bytes: u64) {
    // Told twice, the first holds.
    let _ = TOLD.set(bytes);
}

/// What clients may have in all: of private memory this, of device buffers half of it besides.
pub fn bytes_for_clients() -> u64 {
    TOLD.get().copied().unwrap_or(machine_bytes() as u64 / PART_OF_MACHINE)
}

/// Processes that share the memory which there is for clients.
static PROCESSES: AtomicU64 = AtomicU64::new(1);

/// Leaves half of it to another process of this driver. For a process that begins: what counts already stays as it is.
pub fn be_one_of_two() {
    PROCESSES.store(2, Ordering::Relaxed);
}

fn private() -> &'static Arc<Quota> {
    static PRIVATE: OnceLock<Arc<Quota>> = OnceLock::new();
    PRIVATE.get_or_init(|| {
        let total = bytes_for_clients() / PROCESSES.load(Ordering::Relaxed);
        Quota::with_floor(total, total / PART_OF_CLIENT, FLOOR)
    })
}

/// What counts the bytes of the process's private buffers.
pub fn private_memory() -> Arc<Quota> {
    private().clone()
}

/// Some bytes of what all private buffers of the process may take, given back when dropped.
#[derive(Debug)]
pub struct Counted {
    _permit: Permit,
}

impl Counted {
    /// `None` where there are not as many left for the thread's client.
    pub fn take(bytes: usize) -> Option<Self> {
        private().take(CLIENT.get(), bytes as u64).ok().map(|permit| Counted { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_no_more() {
        let share = machine_bytes() / 4;
        let _outer = on_account_of(70_001);
        assert!(Counted::take(share + 1).is_none());
        let most = Counted::take(share / 2).expect("half of a client's share");
        assert!(Counted::take(share * 3 / 4).is_none(), "with what it has, that is too much");
        {
            let _inner = on_account_of(70_002);
            assert_eq!(client_of_thread(), 70_002);
            drop(Counted::take(share / 2).expect("another's account"));
        }
        assert_eq!(client_of_thread(), 70_001);
        drop(most);
        assert!(Counted::take(share * 3 / 4).is_some(), "what was given back can be had again");
    }
}
