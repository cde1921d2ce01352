//! Real dma-bufs, where the machine makes them.

use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const OVER_MEMORY: &str = "/dev/udmabuf";
const SYSTEM_HEAP: &str = "/dev/dma_heap/system";

/// A dma-buf of `size` bytes, whole pages, from each device; `None` where the machine does not have it.
pub fn from_devices(size: usize) -> [(&'static str, Option<OwnedFd>); 2] {
    [(OVER_MEMORY, over_memory(size)), (SYSTEM_HEAP, of_system_heap(size))]
}

fn device_request<T>(path: &str, request: u64, argument: &mut T) -> Option<i32> {
    let device = OpenOptions::new().read(true).write(true).open(path).ok()?;
    // SAFETY: the callers pass the request together with the structure that it takes.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request as _, argument as *mut T) };
    assert!(result >= 0, "{path}: {}", std::io::Error::last_os_error());
    Some(result)
}

/// A dma-buf over a memfd.
fn over_memory(size: usize) -> Option<OwnedFd> {
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    const CLOSE_ON_EXEC: u32 = 1;
    let file = File::from(memfd_create(c"pool", MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.set_len(size as u64).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    let (memfd, flags) = (file.as_raw_fd() as u32, CLOSE_ON_EXEC);
    let mut create = Create { memfd, flags, offset: 0, size: size as u64 };
    // _IOW('u', 0x42, struct udmabuf_create); linux/udmabuf.h
    let fd = device_request(OVER_MEMORY, 0x4018_7542, &mut create)?;
    // SAFETY: the request made this descriptor for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A dma-buf of the system heap.
fn of_system_heap(size: usize) -> Option<OwnedFd> {
    #[repr(C)]
    struct Allocation {
        len: u64,
        fd: u32,
        fd_flags: u32,
        heap_flags: u64,
    }
    let fd_flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
    let mut allocation = Allocation { len: size as u64, fd: 0, fd_flags, heap_flags: 0 };
    // _IOWR('H', 0, struct dma_heap_allocation_data); linux/dma-heap.h
    device_request(SYSTEM_HEAP, 0xc018_4800, &mut allocation)?;
    // SAFETY: the request made this descriptor for us.
    Some(unsafe { OwnedFd::from_raw_fd(allocation.fd as i32) })
}
