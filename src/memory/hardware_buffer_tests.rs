//! Hardware buffers against a library of the test's own, whose buffers are mapped memfds.

use super::*;
use crate::memory::{Accessed, ClientSlice, Mapping};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, PoisonError};

/// A buffer of the test's library.
struct Fake {
    description: Description,
    fd: c_int,
    start: *mut c_void,
    locked: Option<u64>,
}

// SAFETY: only ever touched with `FAKES` locked.
unsafe impl Send for Fake {}

static FAKES: Mutex<Option<HashMap<usize, Fake>>> = Mutex::new(None);

fn with_fakes<T>(body: impl FnOnce(&mut HashMap<usize, Fake>) -> T) -> T {
    body(FAKES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

const EINVAL: c_int = -22;

/// Takes a handle of one descriptor and the number 7, for a memfd at least as large as the description says.
unsafe extern "C" fn create(
    description: *const Description,
    handle: *const c_int,
    method: i32,
    buffer: *mut Buffer,
) -> c_int {
    // SAFETY: as the caller promises, three numbers and the data that they announce.
    let (description, handle) = unsafe { (*description, std::slice::from_raw_parts(handle, 5)) };
    let [12, 1, 1, fd, 7] = *handle else { return EINVAL };
    // SAFETY: the caller's descriptor, which is open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let file = File::from(fd.try_clone_to_owned().unwrap());
    let len = file.metadata().unwrap().len() as usize;
    if method != CLONE || len < description.width as usize {
        return EINVAL;
    }
    let (protection, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), len.max(1), protection, sharing, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
    with_fakes(|fakes| fakes.insert(start as usize, Fake { description, fd, start, locked: None }));
    // SAFETY: the caller's to be written.
    unsafe { *buffer = start };
    0
}

unsafe extern "C" fn describe(buffer: Buffer, description: *mut Description) {
    // SAFETY: the caller's to be written.
    with_fakes(|fakes| unsafe { *description = fakes[&(buffer as usize)].description });
}

unsafe extern "C" fn lock(
    buffer: Buffer,
    usage: u64,
    fence: i32,
    rectangle: *const c_void,
    start: *mut *mut c_void,
) -> c_int {
    with_fakes(|fakes| {
        let fake = fakes.get_mut(&(buffer as usize)).unwrap();
        let allowed = usage != 0 && usage & !fake.description.usage == 0;
        if !allowed || fence != -1 || !rectangle.is_null() || fake.locked.replace(usage).is_some() {
            return EINVAL;
        }
        // SAFETY: the caller's to be written.
        unsafe { *start = fake.start };
        0
    })
}

unsafe extern "C" fn unlock(buffer: Buffer, fence: *mut i32) -> c_int {
    let was_locked = with_fakes(|fakes| fakes.get_mut(&(buffer as usize)).unwrap().locked.take().is_some());
    if was_locked && fence.is_null() {
        0
    } else {
        EINVAL
    }
}

unsafe extern "C" fn release(buffer: Buffer) {
    let fake = with_fakes(|fakes| fakes.remove(&(buffer as usize)).unwrap());
    assert!(fake.locked.is_none());
    // SAFETY: what `create` opened and mapped; nobody uses it any more.
    unsafe {
        libc::munmap(fake.start, (fake.description.width as usize).max(1));
        libc::close(fake.fd);
    }
}

fn symbol(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"AHardwareBuffer_createFromHandle" => create as CreateFromHandle as *mut c_void,
        b"AHardwareBuffer_describe" => describe as Describe as *mut c_void,
        b"AHardwareBuffer_lock" => lock as Lock as *mut c_void,
        b"AHardwareBuffer_unlock" => unlock as Unlock as *mut c_void,
        b"AHardwareBuffer_release" => release as Release as *mut c_void,
        other => panic!("{} is not used", String::from_utf8_lossy(other)),
    }
}

/// The test's library.
pub(crate) fn library() -> Library {
    // SAFETY: every symbol is a function of its name's type.
    unsafe { Library::new(symbol) }.unwrap()
}

const SIZE: usize = 3 * 4096;

fn memfd() -> File {
    let fd = nix::sys::memfd::memfd_create(c"blob", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = File::from(fd);
    file.set_len(SIZE as u64).unwrap();
    file
}

fn import(file: &File, usage: u64) -> Result<HardwareBuffer, MemoryError> {
    HardwareBuffer::import(library(), &Description::blob(SIZE as u32, usage), &[file.as_raw_fd()], &[7])
}

fn slice(file: &File, usage: u64) -> ClientSlice {
    ClientSlice::whole(Arc::new(Mapping::hardware(import(file, usage).unwrap())))
}

#[test]
fn a_library_that_lacks_a_function_is_none() {
    for missing in [c"AHardwareBuffer_createFromHandle", c"AHardwareBuffer_describe", c"AHardwareBuffer_lock"]
        .into_iter()
        .chain([c"AHardwareBuffer_unlock", c"AHardwareBuffer_release"])
    {
        let find = |name: &CStr| if name == missing { std::ptr::null_mut() } else { symbol(name) };
        // SAFETY: every symbol is null, or a function of its name's type.
        assert!(unsafe { Library::new(find) }.is_none(), "{missing:?}");
    }
    assert_eq!(Library::of_this_machine().is_some(), cfg!(target_os = "android"));
}

#[test]
fn bytes_go_in_and_out_under_a_lock_and_the_buffer_is_released() {
    use std::os::unix::fs::FileExt;
    let file = memfd();
    let both = slice(&file, 0x33);
    both.part(100, 3).unwrap().write(&[1, 2, 3]).unwrap();
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 99).unwrap();
    assert_eq!(bytes, [0, 1, 2, 3, 0]);
    let mut read = [0; 3];
    both.part(100, 3).unwrap().read(&mut read).unwrap();
    assert_eq!(read, [1, 2, 3]);
    // Overlapping parts of one buffer: the lock is not taken twice.
    both.part(100, 2).unwrap().copy_to(&both.part(101, 2).unwrap()).unwrap();
    file.read_exact_at(&mut bytes, 99).unwrap();
    assert_eq!(bytes, [0, 1, 1, 2, 0]);
    let fd = with_fakes(|fakes| {
        let fake = fakes.values().find(|fake| same_file(fake.fd, &file)).expect("imported");
        assert!(fake.locked.is_none());
        fake.fd
    });
    drop(both);
    assert!(!with_fakes(|fakes| fakes.values().any(|fake| fake.fd == fd && same_file(fd, &file))));
}

fn same_file(fd: c_int, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: a descriptor of the test's library, open while its buffer is alive.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    nix::sys::stat::fstat(fd).is_ok_and(|stat| stat.st_ino == file.metadata().unwrap().ino())
}

#[test]
fn usage_says_what_the_cpu_may_do() {
    let file = memfd();
    let reads = slice(&file, 0x3);
    reads.read(&mut [0; 8]).unwrap();
    assert!(matches!(reads.write(&[0; 8]), Err(MemoryError::Access(_))));
    let writes = slice(&file, 0x30 | 1 << 20);
    writes.write(&[0; 8]).unwrap();
    assert!(matches!(writes.read(&mut [0; 8]), Err(MemoryError::Access(_))));
    assert!(matches!(import(&file, 1 << 20), Err(MemoryError::Access(_))));
}

#[test]
fn handles_that_the_allocator_does_not_know_are_refused() {
    let (file, blob) = (memfd(), |width| Description::blob(width, 0x33));
    let import = |description: &Description, fds: &[c_int], ints: &[i32]| {
        HardwareBuffer::import(library(), description, fds, ints).map(drop)
    };
    let fd = file.as_raw_fd();
    import(&blob(SIZE as u32), &[fd], &[7]).unwrap();
    let refused = import(&blob(SIZE as u32), &[fd], &[8]).unwrap_err();
    assert!(refused.to_string().contains("does not import the hardware buffer (status -22)"), "{refused}");
    assert!(matches!(import(&blob(SIZE as u32 + 1), &[fd], &[7]), Err(MemoryError::Map(_))));
    assert!(matches!(import(&blob(1), &[fd], &[7; MAX_HANDLE_PART + 1]), Err(MemoryError::Unsupported(_))));
    let image = Description { format: 1, ..blob(SIZE as u32) };
    assert!(matches!(import(&image, &[fd], &[7]), Err(MemoryError::Unsupported(_))));
}

#[test]
fn a_buffer_that_vanishes_is_an_error_and_stays_one() {
    let file = memfd();
    let slice = slice(&file, 0x33);
    slice.read(&mut vec![0; SIZE]).unwrap();
    file.set_len(0).unwrap();
    assert!(matches!(slice.read(&mut vec![0; SIZE]), Err(MemoryError::Vanished)));
    file.set_len(SIZE as u64).unwrap();
    assert!(matches!(slice.write(&[0; 8]), Err(MemoryError::Vanished)));
}

#[test]
fn device_memory_is_neither_computed_with_in_place_nor_waited_on() {
    let file = memfd();
    let slice = slice(&file, 0x33);
    assert!(crate::memory::Weights::shared(slice).is_none());
    let mapping = Arc::new(Mapping::hardware(import(&file, 0x33).unwrap()));
    assert!(matches!(crate::memory::SharedU32::new(mapping, 0), Err(MemoryError::Unsupported(_))));
}

/// What the test's library has the buffer of `file` locked for.
fn lock_of(file: &File) -> Option<u64> {
    with_fakes(|fakes| fakes.values().find(|fake| same_file(fake.fd, file)).expect("imported").locked)
}

#[test]
fn a_held_buffer_is_locked_once_for_all_that_is_done_with_it() {
    let file = memfd();
    let slice = slice(&file, 0x33);
    for (access, usage) in [(Access::Read, 0x3), (Access::Write, 0x30), (Access::ReadWrite, 0x33)] {
        let held = Accessed::new(slice.mapping(), access).unwrap().unwrap();
        assert_eq!(lock_of(&file), Some(usage));
        // Who comes meanwhile is not kept waiting.
        assert!(Accessed::new(slice.mapping(), Access::Read).unwrap().is_none());
        assert!(matches!(slice.read(&mut [0]), Err(MemoryError::Exhausted(_))));
        let part = slice.part(5, 3).unwrap();
        assert_eq!(held.view(&part).is_some(), access.reads());
        assert_eq!(held.target(&part, 3).is_some(), access.writes());
        assert_eq!(held.read(&part, &mut [0; 3]).is_ok(), access.reads());
        assert_eq!(held.write(&part, &[1, 2, 3]).is_ok(), access.writes());
        assert!(held.target(&part, 4).is_none() && held.read(&part, &mut [0; 4]).is_err());
        held.end().unwrap();
        assert_eq!(lock_of(&file), None);
    }
    drop(Accessed::new(slice.mapping(), Access::Read).unwrap());
    assert_eq!(lock_of(&file), None);
    slice.part(4, 5).unwrap().read(&mut [0; 5]).unwrap();
    assert!(Accessed::new(self::slice(&file, 0x3).mapping(), Access::ReadWrite).is_err());
}

#[test]
fn a_held_buffer_that_vanishes_is_an_error_once_it_was_touched() {
    let file = memfd();
    let slice = slice(&file, 0x33);
    let held = Accessed::new(slice.mapping(), Access::ReadWrite).unwrap().unwrap();
    held.check().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(held.view(&slice).unwrap().get(SIZE - 1), 0);
    assert!(matches!(held.check(), Err(MemoryError::Vanished)));
    held.target(&slice, SIZE).unwrap().copy_from(0, &[1; SIZE]);
    assert!(matches!(held.end(), Err(MemoryError::Vanished)));
    assert_eq!(lock_of(&file), None);
    assert!(matches!(Accessed::new(slice.mapping(), Access::Read), Err(MemoryError::Vanished)));
}
