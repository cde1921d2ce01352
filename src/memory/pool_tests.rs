//! Pools of every kind, with every permission; of real dma-bufs there are tests in tests/service/dma_bufs.rs.

use super::Pool;
use crate::aidl;
use crate::memory::{ClientSlice, Mapping, MemoryError};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

const SIZE: usize = 8192;

fn memfd(flags: MFdFlags) -> File {
    let file = File::from(memfd_create(c"pool", flags).unwrap());
    file.set_len(SIZE as u64).unwrap();
    file
}

/// The same file, opened once more with other permissions.
fn reopened(file: &File, read: bool, write: bool) -> File {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(read).write(write).open(path).unwrap()
}

fn ashmem(fd: impl Into<OwnedFd>) -> aidl::Memory {
    let fd = Some(binder::ParcelFileDescriptor::new(fd));
    aidl::Memory::Ashmem(aidl::Ashmem { fd, size: SIZE as i64 })
}

fn mappable(fd: impl Into<OwnedFd>, prot: i32, offset: i64) -> aidl::Memory {
    let fd = Some(binder::ParcelFileDescriptor::new(fd));
    aidl::Memory::MappableFile(aidl::MappableFile { fd, prot, offset, length: SIZE as i64 - offset })
}

fn hardware_buffer(fds: Vec<OwnedFd>, format: aidl::PixelFormat, width: usize) -> aidl::Memory {
    let fds: Vec<_> = fds.into_iter().map(binder::ParcelFileDescriptor::new).collect();
    let description = aidl::HardwareBufferDescription {
        width: width as i32,
        height: 1,
        layers: 1,
        format,
        stride: width as i32,
        ..Default::default()
    };
    let handle = aidl::NativeHandle { fds, ints: vec![0] };
    aidl::Memory::HardwareBuffer(aidl::HardwareBuffer { description, handle })
}

fn slice(memory: &aidl::Memory) -> Result<ClientSlice, MemoryError> {
    let pool = Pool::new(memory)?;
    ClientSlice::new(pool.map()?, 0, pool.size())
}

fn refused<T: std::fmt::Debug>(result: Result<T, MemoryError>) {
    assert!(matches!(result, Err(MemoryError::Access(_))), "{result:?}");
}

/// Writes through one pool and reads through another.
fn round_trip(write: &aidl::Memory, read: &aidl::Memory) {
    let (write, read) = (slice(write).unwrap(), slice(read).unwrap());
    let bytes: Vec<u8> = (0..write.len()).map(|i| (i * 7) as u8).collect();
    write.write(&bytes).unwrap();
    let mut seen = vec![0; bytes.len()];
    read.read(&mut seen).unwrap();
    assert!(seen == bytes);
}

#[test]
fn shared_memory_of_each_kind_carries_bytes() {
    let file = memfd(MFdFlags::empty());
    let copy = || file.try_clone().unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    round_trip(&ashmem(copy()), &mappable(copy(), libc::PROT_READ, 0));
    round_trip(&mappable(copy(), both, 0), &ashmem(copy()));
    round_trip(&mappable(copy(), both, 100), &mappable(copy(), libc::PROT_READ, 100));
    // Hardware buffers over plain shared memory exist where there is no graphics driver.
    let blob = hardware_buffer(vec![copy().into()], aidl::PixelFormat::BLOB, SIZE);
    round_trip(&blob, &ashmem(copy()));
}

#[test]
fn permissions_are_what_the_pool_and_its_file_allow() {
    let file = memfd(MFdFlags::empty());
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    let bytes = &mut [0; 16];
    let reads = slice(&mappable(file.try_clone().unwrap(), read, 0)).unwrap();
    reads.read(bytes).unwrap();
    refused(reads.write(bytes));
    let writes = slice(&mappable(file.try_clone().unwrap(), write, 0)).unwrap();
    writes.write(bytes).unwrap();
    refused(writes.read(bytes));
    // A pool that promises what its descriptor does not allow.
    refused(slice(&mappable(reopened(&file, true, false), read | write, 0)));
    refused(slice(&mappable(reopened(&file, true, false), write, 0)));
    refused(slice(&mappable(reopened(&file, false, true), read, 0)));
    refused(slice(&ashmem(reopened(&file, false, true))));
    // Ashmem promises nothing, so what can be read is read.
    let read_only = slice(&ashmem(reopened(&file, true, false))).unwrap();
    read_only.read(bytes).unwrap();
    refused(read_only.write(bytes));
    for prot in [0, libc::PROT_EXEC, read | libc::PROT_EXEC, -1] {
        let pool = mappable(file.try_clone().unwrap(), prot, 0);
        assert!(matches!(Pool::new(&pool), Err(MemoryError::Invalid(_))), "{prot}");
    }
}

#[test]
fn sealed_memory_can_be_read() {
    let file = memfd(MFdFlags::MFD_ALLOW_SEALING);
    file.write_all_at(&[5; 16], 0).unwrap();
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    assert!(crate::memory::file::cannot_shrink(file.as_fd()));
    assert!(!crate::memory::file::cannot_shrink(memfd(MFdFlags::empty()).as_fd()));
    for memory in [ashmem(file.try_clone().unwrap()), mappable(file, libc::PROT_READ, 0)] {
        let slice = slice(&memory).unwrap();
        let mut bytes = [0; 16];
        slice.read(&mut bytes).unwrap();
        assert_eq!(bytes, [5; 16]);
        refused(slice.write(&bytes));
    }
}

#[test]
fn huge_pages_are_refused() {
    let fd =
        memfd_create(c"huge", MFdFlags::MFD_HUGETLB).expect("a kernel with huge pages (CONFIG_HUGETLBFS)");
    let file = File::from(fd);
    file.set_len(1 << 30).unwrap();
    assert!(matches!(slice(&ashmem(file)), Err(MemoryError::Unsupported(_))));
}

#[test]
fn a_hardware_buffer_has_a_handle_and_a_size() {
    let fd = || vec![OwnedFd::from(memfd(MFdFlags::empty()))];
    let unsupported = |memory: aidl::Memory| matches!(Pool::new(&memory), Err(MemoryError::Unsupported(_)));
    let invalid = |memory: aidl::Memory| matches!(Pool::new(&memory), Err(MemoryError::Invalid(_)));
    let image = hardware_buffer(fd(), aidl::PixelFormat::RGBA_8888, SIZE / 4);
    assert_eq!(Pool::new(&image).unwrap().size(), SIZE);
    assert!(matches!(slice(&image), Err(MemoryError::Unsupported(_))), "there is no libnativewindow");
    let handle_of_numbers = hardware_buffer(vec![], aidl::PixelFormat::BLOB, SIZE);
    assert!(matches!(slice(&handle_of_numbers), Err(MemoryError::Unsupported(_))));
    assert!(invalid(hardware_buffer(fd(), aidl::PixelFormat::BLOB, 0)));
    assert!(unsupported(aidl::Memory::HardwareBuffer(Default::default())));
    let mut tall = hardware_buffer(fd(), aidl::PixelFormat::BLOB, SIZE);
    if let aidl::Memory::HardwareBuffer(buffer) = &mut tall {
        buffer.description.height = 2;
    }
    assert!(invalid(tall));
    // The width is a claim, and the file knows better.
    let lie = hardware_buffer(fd(), aidl::PixelFormat::BLOB, SIZE + 1);
    assert!(matches!(slice(&lie), Err(MemoryError::Invalid(_))));
}

#[test]
fn hardware_buffers_are_mapped_by_their_library_where_there_is_one() {
    let library = || Some(crate::memory::hardware_buffer::tests::library());
    let file = memfd(MFdFlags::empty());
    let blob = |number, usage| {
        let mut memory =
            hardware_buffer(vec![file.try_clone().unwrap().into()], aidl::PixelFormat::BLOB, SIZE);
        if let aidl::Memory::HardwareBuffer(buffer) = &mut memory {
            buffer.handle.ints = vec![number];
            buffer.description.usage = aidl::BufferUsage(usage);
        }
        memory
    };
    let known = blob(7, 0x33);
    let pool = Pool::new(&known).unwrap();
    ClientSlice::whole(pool.map_with(library(), Mapping::new).unwrap()).write(&[5; 16]).unwrap();
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [5; 16]);
    let (again, other) = (blob(7, 0x33), blob(7, 0x34));
    assert_eq!(pool.identity(), Pool::new(&known).unwrap().identity());
    // As it comes with every request: duplicates of the same open files.
    assert!(pool.identity().is_some() && pool.identity() == Pool::new(&again).unwrap().identity());
    assert_ne!(pool.identity(), Pool::new(&other).unwrap().identity());
    let unknown = blob(8, 0x33);
    assert!(matches!(
        Pool::new(&unknown).unwrap().map_with(library(), Mapping::new),
        Err(MemoryError::Map(_))
    ));
    let of_the_gpu = blob(7, 0x300);
    assert!(matches!(
        Pool::new(&of_the_gpu).unwrap().map_with(library(), Mapping::new),
        Err(MemoryError::Unsupported(_))
    ));
}

#[test]
fn an_image_is_as_large_as_its_pixels_and_no_plain_file() {
    use aidl::PixelFormat as F;
    let file = memfd(MFdFlags::empty());
    let image = |width, height, layers, format| {
        let mut memory = hardware_buffer(vec![file.try_clone().unwrap().into()], format, 1);
        if let aidl::Memory::HardwareBuffer(buffer) = &mut memory {
            let description = &mut buffer.description;
            (description.width, description.height, description.layers) = (width, height, layers);
        }
        memory
    };
    let size = |memory: &aidl::Memory| Pool::new(memory).map(|pool| pool.size()).ok();
    let (max, wide) = (i32::MAX, 1 << 16);
    for (width, height, format, expected) in [
        (3, 2, F::R_8, Some(6)),
        (3, 2, F::RGB_888, Some(18)),
        (3, 2, F::RGBA_FP16, Some(48)),
        (wide, wide - 1, F::R_8, usize::try_from((1u64 << 32) - (1 << 16)).ok()),
        (wide, wide, F::R_8, None),
        (max, max, F::RGBA_FP16, None),
        (-max, -max, F::R_8, None),
        (-1, -1, F::R_8, None),
        (1, 0, F::R_8, None),
        (3, 2, F::YV12, None),
        (3, 2, F::STENCIL_8, None),
    ] {
        assert_eq!(size(&image(width, height, 1, format)), expected, "{width} x {height}, {format:?}");
    }
    assert!(size(&image(3, 2, 2, F::R_8)).is_none() && size(&image(3, 2, -1, F::R_8)).is_none());
    let blob = hardware_buffer(vec![file.try_clone().unwrap().into()], F::BLOB, SIZE);
    for (memory, is_image) in
        [(image(3, 2, 1, F::R_8), true), (blob, false), (ashmem(file.try_clone().unwrap()), false)]
    {
        let pool = Pool::new(&memory).unwrap();
        assert_eq!((pool.is_image(), Pool::describes_image(&memory)), (is_image, is_image));
        assert_eq!(pool.client_memory().is_none(), is_image, "no device is told of rows that nobody knows");
    }
    let memories = [(3, 2, F::R_8), (3, 2, F::R_8), (2, 3, F::R_8), (1, 2, F::RGB_888)]
        .map(|(width, height, format)| image(width, height, 1, format));
    let [usual, again, turned, of_colours] =
        memories.each_ref().map(|memory| Pool::new(memory).unwrap().identity().unwrap());
    assert_eq!(usual, again);
    for other in [turned, of_colours] {
        assert_ne!(usual, other, "as large, and yet another");
    }
}
