//! What stands behind a client's file descriptor: how large it is, and what kind of memory.

use super::budget::HeldDescriptors;
use super::{blocking, Access, MemoryError};
use crate::waits::wait_for;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::stat::{fstat, SFlag};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// `f_type` of a dma-buf, of huge pages and of overlayfs, linux/magic.h.
const DMA_BUF_MAGIC: u32 = 0x444d_4142;
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

/// A client's file, as far as mapping it goes.
pub(super) struct Facts {
    /// How many bytes it really has.
    pub size: u64,
    pub dma_buf: bool,
}

pub(super) fn examine(fd: BorrowedFd) -> Result<Facts, MemoryError> {
    blocking::check(fd)?;
    let system = file_system(fd)?;
    if system == HUGETLBFS_MAGIC {
        // Its pages can neither be replaced one by one nor unmapped by our length.
        return Err(MemoryError::Unsupported("memory of huge pages cannot be used; use ordinary pages"));
    }
    if system == OVERLAYFS_MAGIC {
        blocking::check_overlaid(fd)?;
    }
    Ok(Facts { size: size(fd)?, dma_buf: system == DMA_BUF_MAGIC })
}

/// The magic number of the file system that `fd` is of, linux/magic.h.
fn file_system(fd: BorrowedFd) -> Result<u32, MemoryError> {
    let facts = nix::sys::statfs::fstatfs(fd).map_err(|e| MemoryError::Map(e.into()))?;
    Ok(facts.filesystem_type().0 as u32)
}

/// Whether `fd` is of a dma-buf. It does not ask a process that could take as long as it likes.
pub(super) fn is_dma_buf(fd: BorrowedFd) -> bool {
    blocking::check(fd).is_ok() && file_system(fd).is_ok_and(|system| system == DMA_BUF_MAGIC)
}

fn size(fd: BorrowedFd) -> Result<u64, MemoryError> {
    let stat = fstat(fd).map_err(|e| MemoryError::Map(e.into()))?;
    #[allow(clippy::unnecessary_cast)] // mode_t has 16 bits on 32-bit Android, and st_mode 32
    let kind = SFlag::from_bits_truncate(stat.st_mode as libc::mode_t & libc::S_IFMT);
    if kind == SFlag::S_IFREG {
        return Ok(u64::try_from(stat.st_size).unwrap_or(0));
    }
    if kind == SFlag::S_IFCHR {
        if let Some(size) = ashmem_size(fd) {
            return Ok(size);
        }
    }
    // A dma-buf tells its size by seeking to its end.
    let size = nix::unistd::lseek(fd, 0, nix::unistd::Whence::SeekEnd).map_err(|_| {
        MemoryError::Unsupported("the memory's file descriptor has no size; expected a mappable file")
    })?;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// Size of a region of the ashmem device, `None` if `fd` is not one.
fn ashmem_size(fd: BorrowedFd) -> Option<u64> {
    // _IO(0x77, 4), ASHMEM_GET_SIZE of linux/ashmem.h
    const ASHMEM_GET_SIZE: libc::c_ulong = 0x7704;
    if !is_ashmem(fd) {
        return None;
    }
    // SAFETY: to the ashmem device, and it is asked of no other, this request takes no argument and returns a number.
    let size = unsafe { libc::ioctl(fd.as_raw_fd(), ASHMEM_GET_SIZE as _, 0) };
    u64::try_from(size).ok().filter(|&size| size > 0)
}

/// Whether `fd` is of the ashmem device. To another device the requests of that one might mean anything.
pub(super) fn is_ashmem(fd: BorrowedFd) -> bool {
    // Newer systems give it a name of its own at each start. Policy lets nobody list /dev.
    static DEVICES: OnceLock<Vec<libc::dev_t>> = OnceLock::new();
    let devices = DEVICES.get_or_init(|| {
        let start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let names = ["/dev/ashmem".to_owned(), format!("/dev/ashmem{}", start.trim())];
        let stats = names.iter().filter_map(|name| nix::sys::stat::stat(name.as_str()).ok());
        stats.map(|stat| stat.st_rdev as libc::dev_t).collect()
    });
    !devices.is_empty() && fstat(fd).is_ok_and(|stat| devices.contains(&(stat.st_rdev as libc::dev_t)))
}

/// Whether the file was sealed so that it can never shrink.
pub(super) fn cannot_shrink(fd: BorrowedFd) -> bool {
    use nix::fcntl::{fcntl, FcntlArg, SealFlag};
    fcntl(fd, FcntlArg::F_GET_SEALS)
        .is_ok_and(|seals| SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK))
}

/// Whether the fences of `fd`, a sync file, were signalled with an error. `None` if it is no sync file.
pub fn has_sync_file_failed(fd: BorrowedFd) -> Option<bool> {
    /// struct sync_file_info of linux/sync_file.h
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        name: [u8; 32],
        /// 1 once signalled, negative once failed.
        status: i32,
        flags: u32,
        fences: u32,
        pad: u32,
        list: u64,
    }
    // _IOWR('>', 4, struct sync_file_info)
    const SYNC_IOC_FILE_INFO: libc::c_ulong = 0xc038_3e04;
    // Files that only the kernel makes have no type. To any other, with a driver behind it, the request might mean
    // something else.
    if !blocking::file_type(fd).is_ok_and(|kind| kind == 0) {
        return None;
    }
    let mut info = Info::default();
    // SAFETY: the request fills the structure that it is given, and no list of fences, as there is room for none.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), SYNC_IOC_FILE_INFO as _, &mut info) };
    (asked == 0).then_some(info.status < 0)
}

/// The caches of a dma-buf: its device and the CPU see the same bytes only if every access is announced. Its descriptor is
/// counted as its client's.
pub(super) struct DmaBuf {
    file: OwnedFd,
    _held: HeldDescriptors,
}

/// What an access to a dma-buf does.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Read = 1,
    Write = 2,
    ReadWrite = 3,
}

impl From<Access> for Direction {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Direction::Read,
            Access::Write => Direction::Write,
            Access::ReadWrite => Direction::ReadWrite,
        }
    }
}

/// An access to a dma-buf that is under way. One that is dropped ends too, but tells no error.
pub(super) struct Announced<'d> {
    dma_buf: &'d DmaBuf,
    direction: Direction,
}

impl Announced<'_> {
    pub fn end(self) -> Result<(), MemoryError> {
        let ended = self.tell_end();
        std::mem::forget(self);
        ended
    }

    fn tell_end(&self) -> Result<(), MemoryError> {
        const END: u64 = 4;
        self.dma_buf.sync(END | self.direction as u64)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let _ = self.tell_end();
    }
}

/// Whether `fd` is ready for what is `wanted`, looked for so many milliseconds, or cannot be asked.
fn is_signalled(fd: BorrowedFd, wanted: PollFlags, patience_ms: u8) -> bool {
    let asked = poll(&mut [PollFd::new(fd, wanted)], PollTimeout::from(patience_ms));
    !matches!(asked, Ok(0) | Err(Errno::EINTR))
}

impl DmaBuf {
    pub fn new(fd: BorrowedFd) -> Result<DmaBuf, MemoryError> {
        let held = HeldDescriptors::take(1)?;
        let file = fd.as_fd().try_clone_to_owned().map_err(MemoryError::Map)?;
        Ok(DmaBuf { file, _held: held })
    }

    /// Whether its devices are done with it, as far as an access has to wait for that; looked for so many milliseconds. By
    /// drivers/dma-buf/dma-buf.c it can be read, or written, once all fences are signalled that the beginning of an access to read, or
    /// to write, waits for. What cannot be asked is done: the access tells what is wrong.
    pub fn is_done(&self, access: Access, patience_ms: u8) -> bool {
        let done = if access.writes() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        is_signalled(self.file.as_fd(), done, patience_ms)
    }

    /// Waits until its devices are done with what they do now, as far as an access has to wait for that: other work may follow at
    /// once, over and over. An error of `go_on`, which is asked every so often, ends the wait.
    pub fn wait_until_done<E>(
        &self,
        access: Access,
        mut go_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        /// How long one look is, in milliseconds.
        const LOOK_MS: u8 = 10;
        /// Looks for a moment without any work, on kernels that give no fences: an access waits for those that there are then.
        const MOST_LOOKS: usize = 10;
        // Mostly they are: a sync file need not be made for that.
        if self.is_done(access, 0) {
            return Ok(());
        }
        let _waiting = wait_for("a device that uses a dma-buf");
        match self.fences(access) {
            Some(fences) => {
                while !is_signalled(fences.as_fd(), PollFlags::POLLIN, LOOK_MS) {
                    go_on()?;
                }
            }
            None => {
                for _ in 0..MOST_LOOKS {
                    if self.is_done(access, LOOK_MS) {
                        break;
                    }
                    go_on()?;
                }
            }
        }
        Ok(())
    }

    /// The fences that the beginning of an access would wait for now, as a sync file. `None` from kernels that do not give them, which
    /// are those before Linux 6.0, or where no descriptor is left.
    fn fences(&self, access: Access) -> Option<OwnedFd> {
        // _IOWR('b', 2, struct dma_buf_export_sync_file), which is flags, as of an access, and a descriptor; linux/dma-buf.h
        const DMA_BUF_IOCTL_EXPORT_SYNC_FILE: libc::c_ulong = 0xc008_6202;
        #[repr(C)]
        struct Export {
            flags: u32,
            fd: i32,
        }
        let mut export = Export { flags: Direction::from(access) as u32, fd: -1 };
        // SAFETY: the request reads and fills the structure that it is given, which outlives the call.
        let done =
            unsafe { libc::ioctl(self.file.as_raw_fd(), DMA_BUF_IOCTL_EXPORT_SYNC_FILE as _, &mut export) };
        // SAFETY: the kernel has made this descriptor for the caller, who alone has it.
        (done == 0 && export.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(export.fd) })
    }

    /// It may wait for the device, which nothing ends before it is done: see [`wait_until_done`](Self::wait_until_done).
    pub fn begin(&self, direction: Direction) -> Result<Announced<'_>, MemoryError> {
        self.sync(direction as u64)?;
        Ok(Announced { dma_buf: self, direction })
    }

    fn sync(&self, flags: u64) -> Result<(), MemoryError> {
        // _IOW('b', 0, struct dma_buf_sync), which is one 64-bit word of flags; linux/dma-buf.h
        const DMA_BUF_IOCTL_SYNC: libc::c_ulong = 0x4008_6200;
        let _waiting = wait_for("a device that uses a dma-buf");
        loop {
            // SAFETY: the request reads the 64-bit word that it is given, which outlives the call.
            let done = unsafe { libc::ioctl(self.file.as_raw_fd(), DMA_BUF_IOCTL_SYNC as _, &flags) };
            if done == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                return Err(MemoryError::Map(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seccompiler::{
        apply_filter, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule,
    };
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Ends the thread that sends a request to a device.
    fn no_requests() -> BpfProgram {
        let to_any = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ge, 0).unwrap();
        #[allow(clippy::useless_conversion)] // c_long has 32 bits where pointers have
        let ioctl = i64::from(libc::SYS_ioctl);
        let rules = [(ioctl, vec![SeccompRule::new(vec![to_any]).unwrap()])].into();
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillThread, arch);
        filter.unwrap().try_into().unwrap()
    }

    #[test]
    #[cfg_attr(target_pointer_width = "32", ignore = "there are no filters of system calls")]
    fn no_device_but_ashmem_gets_a_request_of_ashmems() {
        let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"];
        let files = devices.map(|name| std::fs::File::open(name).unwrap());
        assert!(files.iter().all(|file| !is_ashmem(file.as_fd())));
        let (told, heard) = channel();
        // Not waited for at its end: if the filter ends it, it tells nobody.
        std::thread::spawn(move || {
            apply_filter(&no_requests()).unwrap();
            files.iter().for_each(|file| drop(size(file.as_fd())));
            told.send(()).unwrap();
        });
        heard.recv_timeout(Duration::from_secs(10)).expect("no request is sent");
    }
}
