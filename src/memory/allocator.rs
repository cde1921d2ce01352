//! How the allocator of the process keeps what is freed.
//!
//! For a process of its own, when it starts: what is set here is set for all of it. Bionic's allocator gives back by itself.

use super::budget::Budget;

/// Has it give memory back soon: few arenas, of which each keeps what its threads freed, and large blocks mapped, which
/// go back at once. Without, models of clients long gone hold some hundred MiB.
///
/// What large messages are read into stays below those sizes. To map takes the one lock that all threads of a process have
/// for its addresses, and who has it may have been put aside: with blocks mapped from 128 KiB on, every thread that mapped, or
/// touched a page for the first time, waited for milliseconds where one client sent models of many operations.
pub fn give_back_soon() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const MIB: i32 = 1 << 20;
        const ARENAS: i32 = 2;
        let settings = [
            (libc::M_ARENA_MAX, ARENAS),
            // Blocks from this size are mapped; to set it keeps it from growing.
            (libc::M_MMAP_THRESHOLD, 4 * MIB),
            // So much free memory an arena keeps at its end until it is asked for it.
            (libc::M_TRIM_THRESHOLD, 8 * MIB),
            // By so much more than it needs it grows.
            (libc::M_TOP_PAD, MIB),
        ];
        for (setting, value) in settings {
            // SAFETY: it takes two numbers, and is safe to call from any thread.
            if unsafe { libc::mallopt(setting, value) } == 0 {
                log::warn!("the allocator does not take {value} for its setting {setting}");
            }
        }
    }
}

/// Has it give back what is free in the midst of its arenas, a while after clients gave back some of `budget`: a few small
/// blocks that stay keep all that was freed below them, tens of MiB after models of very many operations.
///
/// An arena that gives back is locked, for milliseconds, and what is given back amid such models is soon taken anew. So it waits
/// until no more comes back, if that is soon.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_after(budget: &Budget) -> std::io::Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use std::time::Duration;

    /// Much is given back at a time, and by then it is free.
    const AFTER: Duration = Duration::from_millis(500);
    /// So often it waits at the most: what a client had is given back within 2 s also where others go on.
    const MOST: usize = 3;
    /// So much later it looks once more, for what was freed after all that counts: a message's parts, above all.
    const AGAIN: Duration = Duration::from_secs(1);
    let given_back = Arc::new(AtomicUsize::new(0));
    let counted = given_back.clone();
    let trim = || {
        // SAFETY: it takes a number, and is safe to call from any thread. That nothing was to be had is no error.
        unsafe { libc::malloc_trim(0) };
    };
    let trims = move || loop {
        std::thread::park();
        for _ in 0..MOST {
            let before = counted.load(Ordering::Relaxed);
            std::thread::sleep(AFTER);
            if counted.load(Ordering::Relaxed) == before {
                break;
            }
        }
        trim();
        std::thread::sleep(AGAIN);
        trim();
    };
    let thread = std::thread::Builder::new().name("nnhal-trim".into()).spawn(trims)?.thread().clone();
    budget.private().when_given_back(Box::new(move || {
        given_back.fetch_add(1, Ordering::Relaxed);
        thread.unpark();
    }));
    Ok(())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_after(_: &Budget) -> std::io::Result<()> {
    Ok(())
}
