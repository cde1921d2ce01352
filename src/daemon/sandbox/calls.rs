//! The system calls that a confined daemon may make: what the test-suite has it make, and what the platform's crash dump
//! makes in its name.
//!
//! `tests/sandbox_calls.sh` runs the suite and says which calls are missing here, and which nobody makes. What is not here
//! fails. Calls that are here but for some of their arguments stand in [`super::narrowed`].

use libc::*;

/// By asm-generic/unistd.h: the libc crate has some of these for Android, and others for Linux only.
#[cfg(target_arch = "aarch64")]
#[allow(non_upper_case_globals)] // as where the others come from
mod generic {
    use libc::c_long;
    pub const SYS_renameat: c_long = 38;
    pub const SYS_fstatfs: c_long = 44;
    pub const SYS_ftruncate: c_long = 46;
    pub const SYS_newfstatat: c_long = 79;
    pub const SYS_fstat: c_long = 80;
}
#[cfg(target_arch = "aarch64")]
use generic::{SYS_fstat, SYS_fstatfs, SYS_ftruncate, SYS_newfstatat, SYS_renameat};

/// Calls with any arguments.
pub const CALLS: &[c_long] = &[
    // Files: caches, the registry and the store, what /proc tells, clients' memory.
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_flock,
    SYS_fstat,
    SYS_fstatfs,
    SYS_ftruncate,
    SYS_getdents64,
    SYS_lseek,
    SYS_memfd_create,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_openat,
    SYS_pipe2,
    SYS_pread64,
    SYS_pwrite64,
    SYS_read,
    SYS_renameat,
    SYS_statx,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_write,
    SYS_writev,
    // Clients and the log: Unix sockets, as no others can be made.
    SYS_accept4,
    SYS_connect,
    SYS_getpeername,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_setsockopt,
    SYS_shutdown,
    // Waiting.
    SYS_clock_nanosleep,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_futex,
    SYS_nanosleep,
    SYS_pidfd_open,
    SYS_ppoll,
    SYS_restart_syscall,
    // Memory.
    SYS_brk,
    SYS_madvise,
    SYS_mremap,
    SYS_munmap,
    // Threads, signals, and what threads ask about themselves.
    SYS_clock_gettime,
    SYS_exit,
    SYS_exit_group,
    SYS_getcpu,
    SYS_geteuid,
    SYS_getpid,
    SYS_getrandom,
    SYS_gettid,
    SYS_getuid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sched_getaffinity,
    SYS_sched_getscheduler,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_sigaltstack,
    SYS_sysinfo,
    // Threads, and where it may start them processes: see `super::filter`. What `clone3` is to do stands in memory, where
    // no filter can look: it is let pass here, and has another filter make it a call that is not there.
    SYS_clone,
    SYS_clone3,
];

/// Calls that do what `clone` does without flags, let pass as it is.
#[cfg(target_arch = "x86_64")]
pub const FORKS: &[c_long] = &[SYS_fork, SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
pub const FORKS: &[c_long] = &[];

/// The same under the names that only older architectures have.
#[cfg(target_arch = "x86_64")]
pub const OLD_CALLS: &[c_long] = &[SYS_dup2, SYS_epoll_wait, SYS_mkdir, SYS_poll, SYS_rename, SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
pub const OLD_CALLS: &[c_long] = &[];

/// What a C library does for each thread.
#[cfg(target_env = "gnu")]
pub const OF_THE_LIBRARY: &[c_long] = &[SYS_rseq];
#[cfg(not(target_env = "gnu"))]
pub const OF_THE_LIBRARY: &[c_long] = &[];

/// Calls that Android's crash handler makes beside the above. Without new privileges it starts no `crash_dump`, but writes
/// the tombstone itself, in the process that crashes: from the stacks of all threads, which it signals, to a file that
/// `tombstoned` hands it. These are the calls of the platform's own list for that, crash_dump.policy in
/// system/core/debuggerd/seccomp_policy; `super::narrowed` has the rest. Whatever is trapped in that handler ends it.
#[cfg(target_os = "android")]
pub const OF_A_CRASH: &[c_long] =
    &[SYS_faccessat, SYS_getegid, SYS_getgid, SYS_getgroups, SYS_gettimeofday, SYS_readlinkat, SYS_uname];
#[cfg(not(target_os = "android"))]
pub const OF_A_CRASH: &[c_long] = &[];

/// Calls that start the backend's process again and look after it, and calls of that process until it confines itself: it
/// inherits the filter of its parent. Loaders look whether files are there.
pub const TO_START_A_PROCESS: &[c_long] = &[SYS_execve, SYS_kill, SYS_set_tid_address, SYS_umask, SYS_wait4];
#[cfg(target_arch = "x86_64")]
pub const TO_START_A_PROCESS_OLD: &[c_long] = &[SYS_access, SYS_arch_prctl];
#[cfg(all(not(target_arch = "x86_64"), not(target_os = "android")))]
pub const TO_START_A_PROCESS_OLD: &[c_long] = &[SYS_faccessat];
#[cfg(all(not(target_arch = "x86_64"), target_os = "android"))]
pub const TO_START_A_PROCESS_OLD: &[c_long] = &[];
