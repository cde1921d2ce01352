//! The guard for memory that vanishes: a client that shrinks a file under our mapping must not end the process.
//!
//! Touching a page that its file no longer has raises SIGBUS. The handler here looks the address up among the mappings
//! of client memory; one that is found gets zeroed private pages in place of the file, is marked as vanished, and the copy
//! that was under way ends normally, to be reported as failed. Every other SIGBUS goes to the handler that was there
//! before: real crashes still crash. Nothing that the handler calls may lock, allocate or panic.
//!
//! The table and what was there before belong to the process, not to a driver: the kernel has one action for a signal, and all
//! that it tells the handler is an address.

use super::kernel::{page_size, stretch};
use super::regions::{FreeSlots, Regions, Slot};
use super::MemoryError;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::sync::Mutex;
use std::sync::OnceLock;

/// How many regions can be watched at once: as many mappings as Linux by default lets a process have.
const SLOTS: usize = 1 << 16;

/// A slot that was never used.
const fn unused() -> Slot {
    Slot {
        generation: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        vanished: AtomicBool::new(false),
    }
}

/// A static of its own because it is all zeroes, which take no room in the program's file.
static TABLE: [Slot; SLOTS] = [const { unused() }; SLOTS];
static REGIONS: Regions<&[Slot]> = Regions {
    slots: &TABLE,
    used: AtomicUsize::new(0),
    free: Mutex::new(FreeSlots { returned: Vec::new(), fresh: 0, limit: SLOTS }),
};

static LOSSES: AtomicUsize = AtomicUsize::new(0);

/// A watched region; dropping it ends the watch, which must happen before the region is unmapped.
pub(super) struct Region {
    slot: usize,
}

impl Region {
    /// Watches the whole pages from `start` on that hold `len` bytes: a shared mapping of a client's file, whose owner
    /// keeps it mapped until this is dropped.
    pub fn watch(start: usize, len: usize) -> Result<Region, MemoryError> {
        install()?;
        let slot = REGIONS.watch(start, len.next_multiple_of(page_size() as usize));
        let slot = slot.ok_or(MemoryError::Exhausted("too many mappings of client memory at once"))?;
        Ok(Region { slot })
    }

    /// Whether the region has lost its file. It never gets it back.
    pub fn vanished(&self) -> bool {
        REGIONS.is_marked(self.slot)
    }

    /// Gives back what was written to the pages in place of a lost file, if it is lost: it is not counted, and not read any more.
    pub fn give_back(&self) {
        if !self.vanished() {
            return;
        }
        let (start, len) = REGIONS.place(self.slot);
        // SAFETY: the region stays mapped as long as `self` lives, and no reference leads into it. A thread that still computes
        // there meets zeroes, as in any memory of a client. Pages that are the file's still, as another thread is only about to
        // replace them, lose nothing by this.
        unsafe { empty(start, len) };
    }
}

/// Has the kernel forget the pages of a region, some at a time: it keeps other threads from mapping anything meanwhile. Safe in a
/// signal's context.
///
/// # Safety
///
/// It is a mapping of a client's memory, which stays, and no reference leads into it.
unsafe fn empty(start: usize, len: usize) {
    let most = stretch(len);
    for at in (0..len).step_by(most) {
        let (from, len) = ((start + at) as *mut libc::c_void, most.min(len - at));
        // SAFETY: a part of it, as the caller promises.
        unsafe { libc::madvise(from, len, libc::MADV_DONTNEED) };
    }
}

/// How many regions of this process have lost their file until now. It changes after their marks are set.
pub fn losses() -> usize {
    LOSSES.load(SeqCst)
}

impl Drop for Region {
    fn drop(&mut self) {
        REGIONS.forget(self.slot);
    }
}

/// What SIGBUS did before the guard.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once in the life of the process.
fn install() -> Result<(), MemoryError> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let failed = || Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        // SAFETY: plain data, of which all zeroes is a valid value.
        let mut earlier: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only reads the present action, into memory of ours.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut earlier) } != 0 {
            return failed();
        }
        // The handler may run as soon as it is installed, so what it goes on to must be known before. What the earlier
        // handler wanted blocked stays blocked; the alternate stack is used where a thread has one.
        let action = libc::sigaction {
            sa_sigaction: on_sigbus as *const () as usize,
            sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART,
            ..*EARLIER.get_or_init(|| earlier)
        };
        // SAFETY: `on_sigbus` has the signature that SA_SIGINFO asks for and is safe in a signal's context.
        match unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => failed(),
        }
    });
    installed.map_err(|errno| MemoryError::Map(std::io::Error::from_raw_os_error(errno)))
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Only the kernel's own codes are positive, and only with those is the address one.
    if code > 0 && heal(address) {
        return;
    }
    chain(EARLIER.get(), signal, code, info, context);
}

/// Puts zeroed pages in place of the region that holds `address`; whether there is such a region.
///
/// The whole region is replaced at once: no client can split our mappings. What it held goes before that, by stretches.
fn heal(address: usize) -> bool {
    // First the mark, then the zeroes: a copy in another thread that meets zeroes must find the mark afterwards.
    let Some((start, len)) = REGIONS.mark(address) else { return false };
    LOSSES.fetch_add(1, SeqCst);
    let errno = nix::errno::Errno::last_raw();
    // SAFETY: the region is a mapping of client memory, of which nobody holds a reference. The thread that faulted in it
    // keeps it mapped, as does every other that is copying.
    let placed = unsafe {
        empty(start, len);
        libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    nix::errno::Errno::set_raw(errno);
    placed != libc::MAP_FAILED
}

/// Does what would have been done without a handler of ours: by the one that was there `earlier`.
pub(super) fn chain(
    earlier: Option<&libc::sigaction>,
    signal: libc::c_int,
    code: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    match earlier.map_or(libc::SIG_DFL, |earlier| earlier.sa_sigaction) {
        // Another process's kill can be ignored; a fault cannot, and the kernel then does as with SIG_DFL.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the default action and touches nothing else. A fault then happens again and ends the
            // process as it should; a signal that was sent is sent once more, to arrive when the handler returns.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if earlier.is_some_and(|earlier| earlier.sa_flags & libc::SA_SIGINFO != 0) => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: it was installed with SA_SIGINFO, and so is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was installed without SA_SIGINFO, and so is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
