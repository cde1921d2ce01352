//! Android's hardware buffers: memory of the graphics allocator, which only libnativewindow knows how to reach.
//!
//! The library's functions are looked up at run time, for nothing but Android has it; without it, [`super::pool`] makes
//! do with a BLOB's dma-buf, which holds plain bytes, and with no image's. Of an image only the allocator knows where its rows
//! lie: its word is taken when the buffer is locked. What the client says of them is for the allocator to compare.

use super::budget::HeldDescriptors;
use super::file::{is_dma_buf, Direction, DmaBuf};
use super::guard::Region;
use super::image::Rows;
use super::kernel::page_size;
use super::Access;
use super::MemoryError;
use crate::waits::wait_for;
use std::ffi::{c_int, c_void, CStr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

/// What is waited for.
const DEVICE: &str = "a device that uses a hardware buffer";

/// AHARDWAREBUFFER_FORMAT_BLOB.
const BLOB: u32 = 0x21;
/// AHARDWAREBUFFER_CREATE_FROM_HANDLE_METHOD_CLONE of vndk/hardware_buffer.h: the handle stays its owner's.
const CLONE: i32 = 3;
/// AHARDWAREBUFFER_USAGE_CPU_READ_MASK and AHARDWAREBUFFER_USAGE_CPU_WRITE_MASK.
const CPU_READ: u64 = 0xf;
const CPU_WRITE: u64 = 0xf0;
/// NATIVE_HANDLE_MAX_FDS and NATIVE_HANDLE_MAX_INTS of cutils/native_handle.h.
const MAX_HANDLE_PART: usize = 1024;

/// AHardwareBuffer_Desc.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Description {
    /// In pixels; those of a BLOB are bytes.
    pub width: u32,
    pub height: u32,
    pub layers: u32,
    pub format: u32,
    pub usage: u64,
    /// In pixels.
    pub stride: u32,
    pub reserved_0: u32,
    pub reserved_1: u64,
}

type Buffer = *mut c_void;
type CreateFromHandle = unsafe extern "C" fn(*const Description, *const c_int, i32, *mut Buffer) -> c_int;
type Describe = unsafe extern "C" fn(Buffer, *mut Description);
type Lock = unsafe extern "C" fn(Buffer, u64, i32, *const c_void, *mut *mut c_void) -> c_int;
type LockAndGetInfo =
    unsafe extern "C" fn(Buffer, u64, i32, *const c_void, *mut *mut c_void, *mut i32, *mut i32) -> c_int;
type Unlock = unsafe extern "C" fn(Buffer, *mut i32) -> c_int;
type Release = unsafe extern "C" fn(Buffer);

/// What is used of libnativewindow.
#[derive(Clone, Copy)]
pub(super) struct Library {
    create_from_handle: CreateFromHandle,
    describe: Describe,
    lock: Lock,
    lock_and_get_info: LockAndGetInfo,
    unlock: Unlock,
    release: Release,
}

impl Library {
    /// The functions as `find` finds them; `None` if one is missing.
    ///
    /// # Safety
    ///
    /// What `find` gives for the name of a function is null, or that function, for as long as the process lives.
    unsafe fn new(find: impl Fn(&CStr) -> *mut c_void) -> Option<Self> {
        let find = |name: &CStr| Some(find(name)).filter(|function| !function.is_null());
        let create_from_handle = find(c"AHardwareBuffer_createFromHandle")?;
        let describe = find(c"AHardwareBuffer_describe")?;
        let lock = find(c"AHardwareBuffer_lock")?;
        let lock_and_get_info = find(c"AHardwareBuffer_lockAndGetInfo")?;
        let unlock = find(c"AHardwareBuffer_unlock")?;
        let release = find(c"AHardwareBuffer_release")?;
        // SAFETY: not null, as was just looked, and of the types that these names have in the headers.
        unsafe {
            Some(Library {
                create_from_handle: std::mem::transmute::<*mut c_void, CreateFromHandle>(create_from_handle),
                describe: std::mem::transmute::<*mut c_void, Describe>(describe),
                lock: std::mem::transmute::<*mut c_void, Lock>(lock),
                lock_and_get_info: std::mem::transmute::<*mut c_void, LockAndGetInfo>(lock_and_get_info),
                unlock: std::mem::transmute::<*mut c_void, Unlock>(unlock),
                release: std::mem::transmute::<*mut c_void, Release>(release),
            })
        }
    }

    /// This machine's libnativewindow, if it has one. Loaded when it is first needed.
    pub fn of_this_machine() -> Option<Self> {
        *LIBRARY.get_or_init(|| {
            if !cfg!(target_os = "android") {
                return None;
            }
            // SAFETY: loads a library of the system, which may run its initialisers; it is never unloaded.
            let library = unsafe { libc::dlopen(c"libnativewindow.so".as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                log::warn!("libnativewindow.so cannot be loaded: hardware buffers are mapped as dma-bufs");
                return None;
            }
            // SAFETY: a symbol of that library is the function of that name.
            unsafe { Library::new(|name| libc::dlsym(library, name.as_ptr())) }
        })
    }
}

static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();

/// Has this process use the functions that `find` finds in place of libnativewindow's: for tests, on machines that have
/// none. False if one is missing, or somebody needed a hardware buffer before.
///
/// # Safety
///
/// What `find` gives for the name of a function is null, or a function of the type that the name has in
/// android/hardware_buffer.h and vndk/hardware_buffer.h, and that keeps to what they say.
pub unsafe fn stand_in_for_native_window(find: impl Fn(&CStr) -> *mut c_void) -> bool {
    // SAFETY: as the caller promises.
    let library = unsafe { Library::new(find) };
    library.is_some() && LIBRARY.set(library).is_ok()
}

/// A hardware buffer of a client; let go of when dropped.
pub(super) struct HardwareBuffer {
    library: Library,
    buffer: Buffer,
    description: Description,
    /// Bytes of a pixel.
    pixel: usize,
    usage: u64,
    /// Held during an access: what two locks at once do is not defined if one of them is to write. Nobody waits for it, for
    /// an access can last as long as a run; nor need anybody, as each execution imports its buffers anew.
    turn: Mutex<()>,
    vanished: AtomicBool,
    /// What its handle has of these: the library cannot be asked whether a device is done with it.
    dma_bufs: Vec<DmaBuf>,
    /// For those of the handle, which the library duplicates.
    _held: HeldDescriptors,
}

// SAFETY: the library's functions may be called from any thread, and `turn` keeps accesses apart.
unsafe impl Send for HardwareBuffer {}
// SAFETY: as above.
unsafe impl Sync for HardwareBuffer {}

impl HardwareBuffer {
    /// Has `library` import the handle of these descriptors, which stay the caller's, and `ints`. It checks that handle
    /// and description fit each other. A pixel has so many bytes, and the whole buffer less than 2^32.
    pub fn import(
        library: Library,
        description: &Description,
        pixel: usize,
        fds: &[c_int],
        ints: &[i32],
    ) -> Result<Self, MemoryError> {
        if fds.len() > MAX_HANDLE_PART || ints.len() > MAX_HANDLE_PART {
            return Err(MemoryError::Unsupported("the handle of a hardware buffer is too long"));
        }
        let held = HeldDescriptors::take(fds.len())?;
        // native_handle_t: its size without the data, how many of each, the data.
        let mut handle = vec![3 * size_of::<c_int>() as c_int, fds.len() as c_int, ints.len() as c_int];
        handle.extend(fds);
        handle.extend(ints);
        let mut buffer = std::ptr::null_mut();
        // SAFETY: the description and the handle are as the headers say, and outlive the call, which copies them.
        let status =
            unsafe { (library.create_from_handle)(description, handle.as_ptr(), CLONE, &mut buffer) };
        if status != 0 || buffer.is_null() {
            return Err(failed("import", status));
        }
        // From here on it is released if anything fails.
        let mut imported = HardwareBuffer {
            library,
            buffer,
            description: *description,
            pixel,
            usage: 0,
            turn: Mutex::default(),
            vanished: AtomicBool::new(false),
            dma_bufs: Vec::new(),
            _held: held,
        };
        let mut actual = Description::default();
        // SAFETY: the buffer is alive, and the description is ours to be written.
        unsafe { (library.describe)(buffer, &mut actual) };
        let kind = |of: &Description| (of.width, of.height, of.layers, of.format);
        if kind(&actual) != kind(description) {
            return Err(MemoryError::Unsupported("a hardware buffer is not what its description says"));
        }
        imported.usage = actual.usage & (CPU_READ | CPU_WRITE);
        if imported.usage == 0 {
            return Err(MemoryError::Unsupported("the hardware buffer was not made for the CPU to use"));
        }
        for &fd in fds {
            // SAFETY: the caller's, which are open during the call.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if is_dma_buf(fd) {
                imported.dma_bufs.push(DmaBuf::new(fd)?);
            }
        }
        Ok(imported)
    }

    /// Bytes of its pixels.
    pub fn len(&self) -> usize {
        self.row_len() * self.description.height as usize
    }

    fn row_len(&self) -> usize {
        self.description.width as usize * self.pixel
    }

    /// Whether it is no BLOB.
    pub fn is_image(&self) -> bool {
        self.description.format != BLOB
    }

    /// What the CPU may do with it.
    pub fn access(&self) -> Access {
        match (self.usage & CPU_READ != 0, self.usage & CPU_WRITE != 0) {
            (_, false) => Access::Read,
            (false, true) => Access::Write,
            (true, true) => Access::ReadWrite,
        }
    }

    /// The dma-bufs that it is made of.
    pub fn dma_bufs(&self) -> &[DmaBuf] {
        &self.dma_bufs
    }

    /// Whether the memory behind it was lost.
    pub fn vanished(&self) -> bool {
        self.vanished.load(Ordering::SeqCst)
    }

    /// Runs `copy`, which gets the start of the rows and where they lie, with the buffer locked for it.
    pub fn around(&self, direction: Direction, copy: impl FnOnce(*mut u8, Rows)) -> Result<(), MemoryError> {
        let locked =
            self.try_lock(direction)?.ok_or(MemoryError::Exhausted("the hardware buffer is in use"))?;
        copy(locked.start, locked.rows);
        locked.end()
    }

    /// Locks the buffer, unless somebody has locked it already.
    pub fn try_lock(&self, direction: Direction) -> Result<Option<Locked<'_>>, MemoryError> {
        match self.turn.try_lock() {
            Ok(turn) => self.lock(direction, turn).map(Some),
            Err(TryLockError::Poisoned(turn)) => self.lock(direction, turn.into_inner()).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    fn lock<'b>(&'b self, direction: Direction, turn: MutexGuard<'b, ()>) -> Result<Locked<'b>, MemoryError> {
        const NO_FENCE: i32 = -1;
        let _waiting = wait_for(DEVICE);
        let usage = self.usage
            & match direction {
                Direction::Read => CPU_READ,
                Direction::Write => CPU_WRITE,
                Direction::ReadWrite => CPU_READ | CPU_WRITE,
            };
        let (library, buffer, all) = (&self.library, self.buffer, std::ptr::null());
        // A BLOB's are known; the allocator overwrites them for an image.
        let (mut pixel, mut stride) = (self.pixel as i32, self.row_len() as i32);
        let mut start = std::ptr::null_mut();
        // SAFETY: the buffer is alive; no rectangle means all of it, and the places are ours to be written.
        let status = unsafe {
            if self.is_image() {
                let (pixel, stride) = (&mut pixel, &mut stride);
                (library.lock_and_get_info)(buffer, usage, NO_FENCE, all, &mut start, pixel, stride)
            } else {
                (library.lock)(buffer, usage, NO_FENCE, all, &mut start)
            }
        };
        if status != 0 || start.is_null() {
            return Err(failed("lock", status));
        }
        // From here on it is unlocked if anything fails.
        let (start, rows) = (start.cast(), Rows::plain(0));
        let mut locked = Locked { buffer: self, start, rows, region: None, is_locked: true, _turn: turn };
        let (count, stride) = (self.description.height as usize, usize::try_from(stride).unwrap_or(0));
        let rows =
            Rows::new(count, self.row_len(), stride).filter(|_| usize::try_from(pixel) == Ok(self.pixel));
        let span;
        (locked.rows, span) = rows.ok_or(MemoryError::Unsupported(
            "the graphics allocator says that pixels or rows do not fit the hardware buffer's format",
        ))?;
        // What an allocator gives may be a file that somebody can shrink.
        let skip = start as usize % page_size() as usize;
        locked.region = Some(Region::watch(start as usize - skip, span.saturating_add(skip))?);
        Ok(locked)
    }
}

/// A hardware buffer that is locked for the CPU, with the guard watching. One that is dropped is unlocked too, but tells
/// no error.
pub(super) struct Locked<'b> {
    buffer: &'b HardwareBuffer,
    start: *mut u8,
    rows: Rows,
    region: Option<Region>,
    /// Not unlocked yet.
    is_locked: bool,
    _turn: MutexGuard<'b, ()>,
}

impl Locked<'_> {
    /// Where its rows start, and how they lie from there.
    pub fn place(&self) -> (*mut u8, Rows) {
        (self.start, self.rows)
    }

    /// Takes note if the memory was lost by now: what the allocator has mapped is no longer the buffer, never to be read
    /// again.
    pub fn note_loss(&self) {
        if self.region.as_ref().is_some_and(Region::vanished) {
            self.buffer.vanished.store(true, Ordering::SeqCst);
        }
    }

    pub fn end(mut self) -> Result<(), MemoryError> {
        self.unlock()
    }

    fn unlock(&mut self) -> Result<(), MemoryError> {
        if !std::mem::take(&mut self.is_locked) {
            return Ok(());
        }
        self.note_loss();
        // The allocator may keep it mapped.
        self.region.iter().for_each(Region::give_back);
        // The watch ends first: once unlocked, the addresses may be anybody's.
        self.region = None;
        let _waiting = wait_for(DEVICE);
        // SAFETY: the buffer was locked when `self` was made, and has not been unlocked since. Without a place for a fence
        // the call waits for what is to be done.
        let status = unsafe { (self.buffer.library.unlock)(self.buffer.buffer, std::ptr::null_mut()) };
        match status {
            0 => Ok(()),
            status => Err(failed("unlock", status)),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = self.unlock();
    }
}

impl Drop for HardwareBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is ours, and nobody uses it any more.
        unsafe { (self.library.release)(self.buffer) };
    }
}

fn failed(what: &str, status: c_int) -> MemoryError {
    let why = format!("the graphics allocator does not {what} the hardware buffer (status {status})");
    MemoryError::Map(std::io::Error::other(why))
}

#[cfg(test)]
#[path = "hardware_buffer_tests.rs"]
pub(super) mod tests;
