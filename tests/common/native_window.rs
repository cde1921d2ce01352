//! A libnativewindow whose buffers are mapped memfds; for tests of the crate as well as for those beside it.
//!
//! A handle of it has one descriptor and the numbers of [`handle`]. As the real one, it tells of a buffer what it was told
//! itself, compares that with the handle, and locks neither what has several layers nor for what nobody asked.

#![allow(dead_code)] // no test uses all of it

use std::collections::HashMap;
use std::ffi::{c_int, c_void, CStr};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::{Condvar, Mutex, PoisonError};

pub const EINVAL: c_int = -22;
pub const ENOSYS: c_int = -38;

const BLOB: u32 = 0x21;
/// What every handle has.
const MAGIC: i32 = 7;

/// What the library does wrong with a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(i32)]
pub enum Fault {
    Nothing,
    DescribesAnotherWidth,
    DescribesAnotherHeight,
    DescribesSeveralLayers,
    DescribesAnotherFormat,
    DoesNotLock,
    LocksNowhere,
    TellsNoRows,
    TellsOtherPixels,
    TellsNegativeRows,
    DoesNotUnlock,
    /// Its device is busy with it for as long as [`DEVICE`] says.
    IsBusy,
}

/// Whether the device is busy with the buffers that are [`Fault::IsBusy`], and how many locks wait for it.
#[derive(Clone, Copy, Default)]
pub struct Device {
    pub busy: bool,
    pub waiting: usize,
}

pub static DEVICE: Mutex<Device> = Mutex::new(Device { busy: false, waiting: 0 });
static DONE: Condvar = Condvar::new();

pub fn set_busy(busy: bool) {
    DEVICE.lock().unwrap().busy = busy;
    DONE.notify_all();
}

fn wait_for_the_device() {
    let mut device = DEVICE.lock().unwrap();
    device.waiting += 1;
    DONE.wait_while(device, |device| device.busy).unwrap().waiting -= 1;
}

/// The numbers of a handle whose buffer has rows of so many bytes.
pub fn handle(row: i32, fault: Fault) -> Vec<i32> {
    vec![MAGIC, row, fault as i32]
}

/// AHardwareBuffer, and the ARect that is to be locked.
type Buffer = *mut c_void;
type Area = *const c_void;

/// AHardwareBuffer_Desc.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Description {
    width: u32,
    height: u32,
    layers: u32,
    format: u32,
    usage: u64,
    stride: u32,
    reserved_0: u32,
    reserved_1: u64,
}

struct Fake {
    description: Description,
    /// Bytes of a pixel, and from one row to the next.
    pixel: u32,
    row: i32,
    fault: i32,
    fd: c_int,
    start: usize,
    len: usize,
    locked: Option<u64>,
    locks: usize,
}

impl Fake {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault as i32
    }
}

static FAKES: Mutex<Option<HashMap<usize, Fake>>> = Mutex::new(None);

fn with_fakes<T>(body: impl FnOnce(&mut HashMap<usize, Fake>) -> T) -> T {
    body(FAKES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn with_fake<T>(buffer: Buffer, body: impl FnOnce(&mut Fake) -> T) -> T {
    with_fakes(|fakes| body(fakes.get_mut(&(buffer as usize)).expect("a buffer that lives")))
}

fn is_of(fake: &Fake, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: a descriptor of the library, open while its buffer is alive.
    let fd = unsafe { BorrowedFd::borrow_raw(fake.fd) };
    #[allow(clippy::useless_conversion)] // ino_t has 32 bits where pointers have
    nix::sys::stat::fstat(fd).is_ok_and(|stat| u64::from(stat.st_ino) == file.metadata().unwrap().ino())
}

/// What the buffer of `file` is locked for; `None` where there is no such buffer.
pub fn lock_of(file: &File) -> Option<Option<u64>> {
    with_fakes(|fakes| fakes.values().find(|fake| is_of(fake, file)).map(|fake| fake.locked))
}

/// How often the buffer of `file` was locked.
pub fn locks_of(file: &File) -> Option<usize> {
    with_fakes(|fakes| fakes.values().find(|fake| is_of(fake, file)).map(|fake| fake.locks))
}

fn bytes_per_pixel(format: u32) -> u32 {
    match format {
        0x38 => 1,
        0x4 | 0x39 => 2,
        0x3 => 3,
        0x16 | 0x3b => 8,
        _ => 4,
    }
}

/// Takes a handle for a memfd that is as large as the handle and the description say, whose rows the handle knows.
unsafe extern "C" fn create(
    description: *const Description,
    handle: *const c_int,
    method: i32,
    buffer: *mut Buffer,
) -> c_int {
    // SAFETY: as the caller promises, three numbers and the data that they announce.
    let (description, handle) = unsafe {
        let count = 3 + *handle.add(1) + *handle.add(2);
        (*description, std::slice::from_raw_parts(handle, count as usize))
    };
    let (fd, row, fault) = match *handle {
        [12, 1, 1, fd, MAGIC] => (fd, 0, 0),
        [12, 1, 3, fd, MAGIC, row, fault] => (fd, row, fault),
        _ => return EINVAL,
    };
    const CLONE: i32 = 3;
    if method != CLONE || (description.reserved_0, description.reserved_1) != (0, 0) {
        return EINVAL;
    }
    // SAFETY: the caller's descriptor, which is open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let file = File::from(fd.try_clone_to_owned().unwrap());
    let len = file.metadata().unwrap().len();
    let pixel = bytes_per_pixel(description.format);
    let needed = match description.format {
        BLOB => u64::from(description.width),
        _ if row < 0 || description.stride != row as u32 / pixel => return EINVAL,
        _ => u64::from(description.height).saturating_mul(row as u64),
    };
    if len < needed {
        return EINVAL;
    }
    let len = (len as usize).max(1);
    let (protection, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, sharing, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let (fd, locked, locks) = (file.into_raw_fd(), None, 0);
    let start_number = start as usize;
    let fake = Fake { description, pixel, row, fault, fd, start: start_number, len, locked, locks };
    with_fakes(|fakes| fakes.insert(start_number, fake));
    // SAFETY: the caller's to be written.
    unsafe { *buffer = start };
    0
}

unsafe extern "C" fn describe(buffer: Buffer, description: *mut Description) {
    let told = with_fake(buffer, |fake| {
        let mut told = fake.description;
        told.width += u32::from(fake.has(Fault::DescribesAnotherWidth));
        told.height += u32::from(fake.has(Fault::DescribesAnotherHeight));
        told.layers += u32::from(fake.has(Fault::DescribesSeveralLayers));
        if fake.has(Fault::DescribesAnotherFormat) {
            told.format = BLOB;
        }
        told
    });
    // SAFETY: the caller's to be written.
    unsafe { *description = told };
}

unsafe extern "C" fn lock(buffer: Buffer, usage: u64, fence: i32, area: Area, start: *mut Buffer) -> c_int {
    if with_fake(buffer, |fake| fake.has(Fault::IsBusy)) {
        wait_for_the_device();
    }
    with_fake(buffer, |fake| {
        let allowed = usage != 0 && usage & !fake.description.usage == 0 && fake.description.layers == 1;
        let is_whole = fence == -1 && area.is_null();
        if !allowed || !is_whole || fake.has(Fault::DoesNotLock) || fake.locked.replace(usage).is_some() {
            return EINVAL;
        }
        fake.locks += 1;
        let nowhere = fake.has(Fault::LocksNowhere).then_some(0);
        if nowhere.is_some() {
            fake.locked = None;
        }
        // SAFETY: the caller's to be written.
        unsafe { *start = nowhere.unwrap_or(fake.start) as Buffer };
        0
    })
}

unsafe extern "C" fn lock_and_get_info(
    buffer: Buffer,
    usage: u64,
    fence: i32,
    area: Area,
    start: *mut Buffer,
    pixel: *mut i32,
    row: *mut i32,
) -> c_int {
    if with_fake(buffer, |fake| fake.has(Fault::TellsNoRows)) {
        return ENOSYS;
    }
    // SAFETY: as the caller promises.
    let status = unsafe { lock(buffer, usage, fence, area, start) };
    let told = with_fake(buffer, |fake| {
        let pixel = fake.pixel as i32 + i32::from(fake.has(Fault::TellsOtherPixels));
        (pixel, if fake.has(Fault::TellsNegativeRows) { -fake.row } else { fake.row })
    });
    // SAFETY: the caller's to be written.
    unsafe { (*pixel, *row) = told };
    status
}

unsafe extern "C" fn unlock(buffer: Buffer, fence: *mut i32) -> c_int {
    with_fake(buffer, |fake| {
        let was_locked = fake.locked.take().is_some();
        let works = was_locked && fence.is_null() && !fake.has(Fault::DoesNotUnlock);
        if works {
            0
        } else {
            EINVAL
        }
    })
}

unsafe extern "C" fn release(buffer: Buffer) {
    let fake = with_fakes(|fakes| fakes.remove(&(buffer as usize)).expect("a buffer that lives"));
    assert!(fake.locked.is_none());
    // SAFETY: what `create` opened and mapped; nobody uses it any more.
    unsafe {
        libc::munmap(fake.start as *mut c_void, fake.len);
        libc::close(fake.fd);
    }
}

/// The library's functions by name.
pub fn symbol(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"AHardwareBuffer_createFromHandle" => create as *const () as *mut c_void,
        b"AHardwareBuffer_describe" => describe as *const () as *mut c_void,
        b"AHardwareBuffer_lock" => lock as *const () as *mut c_void,
        b"AHardwareBuffer_lockAndGetInfo" => lock_and_get_info as *const () as *mut c_void,
        b"AHardwareBuffer_unlock" => unlock as *const () as *mut c_void,
        b"AHardwareBuffer_release" => release as *const () as *mut c_void,
        other => panic!("{} is not used", String::from_utf8_lossy(other)),
    }
}
