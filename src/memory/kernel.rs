//! What only the kernel can tell or make, and no crate asks it for on every target.

use super::blocking;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::time::{clock_gettime, ClockId};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A descriptor of the process with this id, which can be read once the process has ended.
pub fn process_descriptor(process: libc::pid_t) -> std::io::Result<OwnedFd> {
    const NO_FLAGS: libc::c_uint = 0;
    // SAFETY: the call takes two numbers, and touches no memory of ours.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, process, NO_FLAGS) };
    let fd = i32::try_from(made).ok().filter(|&fd| fd >= 0).ok_or_else(std::io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Nothing that this process starts from here on gains privileges by being started.
pub fn give_up_new_privileges() -> std::io::Result<()> {
    // SAFETY: the call takes numbers, and touches no memory of ours.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// `struct sched_attr` of linux/sched/types.h, as it was at first.
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Names the calling thread.
const THIS: libc::c_long = 0;

fn sched_attributes() -> std::io::Result<SchedAttributes> {
    let mut attributes = SchedAttributes::default();
    let size = size_of::<SchedAttributes>() as libc::c_uint;
    // SAFETY: the kernel writes a structure of this size.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, THIS, &mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// For how long the calling thread may compute before the kernel looks for others. Zero with kernels before Linux 6.12, which do
/// not tell.
pub fn time_slice() -> std::io::Result<Duration> {
    Ok(Duration::from_nanos(sched_attributes()?.runtime))
}

/// Has the calling thread, and all that it starts from here on, compute for so long before the kernel looks for others; its share
/// stays the same. Kernels before Linux 6.12 take no notice.
pub fn set_time_slice(slice: Duration) -> std::io::Result<()> {
    const KEEP_POLICY: u64 = 0x08;
    let nice = sched_attributes()?.nice;
    let runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    let size = size_of::<SchedAttributes>() as u32;
    let attributes = SchedAttributes { size, flags: KEEP_POLICY, nice, runtime, ..Default::default() };
    // SAFETY: the kernel reads a structure of the size that is in it.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, THIS, &attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Has the kernel see whether it is another thread's time to run: it chooses again when a thread wakes, and otherwise at its ticks,
/// which are up to 10 ms apart. Takes 0.2 us, and unlike `sched_yield` nothing of the thread's share. Whether the kernel did so.
pub fn look_for_others() -> bool {
    // To tell how long the thread has run it brings its account up to date, sees by it who is due, and changes to that one before
    // it answers.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).is_ok()
}

/// Whether `fd`, a socket, is of this machine's own: nothing that is asked of such a one waits for another process.
pub fn is_unix_socket(fd: BorrowedFd) -> bool {
    let (mut domain, mut length): (libc::c_int, libc::socklen_t) = (-1, size_of::<libc::c_int>() as _);
    let (to, length) = ((&raw mut domain).cast(), &raw mut length);
    // SAFETY: the option is an integer, which is stored in the one that it is given with its length.
    let asked = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, to, length) };
    asked == 0 && domain == libc::AF_UNIX
}

/// Whether `fd` is a socket or pipe that holds nothing to read. Asking takes nothing away, not even a socket's error.
pub fn is_empty_stream(fd: BorrowedFd) -> bool {
    match blocking::file_type(fd) {
        Ok(libc::S_IFSOCK) => {}
        // A pipe would count its bytes under a lock, which who writes to it may hold for long.
        Ok(libc::S_IFIFO) => {
            let mut asked = [PollFd::new(fd, PollFlags::POLLIN)];
            let done = poll(&mut asked, PollTimeout::ZERO);
            let readable = asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
            return done.is_ok() && !readable;
        }
        _ => return false,
    }
    let mut unread: libc::c_int = -1;
    // SAFETY: to sockets the request means to store how many bytes they hold, in the integer that it is given.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD as _, &mut unread) };
    asked == 0 && unread == 0
}

/// Whether both are of one open file, as duplicates are. `None` where the kernel does not tell.
pub(super) fn same_open_file(a: BorrowedFd, b: BorrowedFd) -> Option<bool> {
    /// linux/fcntl.h, since Linux 6.10
    const F_DUPFD_QUERY: libc::c_int = 1024 + 3;
    /// linux/kcmp.h
    const KCMP_FILE: libc::c_int = 0;
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    // SAFETY: the command takes a number, and touches no memory of ours.
    match unsafe { libc::fcntl(a, F_DUPFD_QUERY, b) } {
        0 => return Some(false),
        1 => return Some(true),
        _ => {}
    }
    let process = std::process::id() as libc::pid_t;
    let (a, b) = (libc::c_long::from(a), libc::c_long::from(b));
    // SAFETY: the call takes five numbers, and touches no memory of ours.
    match unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, a, b) } {
        0 => Some(true),
        -1 => None,
        _ => Some(false),
    }
}

/// How many of `len` bytes of pages the kernel is to let go of at a time: it keeps other threads from mapping anything meanwhile. Of
/// very many, most of which nobody touched, it is asked a thousand times or so.
pub(super) fn stretch(len: usize) -> usize {
    const LEAST: usize = 4 << 20;
    (len / 1024).max(LEAST) / LEAST * LEAST
}

/// Gives mapped pages back, `len` bytes from `start`, which are whole pages: some at a time, from the end on.
///
/// # Safety
///
/// So many bytes are mapped there, and nobody uses them any more.
pub(super) unsafe fn unmap(start: *mut libc::c_void, len: usize) {
    // Miri gives no part of a mapping back.
    let most = if cfg!(miri) { len.max(1) } else { stretch(len) };
    let mut left = len;
    while left > 0 {
        let some = (left - 1) % most + 1;
        left -= some;
        let at = start.wrapping_byte_add(left);
        if len > most {
            // To let go of pages takes most of the time. For that alone newer kernels lock the mapping only, where to unmap locks all:
            // a thread that waited for this would be overtaken by the next stretch.
            // SAFETY: as the caller promises. Where the kernel cannot, unmapping does it.
            unsafe { libc::madvise(at, some, libc::MADV_DONTNEED) };
            look_for_others();
        }
        // SAFETY: as the caller promises. What cannot be given back stays, unused, until the process ends.
        unsafe { libc::munmap(at, some) };
    }
}

/// Page size of this machine: 4 KiB and 16 KiB kernels both exist.
pub fn page_size() -> u64 {
    // SAFETY: sysconf only reads a value.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_slice_becomes_another_and_the_share_stays() {
        // SAFETY: the call takes two numbers.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        std::thread::spawn(move || {
            let slice = Duration::from_micros(300);
            set_time_slice(slice).unwrap();
            assert_eq!(nice(), before);
            assert!([slice, Duration::ZERO].contains(&time_slice().unwrap()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn duplicates_are_of_one_open_file_and_others_are_not() {
        let open = || std::fs::File::open("/dev/null").unwrap();
        let (a, b) = (open(), open());
        let duplicate = a.try_clone().unwrap();
        assert_eq!(same_open_file(a.as_fd(), duplicate.as_fd()), Some(true));
        assert_eq!(same_open_file(a.as_fd(), b.as_fd()), Some(false));
    }

    #[test]
    fn a_stream_is_empty_until_something_is_written() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_empty_stream(ours.as_fd()));
        std::io::Write::write_all(&mut &theirs, &[1]).unwrap();
        assert!(!is_empty_stream(ours.as_fd()));
        assert!(!is_empty_stream(std::fs::File::open("/dev/null").unwrap().as_fd()), "no stream at all");
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(is_empty_stream(reader.as_fd()));
        std::io::Write::write_all(&mut writer, &[1]).unwrap();
        assert!(!is_empty_stream(reader.as_fd()));
        drop((ours, theirs));
    }

    #[test]
    fn sockets_of_this_machine_are_told_from_others() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_unix_socket(ours.as_fd()));
        assert!(!is_unix_socket(std::net::TcpListener::bind("127.0.0.1:0").unwrap().as_fd()));
        assert!(!is_unix_socket(std::fs::File::open("/dev/null").unwrap().as_fd()));
    }
}
