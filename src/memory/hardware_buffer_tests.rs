//! Hardware buffers against a library of the test's own, whose buffers are mapped memfds.

#[path = "../../tests/common/native_window.rs"]
mod native_window;

use super::*;
use crate::memory::{Accessed, ClientSlice, Mapping};
use native_window::{handle, lock_of, locks_of, symbol, Fault};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The test's library.
pub(crate) fn library() -> Library {
    // SAFETY: every symbol is a function of its name's type.
    unsafe { Library::new(symbol) }.unwrap()
}

const SIZE: usize = 3 * 4096;

/// A BLOB of `size` bytes.
fn blob(size: u32, usage: u64) -> Description {
    let (width, stride, format) = (size, size, BLOB);
    Description { width, height: 1, layers: 1, format, usage, stride, ..Default::default() }
}

fn memfd() -> File {
    let fd = nix::sys::memfd::memfd_create(c"blob", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = File::from(fd);
    file.set_len(SIZE as u64).unwrap();
    file
}

fn import(file: &File, usage: u64) -> Result<HardwareBuffer, MemoryError> {
    HardwareBuffer::import(library(), &blob(SIZE as u32, usage), 1, &[file.as_raw_fd()], &[7])
}

fn slice(file: &File, usage: u64) -> ClientSlice {
    ClientSlice::whole(Arc::new(Mapping::hardware(import(file, usage).unwrap())))
}

/// Memory that a device may be busy with.
pub(crate) fn memory_of_a_device() -> Mapping {
    Mapping::hardware(import(&memfd(), 0x33).unwrap())
}

/// Such memory, and what stands for the fences of its dma-buf: it can be read once it counts anything, and written until it counts
/// nearly all that it can.
pub(crate) fn memory_of_a_busy_device() -> (Mapping, EventFd) {
    let busy = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    let mut buffer = import(&memfd(), 0x33).unwrap();
    buffer.dma_bufs.push(DmaBuf::new(busy.as_fd()).unwrap());
    (Mapping::hardware(buffer), busy)
}

#[test]
fn a_device_that_is_busy_is_waited_for_as_far_as_the_access_needs_it() {
    let (memory, fences) = memory_of_a_busy_device();
    let looks = |access| {
        let mut looks = 0;
        let stopped = memory.wait_until_idle(access, || {
            looks += 1;
            if looks < 3 {
                Ok(())
            } else {
                Err("stopped")
            }
        });
        (stopped, looks)
    };
    assert!(!memory.is_idle(Access::Read) && memory.is_idle(Access::Write));
    assert_eq!(looks(Access::Read), (Err("stopped"), 3));
    fences.write(u64::MAX - 1).unwrap();
    assert!(memory.is_idle(Access::Read));
    for access in [Access::Write, Access::ReadWrite] {
        assert!(!memory.is_idle(access));
        assert_eq!(looks(access), (Err("stopped"), 3));
    }
    let done = memory.wait_until_idle(Access::Write, || {
        fences.read().unwrap();
        Ok::<_, ()>(())
    });
    assert_eq!((done, looks(Access::Write)), (Ok(()), (Ok(()), 0)));
    let unknown = memory_of_a_device();
    assert!(unknown.is_idle(Access::ReadWrite), "it does not tell");
}

#[test]
fn a_library_that_lacks_a_function_is_none() {
    for missing in [c"AHardwareBuffer_createFromHandle", c"AHardwareBuffer_describe", c"AHardwareBuffer_lock"]
        .into_iter()
        .chain([c"AHardwareBuffer_lockAndGetInfo", c"AHardwareBuffer_unlock", c"AHardwareBuffer_release"])
    {
        let find = |name: &CStr| if name == missing { std::ptr::null_mut() } else { symbol(name) };
        // SAFETY: every symbol is null, or a function of its name's type.
        assert!(unsafe { Library::new(find) }.is_none(), "{missing:?}");
    }
    assert_eq!(Library::of_this_machine().is_some(), cfg!(target_os = "android"));
}

#[test]
fn bytes_go_in_and_out_under_a_lock_and_the_buffer_is_released() {
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
    assert_eq!(lock_of(&file), Some(None));
    drop(both);
    assert_eq!(lock_of(&file), None);
}

#[test]
fn its_descriptors_are_its_clients_until_it_is_let_go_of() {
    let (file, quota) = (memfd(), crate::quota::Quota::new(8, 2));
    let budget = crate::memory::Budget::new(1 << 20).with_descriptors(quota.clone());
    let _account = budget.on_account_of(1);
    let held = [(); 2].map(|()| import(&file, 0x33).unwrap());
    assert_eq!(quota.held_by(1), 2);
    assert!(matches!(import(&file, 0x33), Err(MemoryError::Exhausted(_))));
    drop(held);
    assert!(import(&file, 0x33 | 1 << 40).is_ok() && import(&file, 1 << 20).is_err());
    assert_eq!(quota.held(), 0);
    let dma_buf = DmaBuf::new(file.as_fd()).unwrap();
    assert_eq!(quota.held_by(1), 1);
    drop(dma_buf);
    assert_eq!(quota.held(), 0);
}

#[test]
fn usage_says_what_the_cpu_may_do() {
    let file = memfd();
    let reads = slice(&file, 0x3);
    reads.read(&mut [0; 8]).unwrap();
    assert!(matches!(reads.write(&[0; 8]), Err(MemoryError::Unsupported(_))));
    let writes = slice(&file, 0x30 | 1 << 20);
    writes.write(&[0; 8]).unwrap();
    assert!(matches!(writes.read(&mut [0; 8]), Err(MemoryError::Unsupported(_))));
    assert!(matches!(import(&file, 1 << 20), Err(MemoryError::Unsupported(_))));
}

#[test]
fn handles_that_the_allocator_does_not_know_are_refused() {
    let (file, blob) = (memfd(), |width| blob(width, 0x33));
    let import = |description: &Description, fds: &[c_int], ints: &[i32]| {
        HardwareBuffer::import(library(), description, 1, fds, ints).map(drop)
    };
    let fd = file.as_raw_fd();
    import(&blob(SIZE as u32), &[fd], &[7]).unwrap();
    let refused = import(&blob(SIZE as u32), &[fd], &[8]).unwrap_err();
    assert!(refused.to_string().contains("does not import the hardware buffer (status -22)"), "{refused}");
    assert!(matches!(import(&blob(SIZE as u32 + 1), &[fd], &[7]), Err(MemoryError::Map(_))));
    assert!(matches!(import(&blob(1), &[fd], &[7; MAX_HANDLE_PART + 1]), Err(MemoryError::Unsupported(_))));
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

#[test]
fn a_held_buffer_is_locked_once_for_all_that_is_done_with_it() {
    let file = memfd();
    let slice = slice(&file, 0x33);
    for (access, usage) in [(Access::Read, 0x3), (Access::Write, 0x30), (Access::ReadWrite, 0x33)] {
        let held = Accessed::new(slice.mapping(), access).unwrap().unwrap();
        assert_eq!(lock_of(&file), Some(Some(usage)));
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
        assert_eq!(lock_of(&file), Some(None));
    }
    drop(Accessed::new(slice.mapping(), Access::Read).unwrap());
    assert_eq!(lock_of(&file), Some(None));
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
    assert_eq!(lock_of(&file), Some(None));
    assert!(matches!(Accessed::new(slice.mapping(), Access::Read), Err(MemoryError::Vanished)));
}

const RGBA: u32 = 1;

/// An image of 5 x 3 pixels of 4 bytes, in rows of so many bytes.
fn image(row: u32) -> Description {
    let (width, height, stride, format) = (5, 3, row / 4, RGBA);
    Description { width, height, layers: 1, format, usage: 0x33, stride, ..Default::default() }
}

fn import_image(file: &File, row: u32, fault: Fault) -> Result<HardwareBuffer, MemoryError> {
    let ints = handle(row as i32, fault);
    HardwareBuffer::import(library(), &image(row), 4, &[file.as_raw_fd()], &ints)
}

fn image_slice(file: &File, row: u32, fault: Fault) -> ClientSlice {
    ClientSlice::whole(Arc::new(Mapping::hardware(import_image(file, row, fault).unwrap())))
}

/// The bytes of `file`, in which pixels lie in rows of so many bytes, and what lies between.
fn pixels_and_padding(file: &File, row: usize) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = vec![0; SIZE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let is_pixel = |i: &usize| i / row < 3 && i % row < 20;
    let (pixels, padding): (Vec<usize>, Vec<usize>) = (0..SIZE).partition(is_pixel);
    let those = |which: Vec<usize>| which.into_iter().map(|i| bytes[i]).collect();
    (those(pixels), those(padding))
}

#[test]
fn an_image_is_its_rows_without_what_lies_between() {
    for row in [20, 24, 32, 4096] {
        let file = memfd();
        file.write_all_at(&[0xee; SIZE], 0).unwrap();
        let slice = image_slice(&file, row, Fault::Nothing);
        assert!(slice.mapping().is_image() && slice.len() == 60);
        let bytes: Vec<u8> = (1..=60).collect();
        slice.write(&bytes).unwrap();
        let (pixels, padding) = pixels_and_padding(&file, row as usize);
        assert!(pixels == bytes && padding.iter().all(|&byte| byte == 0xee), "{row}");
        assert!(slice.to_private().unwrap()[..] == bytes);
        // Parts that begin and end within rows, and one that overlaps its own copy.
        let mut read = [0; 25];
        slice.part(17, 25).unwrap().read(&mut read).unwrap();
        assert_eq!(read[..], bytes[17..42]);
        slice.part(0, 30).unwrap().copy_to(&slice.part(30, 30).unwrap()).unwrap();
        assert_eq!(pixels_and_padding(&file, row as usize).0, [&bytes[..30], &bytes[..30]].concat());
        assert_eq!(lock_of(&file), Some(None));
    }
}

#[test]
fn an_image_is_computed_with_in_place_only_without_padding() {
    for (row, is_plain) in [(20, true), (24, false)] {
        let file = memfd();
        let slice = image_slice(&file, row, Fault::Nothing);
        let held = Accessed::new(slice.mapping(), Access::ReadWrite).unwrap().unwrap();
        assert_eq!(held.view(&slice).is_some(), is_plain);
        assert_eq!(held.target(&slice, 60).is_some(), is_plain);
        let part = slice.part(10, 30).unwrap();
        let bytes: Vec<u8> = (1..=30).collect();
        held.write(&part, &bytes).unwrap();
        let mut read = [0; 30];
        held.read(&part, &mut read).unwrap();
        assert_eq!(read[..], bytes);
        assert!(held.write(&part, &[0; 31]).is_err() && held.read(&part, &mut [0; 31]).is_err());
        held.end().unwrap();
        assert_eq!(locks_of(&file), Some(1), "once for all that was done");
        let (pixels, padding) = pixels_and_padding(&file, row as usize);
        assert!(pixels == [&[0; 10], &bytes[..], &[0; 20]].concat() && padding.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn what_the_library_says_otherwise_is_no_image() {
    use Fault::*;
    let file = memfd();
    for fault in
        [DescribesAnotherWidth, DescribesAnotherHeight, DescribesSeveralLayers, DescribesAnotherFormat]
    {
        assert!(matches!(import_image(&file, 24, fault), Err(MemoryError::Unsupported(_))), "{fault:?}");
        assert_eq!(lock_of(&file), None);
    }
    // A handle that knows other rows than the client tells, one beyond its memory, and a pixel of another size.
    let ints = handle(28, Nothing);
    let lie = HardwareBuffer::import(library(), &image(24), 4, &[file.as_raw_fd()], &ints);
    assert!(matches!(lie, Err(MemoryError::Map(_))));
    assert!(matches!(import_image(&file, i32::MAX as u32, Nothing), Err(MemoryError::Map(_))));
    for (fault, unsupported) in [
        (DoesNotLock, false),
        (LocksNowhere, false),
        (TellsNoRows, false),
        (TellsOtherPixels, true),
        (TellsNegativeRows, true),
    ] {
        let slice = image_slice(&file, 24, fault);
        for refused in [
            slice.read(&mut [0]).unwrap_err(),
            slice.write(&[0]).unwrap_err(),
            Accessed::new(slice.mapping(), Access::Read).err().unwrap(),
        ] {
            assert_eq!(matches!(refused, MemoryError::Unsupported(_)), unsupported, "{fault:?}: {refused}");
            assert!(unsupported || matches!(refused, MemoryError::Map(_)), "{fault:?}: {refused}");
        }
        assert_eq!(lock_of(&file), Some(None), "{fault:?}");
    }
    // Rows shorter than their pixels.
    assert!(matches!(image_slice(&file, 16, Nothing).read(&mut [0]), Err(MemoryError::Unsupported(_))));
    assert!(matches!(image_slice(&file, 24, DoesNotUnlock).read(&mut [0]), Err(MemoryError::Map(_))));
}

#[test]
fn an_image_that_vanishes_is_an_error_wherever_it_was_touched() {
    let file = memfd();
    let slice = image_slice(&file, 4096, Fault::Nothing);
    slice.read(&mut [0; 60]).unwrap();
    file.set_len(8192).unwrap();
    // The last row is gone, and with it the image.
    assert!(matches!(slice.read(&mut [0; 60]), Err(MemoryError::Vanished)));
    assert!(matches!(slice.write(&[0; 8]), Err(MemoryError::Vanished)));
}
