//! How the allocator of the process keeps what is freed.

/// Has it give memory back soon: few arenas, of which each keeps what its threads freed, and large blocks mapped, which
/// go back at once. Without, models of clients long gone hold some hundred MiB.
///
/// For a process of its own, when it starts. Bionic's allocator gives back by itself.
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
