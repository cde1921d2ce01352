//! Which memory a pool is, so that a mapping can be used again for the same one and for no other.

use super::{blocking, Access};
use std::os::fd::BorrowedFd;

/// The part of a file that a pool is. While a mapping of it lives, no other file has its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
    /// A file that changed its size must be looked at again.
    file_size: libc::off_t,
    offset: u64,
    size: usize,
    access: Option<Access>,
}

impl Identity {
    /// `None` where the file cannot, or must not be asked to, tell: all regions of the ashmem device look the same.
    pub(super) fn new(fd: BorrowedFd, offset: u64, size: usize, access: Option<Access>) -> Option<Self> {
        // It will be refused when it is mapped; till then it must not be asked.
        blocking::check(fd).ok()?;
        let stat = nix::sys::stat::fstat(fd).ok()?;
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        is_file.then_some(Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            file_size: stat.st_size,
            offset,
            size,
            access,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn the_same_file_is_known_and_others_are_told_apart() {
        let file = |bytes: &[u8]| {
            let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty()).unwrap();
            let mut file = std::fs::File::from(fd);
            file.write_all(bytes).unwrap();
            file
        };
        let (a, b) = (file(&[0; 100]), file(&[0; 100]));
        let identity = |file: &std::fs::File, offset| Identity::new(file.as_fd(), offset, 10, None).unwrap();
        let first = identity(&a, 0);
        assert_eq!(first, identity(&a.try_clone().unwrap(), 0));
        assert_ne!(first, identity(&a, 1));
        assert_ne!(first, identity(&b, 0));
        a.set_len(50).unwrap();
        assert_ne!(first, identity(&a, 0));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Identity::new(null.as_fd(), 0, 10, None), None);
    }
}
