//! Files that a process serves page by page: touching their memory can block for ever, and so can asking about them.
//!
//! The process that serves a FUSE file system decides when a page of its files arrives, and on Android any app can serve
//! one. A thread that waits for such a page is lost. So such files are refused before any call that their server would have
//! to answer. Network file systems can block as well, but only the administrator mounts those: they are not refused.
//!
//! A file of overlayfs is another file of one of its layers, which may be one that a process serves. Of those that tell of themselves
//! what they are now, one that was opened to be read may be mapped as what it was when it was opened. A process that may mount where we cannot
//! see it can make such a one, so what cannot be told from it is refused as well.

use super::MemoryError;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Why what such a process serves is refused.
pub(super) const SERVED: &str =
    "memory of a file that another process serves can block for ever; copy it into shared memory";

/// Checks that to use `fd` waits for no other process.
pub fn check(fd: BorrowedFd) -> Result<(), MemoryError> {
    // Only shared memory has seals, and it is what nearly all clients use.
    if fcntl(fd, FcntlArg::F_GET_SEALS).is_ok() {
        return Ok(());
    }
    let known = known(fd)?;
    match known.kind {
        libc::S_IFREG if known.is_of_the_kernel && (known.device.0 != 0 || is_for_writing(fd)) => Ok(()),
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

/// Checks the same of a file of overlayfs, which on kernels before 5.6 may have the device of a layer.
pub(super) fn check_overlaid(fd: BorrowedFd) -> Result<(), MemoryError> {
    match is_for_writing(fd) || file_system(fd).is_some() {
        true => Ok(()),
        false => Err(MemoryError::Unsupported(SERVED)),
    }
}

/// Whether a file was opened to be written. One of overlayfs lies in its upper layer then, and stays there.
fn is_for_writing(fd: BorrowedFd) -> bool {
    let flags = fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    flags.is_ok_and(|flags| flags.intersects(OFlag::O_WRONLY | OFlag::O_RDWR))
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
    /// Whether its file system answers by itself, as far as it says so. FUSE's files never say so; overlayfs's say what those of
    /// their layer say.
    is_of_the_kernel: bool,
}

impl Known {
    /// Whether both are of one file, whatever changed of it in between. All files of a device have the device's numbers.
    pub fn is_same_file(&self, other: &Known) -> bool {
        let numbers = |known: &Known| (known.kind, known.device, known.inode);
        self.kind == libc::S_IFREG && numbers(self) == numbers(other)
    }
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
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
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

    #[test]
    fn pipes_and_sockets_are_refused_wherever_they_lie() {
        let refused = |fd: BorrowedFd| matches!(check(fd), Err(MemoryError::Unsupported(_)));
        let (pipe, _writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(refused(pipe.as_fd()) && refused(socket.as_fd()));
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let fifo = OpenOptions::new().read(true).write(true).open(fifo).unwrap();
        assert!(refused(fifo.as_fd()));
    }

    /// A FUSE file system of one file, whose server never answers anything.
    pub(crate) struct Silent {
        server: Option<File>,
        file: tempfile::NamedTempFile,
    }

    impl Silent {
        pub(crate) fn mount() -> Self {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut how = OpenOptions::new();
            how.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            let server = how.open("/dev/fuse").expect("FUSE");
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

        /// Has a server answer from here on, until what this gives is dropped: the file has 100 bytes of 7, which `reads` says
        /// whether anybody gets.
        pub(crate) fn answer(&self, reads: bool) -> Answering {
            let mut server = self.server.as_ref().unwrap().try_clone().unwrap();
            let ended = Arc::new(AtomicBool::new(false));
            let until = ended.clone();
            let serve = move || {
                let mut request = vec![0; 1 << 16];
                while !until.load(Ordering::Relaxed) {
                    match server.read(&mut request) {
                        Ok(len) => answer(&mut server, &request[..len], reads),
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
            };
            Answering { ended, thread: Some(std::thread::spawn(serve)) }
        }

        pub(crate) fn path(&self) -> &std::path::Path {
            self.file.path()
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

    /// Answers a request as linux/fuse.h has it.
    fn answer(server: &mut File, request: &[u8], reads: bool) {
        const GETATTR: u32 = 3;
        const OPEN: u32 = 14;
        const READ: u32 = 15;
        const INIT: u32 = 26;
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let (error, body) = match word(4) {
            // Version 7.31, with writes of a page.
            INIT => (0, words(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            // Good for a while; inode 1, 100 bytes in a block, times, a regular file with one name.
            GETATTR => {
                let (times, owner) = ([0; 9], [0; 3]);
                let file = [&[1, 0, 100, 0, 1, 0][..], &times, &[0o100_644, 1], &owner, &[4096, 0]].concat();
                (0, words(&[&[1000, 0, 0, 0][..], &file].concat()))
            }
            // Read without the page cache.
            OPEN => (0, words(&[0, 0, 1, 0])),
            READ if !reads => return,
            READ => (0, vec![7; 100usize.saturating_sub(word(48) as usize).min(word(56) as usize)]),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).unwrap();
        let head = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &request[8..16]].concat();
        // What nobody waits for any more has no answer.
        let _ = server.write(&[head, body].concat());
    }

    /// Who answers for a file system. Ends before that does.
    pub(crate) struct Answering {
        ended: Arc<AtomicBool>,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Drop for Answering {
        fn drop(&mut self) {
            self.ended.store(true, Ordering::Relaxed);
            let _ = self.thread.take().unwrap().join();
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

    /// Mounts where no other thread sees it what `type_name` and `options` say, and opens `name` in it.
    fn mounted_elsewhere(type_name: &str, options: &str, name: &str, writes: bool) -> File {
        let open = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS | nix::sched::CloneFlags::CLONE_NEWNS)
                .unwrap();
            let directory = tempfile::tempdir().unwrap();
            let c_string = |text: &str| CString::new(text).unwrap();
            let mount = |target: &str, kind: &str, flags, options: &str| {
                let [target, kind, options] = [target, kind, options].map(c_string);
                // SAFETY: all are C strings that outlive the call.
                let mounted = unsafe {
                    libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
                };
                assert_eq!(mounted, 0, "cannot mount: {}", std::io::Error::last_os_error());
            };
            mount("/", "none", libc::MS_REC | libc::MS_PRIVATE, "");
            mount(directory.path().to_str().unwrap(), type_name, 0, options);
            let file = OpenOptions::new().read(true).write(writes).open(directory.path().join(name)).unwrap();
            let target = c_string(directory.path().to_str().unwrap());
            // The file keeps it alive.
            // SAFETY: a C string that outlives the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
            file
        };
        std::thread::scope(|scope| scope.spawn(open).join().unwrap())
    }

    #[test]
    #[ignore = "mounts a file system, as root: tests/ignored.sh mounts"]
    fn a_file_of_an_overlay_elsewhere_is_mapped_only_where_it_cannot_be_another() {
        let layers = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for name in ["work", "upper"] {
            std::fs::create_dir(layers[0].path().join(name)).unwrap();
        }
        layers[1..].iter().for_each(|layer| std::fs::write(layer.path().join("file"), [7; 100]).unwrap());
        let [above, lower, below] = layers.each_ref().map(|layer| layer.path().display());
        let layered = format!("lowerdir={lower}:{below}");
        let written = format!("{layered},upperdir={above}/upper,workdir={above}/work");
        for (options, writes) in [(&layered, false), (&written, false), (&written, true)] {
            let file = mounted_elsewhere("overlay", options, "file", writes);
            assert_eq!(file_system(file.as_fd()), None, "no mount that is seen here");
            assert_eq!(known(file.as_fd()).unwrap().device.0, 0, "and no device");
            assert_eq!(check_overlaid(file.as_fd()).is_ok(), writes);
            let map = |map: fn(BorrowedFd, u64, usize, Access) -> _| map(file.as_fd(), 0, 100, Access::Read);
            let mapping = match map(Mapping::new) {
                Ok(mapping) if writes => mapping,
                Err(MemoryError::Unsupported(SERVED)) if !writes => map(Mapping::or_copy).unwrap(),
                other => panic!("{options}: {other:?}"),
            };
            let bytes = crate::memory::ClientSlice::whole(Arc::new(mapping)).to_private().unwrap();
            assert_eq!(bytes[..], [7; 100]);
        }
    }
}
