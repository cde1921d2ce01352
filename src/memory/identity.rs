//! Which memory a pool is, so that a mapping can be used again for the same one and for no other.

use super::blocking::{self, Known};
use super::file::is_ashmem;
use super::kernel::same_open_file;
use super::Access;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The part of a file that a pool is.
#[derive(Debug, PartialEq)]
pub struct Identity {
    what: What,
    offset: u64,
    size: usize,
    access: Option<Access>,
}

#[derive(Debug)]
enum What {
    /// A file with numbers that no other has while a mapping of it lives. Its size, too: a file that changed it must be
    /// looked at again. And how it was opened, which bounds what its mapping may be used for.
    File(Known, OFlag),
    /// Memory that all looks the same, regions of ashmem and hardware buffers: these very open files, which duplicates
    /// share. That they are held here keeps others from taking their place.
    OpenFiles(Vec<OwnedFd>, Vec<i32>),
}

impl PartialEq for What {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (What::File(a, a_mode), What::File(b, b_mode)) => a == b && a_mode == b_mode,
            (What::OpenFiles(a, a_ints), What::OpenFiles(b, b_ints)) => {
                let same = |(a, b): (&OwnedFd, &OwnedFd)| same_open_file(a.as_fd(), b.as_fd()) == Some(true);
                a_ints == b_ints && a.len() == b.len() && a.iter().zip(b).all(same)
            }
            _ => false,
        }
    }
}

impl Identity {
    /// `None` where neither the file nor the kernel can tell.
    pub(super) fn new(fd: BorrowedFd, offset: u64, size: usize, access: Option<Access>) -> Option<Self> {
        let file = blocking::known(fd).ok()?;
        match file.kind {
            libc::S_IFREG => {
                let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).ok()?);
                let what = What::File(file, flags & OFlag::O_ACCMODE);
                Some(Identity { what, offset, size, access })
            }
            libc::S_IFCHR if is_ashmem(fd) => {
                Self::of_open_files([fd].into_iter(), &[], offset, size, access)
            }
            _ => None,
        }
    }

    /// The identity of memory that consists of these open files and of the numbers that belong to them.
    pub(super) fn of_open_files<'f>(
        files: impl Iterator<Item = BorrowedFd<'f>>,
        ints: &[i32],
        offset: u64,
        size: usize,
        access: Option<Access>,
    ) -> Option<Self> {
        /// More than any graphics driver's handle has: each is a descriptor of ours for as long as this is kept.
        const MOST_FILES: usize = 4;
        let files: Vec<_> = files.collect();
        let first = files.first()?;
        // A kernel that cannot tell a file from itself cannot tell it from others.
        if files.len() > MOST_FILES || same_open_file(*first, *first) != Some(true) {
            return None;
        }
        let files = files.into_iter().map(|fd| fd.try_clone_to_owned().ok()).collect::<Option<_>>()?;
        Some(Identity { what: What::OpenFiles(files, ints.to_vec()), offset, size, access })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let mut file = File::from(fd);
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn the_same_file_is_known_and_others_are_told_apart() {
        let (a, b) = (file(&[0; 100]), file(&[0; 100]));
        let identity = |file: &File, offset| Identity::new(file.as_fd(), offset, 10, None).unwrap();
        let first = identity(&a, 0);
        assert_eq!(first, identity(&a.try_clone().unwrap(), 0));
        assert_ne!(first, identity(&a, 1));
        assert_ne!(first, identity(&b, 0));
        a.set_len(50).unwrap();
        assert_ne!(first, identity(&a, 0));
        let named = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(named.path()).unwrap();
        assert_ne!(identity(named.as_file(), 0), identity(&read_only, 0), "it allows less");
        let null = File::open("/dev/null").unwrap();
        assert_eq!(Identity::new(null.as_fd(), 0, 10, None), None);
    }

    #[test]
    fn open_files_are_told_apart_by_the_kernel() {
        // Two open files of one device, as two regions of ashmem are.
        let open = || File::open("/dev/zero").unwrap();
        let (a, b) = (open(), open());
        let identity = |files: &[&File], ints: &[i32]| {
            Identity::of_open_files(files.iter().map(|file| file.as_fd()), ints, 0, 10, None)
        };
        let first = identity(&[&a, &b], &[1]).unwrap();
        assert_eq!(first, identity(&[&a.try_clone().unwrap(), &b], &[1]).unwrap());
        assert_ne!(first, identity(&[&a, &a], &[1]).unwrap());
        assert_ne!(first, identity(&[&b, &a], &[1]).unwrap());
        assert_ne!(first, identity(&[&a], &[1]).unwrap());
        assert_ne!(first, identity(&[&a, &b], &[2]).unwrap());
        assert_eq!(identity(&[&a; 5], &[]), None, "so many descriptors are not kept");
        assert_eq!(identity(&[], &[1]), None);
    }
}
