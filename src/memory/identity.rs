//! Which memory a pool is, so that a mapping can be used again for the same one and for no other.

use super::blocking::{self, Known};
use super::file::is_ashmem;
use super::kernel::same_open_file;
use super::pages::Pages;
use super::Access;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The part of a file that a pool is. What a pool says of itself borrows its descriptors; what is kept owns duplicates of them.
#[derive(Debug)]
pub struct Identity<F = OwnedFd> {
    what: What<F>,
    offset: u64,
    size: usize,
    access: Option<Access>,
}

#[derive(Debug)]
enum What<F> {
    /// A file with numbers that no other has while a mapping of it lives. Its size, too: a file that changed it must be
    /// looked at again. And how it was opened, which bounds what its mapping may be used for.
    File(Known, OFlag),
    /// Memory that all looks the same, regions of ashmem and hardware buffers: these very open files, which duplicates
    /// share, and the numbers that belong to them. That they are held where they are kept stops others from taking their
    /// place.
    OpenFiles(Vec<F>, Vec<i32>),
}

impl<F: AsFd, G: AsFd> PartialEq<Identity<G>> for Identity<F> {
    fn eq(&self, other: &Identity<G>) -> bool {
        (self.offset, self.size, self.access) == (other.offset, other.size, other.access)
            && self.what == other.what
    }
}

impl<F: AsFd, G: AsFd> PartialEq<What<G>> for What<F> {
    fn eq(&self, other: &What<G>) -> bool {
        match (self, other) {
            (What::File(a, a_mode), What::File(b, b_mode)) => a == b && a_mode == b_mode,
            (What::OpenFiles(a, a_ints), What::OpenFiles(b, b_ints)) => {
                let same = |(a, b): (&F, &G)| same_open_file(a.as_fd(), b.as_fd()) == Some(true);
                a_ints == b_ints && a.len() == b.len() && a.iter().zip(b).all(same)
            }
            _ => false,
        }
    }
}

/// Whether both descriptors are of the same bytes, as far as the kernel tells.
pub fn same_memory(a: BorrowedFd, b: BorrowedFd) -> bool {
    let files = blocking::known(a).ok().zip(blocking::known(b).ok());
    let same_file = files.is_some_and(|(a, b)| a.is_same_file(&b));
    same_file
        || same_open_file(a, b).unwrap_or_else(|| is_ashmem(a) && is_ashmem(b) && same_when_mapped([a, b]))
}

/// Whether both are of one file as the list of this process's mappings has it. Behind each region of ashmem there is a file of
/// its own, which shows there and nowhere else. To read the list takes long: it is for kernels that tell by no other means.
fn same_when_mapped(fds: [BorrowedFd; 2]) -> bool {
    let [a, b] = fds.map(|fd| Pages::of_file(fd, 0, 1, Access::Read).ok());
    let Some((a, b)) = a.zip(b) else { return false };
    let Ok(list) = std::fs::File::open("/proc/self/maps") else { return false };
    let starts = [&a, &b].map(|pages| pages.pointer().map(|start| start as usize));
    let mut found = [None, None];
    for line in BufReader::new(list).lines().map_while(Result::ok) {
        let Some((range, file)) = mapped_file(&line) else { continue };
        for (found, start) in found.iter_mut().zip(&starts) {
            if start.is_some_and(|start| range.contains(&start)) {
                *found = Some((file.0.to_owned(), file.1.to_owned()));
            }
        }
    }
    found[0].is_some() && found[0] == found[1]
}

/// The addresses of a line of that list, and the device and number of the file that is mapped there, if there is one.
fn mapped_file(line: &str) -> Option<(Range<usize>, (&str, &str))> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let (device, number) = (fields.nth(2)?, fields.next()?);
    (number != "0").then_some((address(start)?..address(end)?, (device, number)))
}

impl<'f> Identity<BorrowedFd<'f>> {
    /// `None` where the file cannot tell.
    pub(super) fn new(fd: BorrowedFd<'f>, offset: u64, size: usize, access: Option<Access>) -> Option<Self> {
        let file = blocking::known(fd).ok()?;
        let what = match file.kind {
            libc::S_IFREG => {
                let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).ok()?);
                What::File(file, flags & OFlag::O_ACCMODE)
            }
            libc::S_IFCHR if is_ashmem(fd) => What::OpenFiles(vec![fd], Vec::new()),
            _ => return None,
        };
        Some(Identity { what, offset, size, access })
    }

    /// The identity of `size` bytes that consist of these open files and of the numbers that belong to them.
    pub(super) fn of_open_files(
        files: impl Iterator<Item = BorrowedFd<'f>>,
        numbers: Vec<i32>,
        size: usize,
    ) -> Self {
        Identity { what: What::OpenFiles(files.collect(), numbers), offset: 0, size, access: None }
    }

    /// How many descriptors it has where it is kept.
    pub fn descriptors(&self) -> usize {
        match &self.what {
            What::File(..) => 0,
            What::OpenFiles(files, _) => files.len(),
        }
    }

    /// The same to be kept. `None` where the kernel cannot tell open files apart.
    pub fn kept(&self) -> Option<Identity> {
        /// More than any graphics driver's handle has: each is a descriptor of ours for as long as this is kept.
        const MOST_FILES: usize = 4;
        let what = match &self.what {
            What::File(known, mode) => What::File(*known, *mode),
            What::OpenFiles(files, numbers) => {
                // A kernel that cannot tell a file from itself cannot tell it from others.
                let first = *files.first()?;
                if files.len() > MOST_FILES || same_open_file(first, first) != Some(true) {
                    return None;
                }
                let files = files.iter().map(|fd| fd.try_clone_to_owned().ok()).collect::<Option<_>>()?;
                What::OpenFiles(files, numbers.clone())
            }
        };
        Some(Identity { what, offset: self.offset, size: self.size, access: self.access })
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
        fn identity(file: &File, offset: u64) -> Identity<BorrowedFd<'_>> {
            Identity::new(file.as_fd(), offset, 10, None).unwrap()
        }
        let first = identity(&a, 0).kept().unwrap();
        assert_eq!(first, identity(&a, 0));
        let duplicate = a.try_clone().unwrap();
        assert_eq!(first, identity(&duplicate, 0));
        assert_ne!(first, identity(&a, 1));
        assert_ne!(first, identity(&b, 0));
        a.set_len(50).unwrap();
        assert_ne!(first, identity(&a, 0));
        let named = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(named.path()).unwrap();
        assert_ne!(identity(named.as_file(), 0), identity(&read_only, 0), "it allows less");
        assert!(same_memory(named.as_file().as_fd(), read_only.as_fd()), "it is one file");
        assert!(same_memory(a.as_fd(), duplicate.as_fd()) && !same_memory(a.as_fd(), b.as_fd()));
        let null = File::open("/dev/null").unwrap();
        assert!(Identity::new(null.as_fd(), 0, 10, None).is_none());
    }

    #[test]
    fn memory_is_told_apart_by_what_is_mapped() {
        let (a, b) = (file(&[0; 100]), file(&[0; 100]));
        let duplicate = a.try_clone().unwrap();
        let same = |a: &File, b: &File| same_when_mapped([a.as_fd(), b.as_fd()]);
        assert!(same(&a, &a) && same(&a, &duplicate) && same(&duplicate, &a));
        assert!(!same(&a, &b) && !same(&b, &a));
        assert!(!same(&a, &file(&[])), "there is nothing to be mapped");
        let line = "7f00-8f00 rw-s 00001000 00:01 77                         /dev/ashmem/x (deleted)";
        assert_eq!(mapped_file(line), Some((0x7f00..0x8f00, ("00:01", "77"))));
        assert_eq!(mapped_file("7f00-8f00 rw-p 00000000 00:00 0 "), None);
        assert_eq!(mapped_file("nonsense"), None);
    }

    fn of_files<'f>(files: &[&'f File], numbers: &[i32]) -> Identity<BorrowedFd<'f>> {
        Identity::of_open_files(files.iter().copied().map(AsFd::as_fd), numbers.to_vec(), 10)
    }

    #[test]
    fn open_files_are_told_apart_by_the_kernel() {
        // Two open files of one device, as two regions of ashmem are.
        let open = || File::open("/dev/zero").unwrap();
        let (a, b) = (open(), open());
        let duplicate = a.try_clone().unwrap();
        let first = of_files(&[&a, &b], &[1]).kept().unwrap();
        assert_eq!(first, of_files(&[&a, &b], &[1]));
        assert_eq!(first, of_files(&[&duplicate, &b], &[1]));
        assert!(same_memory(a.as_fd(), duplicate.as_fd()) && !same_memory(a.as_fd(), b.as_fd()));
        assert_ne!(first, of_files(&[&a, &a], &[1]));
        assert_ne!(first, of_files(&[&b, &a], &[1]));
        assert_ne!(first, of_files(&[&a], &[1]));
        assert_ne!(first, of_files(&[&a, &b], &[2]));
        assert!(of_files(&[&a; 5], &[]).kept().is_none(), "so many descriptors are not kept");
        assert!(of_files(&[], &[1]).kept().is_none());
        assert_eq!(of_files(&[&a, &b], &[1]).descriptors(), 2);
    }
}
