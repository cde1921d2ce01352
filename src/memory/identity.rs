//! Which memory a pool is, so that a mapping can be used again for the same one and for no other.

use super::blocking::{self, Known};
use super::Access;
use std::os::fd::BorrowedFd;

/// The part of a file that a pool is. While a mapping of it lives, no other file has its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its size, too: a file that changed it must be looked at again.
    file: Known,
    offset: u64,
    size: usize,
    access: Option<Access>,
}

impl Identity {
    /// `None` where the file cannot tell: all regions of the ashmem device look the same.
    pub(super) fn new(fd: BorrowedFd, offset: u64, size: usize, access: Option<Access>) -> Option<Self> {
        let file = blocking::known(fd).ok()?;
        let is_file = file.kind == libc::S_IFREG;
        is_file.then_some(Identity { file, offset, size, access })
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
