//! Files that a process serves page by page: touching their memory can block for ever, and so can asking about them.
//!
//! The process that serves a FUSE file system decides when a page of its files arrives, and on Android any app can serve
//! one. A thread that waits for such a page is lost. So such files are refused before any call that their server would have
//! to answer. Network file systems can block as well, but only the administrator mounts those: they are not refused.

use super::MemoryError;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Why what such a process serves is refused.
pub(super) const SERVED: &str =
    "memory of a file that another process serves can block for ever; copy it into shared memory";

/// Checks that to use `fd` waits for no other process.
pub fn check(fd: BorrowedFd) -> Result<(), MemoryError> {
    use nix::fcntl::{fcntl, FcntlArg};
    // Only shared memory has seals, and it is what nearly all clients use.
    if fcntl(fd, FcntlArg::F_GET_SEALS).is_ok() {
        return Ok(());
    }
    let known = known(fd)?;
    match known.kind {
        libc::S_IFREG if known.is_of_the_kernel => Ok(()),
        // What has no device of its own is listed among the mounts, or is mounted where we cannot see it.
        libc::S_IFREG | libc::S_IFCHR if known.device.0 == 0 => match file_system(fd) {
            Some(system) if system != "fuse" && !system.starts_with("fuse.") => Ok(()),
            _ => Err(MemoryError::Unsupported(SERVED)),
        },
        libc::S_IFDIR | libc::S_IFLNK | libc::S_IFIFO | libc::S_IFSOCK => Err(MemoryError::Unsupported(
            "the memory's file descriptor has no size; expected a mappable file",
        )),
        _ => Ok(()),
    }
}

/// The type of a file, which the kernel knows without asking anybody: one of the bits under `S_IFMT`.
pub fn file_type(fd: BorrowedFd) -> Result<libc::mode_t, MemoryError> {
    known(fd).map(|known| known.kind)
}

/// What the kernel knows of a file without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// One of the bits under `S_IFMT`.
    pub kind: libc::mode_t,
    /// Major and minor number.
    device: (u32, u32),
    inode: u64,
    size: u64,
    /// Whether its file system answers by itself, as far as it says so: btrfs, overlayfs and others without a device do,
    /// wherever they are mounted. FUSE's files never say so.
    is_of_the_kernel: bool,
}

/// Attributes that the kernel's own file systems know their files to have or not to have, and FUSE does not.
const OF_THE_KERNEL: u64 = (libc::STATX_ATTR_COMPRESSED | libc::STATX_ATTR_NODUMP) as u64;

pub(super) fn known(fd: BorrowedFd) -> Result<Known, MemoryError> {
    // SAFETY: plain data, of which all zeroes is a valid value.
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let wanted = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_SIZE;
    // SAFETY: the path is a C string, and the facts are written to a structure of ours.
    let done = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, wanted, &mut facts) };
    if done != 0 {
        return Err(MemoryError::Map(std::io::Error::last_os_error()));
    }
    Ok(Known {
        kind: libc::mode_t::from(facts.stx_mode) & libc::S_IFMT,
        device: (facts.stx_dev_major, facts.stx_dev_minor),
        inode: facts.stx_ino,
        size: facts.stx_size,
        is_of_the_kernel: facts.stx_attributes_mask & OF_THE_KERNEL != 0,
    })
}

/// The type of the file system that `fd` lies on, if it is mounted where this process can see it.
fn file_system(fd: BorrowedFd) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    type_of(&mounts, mount)
}

/// The type of mount `id` in the text of a mountinfo.
fn type_of(mounts: &str, id: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    // Spaces in paths are escaped, so that this one separates.
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(String::from)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::{Access, Mapping};
    use std::ffi::CString;
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::Duration;

    #[test]
    fn the_type_of_a_mount_is_found() {
        let mounts =
            "27 1 254:0 / / rw - ext4 /dev/vda rw\n42 27 0:39 / /a\\040b rw,x shared:1 - fuse.sshfs y rw\n";
        assert_eq!(type_of(mounts, "27").as_deref(), Some("ext4"));
        assert_eq!(type_of(mounts, "42").as_deref(), Some("fuse.sshfs"));
        assert_eq!(type_of(mounts, "2"), None);
    }

    #[test]
    fn ordinary_files_pass() {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty()).unwrap();
        check(fd.as_fd()).unwrap();
        check(tempfile::tempfile().unwrap().as_fd()).unwrap();
        check(File::open(std::env::current_exe().unwrap()).unwrap().as_fd()).unwrap();
        // Of a file system without a device, like FUSE's, but the kernel's own.
        check(File::open("/proc/self/status").unwrap().as_fd()).unwrap();
        assert!(matches!(check(File::open("/").unwrap().as_fd()), Err(MemoryError::Unsupported(_))));
    }

    /// A FUSE file system of one file, whose server never answers anything.
    pub(crate) struct Silent {
        server: Option<File>,
        file: tempfile::NamedTempFile,
    }

    impl Silent {
        pub(crate) fn mount() -> Self {
            let file = tempfile::NamedTempFile::new().unwrap();
            let server = OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("FUSE");
            let options =
                format!("fd={},rootmode=100644,user_id=0,group_id=0,allow_other", server.as_raw_fd());
            let (target, options) = (path(&file), CString::new(options).unwrap());
            // SAFETY: all five are C strings that outlive the call.
            let mounted = unsafe {
                libc::mount(c"test".as_ptr(), target.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast())
            };
            assert_eq!(mounted, 0, "cannot mount: {}", std::io::Error::last_os_error());
            Silent { server: Some(server), file }
        }

        pub(crate) fn open(&self) -> OwnedFd {
            // Its server does not answer that it is opened either; this descriptor asks nobody.
            OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(self.file.path()).unwrap().into()
        }
    }

    impl Drop for Silent {
        fn drop(&mut self) {
            // Whoever waits is told so now.
            self.server = None;
            let target = path(&self.file);
            // SAFETY: a C string that outlives the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
    }

    fn path(file: &tempfile::NamedTempFile) -> CString {
        CString::new(file.path().as_os_str().as_encoded_bytes()).unwrap()
    }

    #[test]
    #[ignore = "mounts a file system, as root: tests/ignored.sh mounts"]
    fn files_that_a_process_serves_are_refused_at_once() {
        let silent = Silent::mount();
        let fd = silent.open();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(Mapping::new(fd.as_fd(), 0, 1, Access::Read).map(drop)));
        let mapped = receiver.recv_timeout(Duration::from_secs(20));
        drop(silent);
        assert!(matches!(mapped, Ok(Err(MemoryError::Unsupported(_)))), "{mapped:?}");
    }
}
