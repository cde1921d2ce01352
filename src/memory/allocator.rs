//! How the allocator of the process keeps what is freed.
//!
//! For a process of its own, when it starts: what is set here is set for all of it. Bionic's allocator gives back by itself.

use super::budget::Budget;

/// Has it give memory back soon: few arenas, of which each keeps what its threads freed, and large blocks mapped, which
/// go back at once. Without, models of clients long gone hold some hundred MiB.
pub fn give_back_soon() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Blocks from this size are mapped; to set it keeps it from growing.
        const MAPPED_FROM: i32 = 128 << 10;
        const ARENAS: i32 = 2;
        let settings = [
            (libc::M_ARENA_MAX, ARENAS),
            (libc::M_MMAP_THRESHOLD, MAPPED_FROM),
            (libc::M_TRIM_THRESHOLD, MAPPED_FROM),
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
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_after(budget: &Budget) -> std::io::Result<()> {
    /// Much is given back at a time, and by then it is free.
    const AFTER: std::time::Duration = std::time::Duration::from_millis(500);
    let trims = || loop {
        std::thread::park();
        std::thread::sleep(AFTER);
        // SAFETY: it takes a number, and is safe to call from any thread. That nothing was to be had is no error.
        unsafe { libc::malloc_trim(0) };
    };
    let thread = std::thread::Builder::new().name("nnhal-trim".into()).spawn(trims)?.thread().clone();
    budget.private().when_given_back(Box::new(move || thread.unpark()));
    Ok(())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_after(_: &Budget) -> std::io::Result<()> {
    Ok(())
}
