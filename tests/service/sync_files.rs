//! Real sync files as the fences that executions wait for. The kernel's vgem driver makes them: it has no device, and
//! its fences are signalled by whoever made them. Only sw_sync, which few kernels have, makes some that fail.

use crate::common::fences::wait;
use crate::common::*;
use binder::ParcelFileDescriptor;
use nnhal::aidl::*;
use nnhal::backend::boottime_ns;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const CARD: &str = "/dev/dri/card0";
/// Of a buffer of the driver's: 16 rows of 64 pixels.
const BYTES: usize = 16 * 64 * 4;

fn ask<T>(file: &impl AsRawFd, request: u64, argument: &mut T) {
    // SAFETY: the callers pass the request together with the structure that it takes.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument as *mut T) };
    assert!(result >= 0, "request {request:#x}: {}", std::io::Error::last_os_error());
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the callers pass what a request has just made for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A fence that is not signalled yet.
struct Pending {
    card: File,
    number: u32,
    buffer: OwnedFd,
    sync_file: OwnedFd,
}

impl Pending {
    /// A buffer of the driver's, a fence on it, and the sync file of that fence.
    fn new() -> Self {
        let card = OpenOptions::new().read(true).write(true).open(CARD);
        let card = card.unwrap_or_else(|why| panic!("{CARD}: {why}"));
        // drm_mode_create_dumb: height, width, bits per pixel, flags; handle, pitch and size (64 bits) come back
        let mut buffer = [16u32, 64, 32, 0, 0, 0, 0, 0];
        ask(&card, 0xc020_64b2, &mut buffer);
        let handle = buffer[4];
        // drm_prime_handle: handle, flags, file descriptor
        let mut export = [handle, libc::O_CLOEXEC as u32, 0];
        ask(&card, 0xc00c_642d, &mut export);
        let buffer = owned(export[2] as i32);
        // drm_vgem_fence_attach: handle, flags (1 is a fence for writing), number, padding
        let mut fence = [handle, 1, 0, 0];
        ask(&card, 0xc010_6441, &mut fence);
        // dma_buf_export_sync_file: flags (3 is for reading and writing), file descriptor
        let mut export = [3u32, 0];
        ask(&buffer, 0xc008_6202, &mut export);
        Pending { card, number: fence[2], buffer, sync_file: owned(export[1] as i32) }
    }

    fn descriptor(&self) -> ParcelFileDescriptor {
        ParcelFileDescriptor::new(self.sync_file.try_clone().expect("dup"))
    }

    /// The buffer, which the driver is busy with until the fence is signalled: zeroes, to be read.
    fn memory(&self) -> Memory {
        let fd = Some(ParcelFileDescriptor::new(self.buffer.try_clone().expect("dup")));
        Memory::MappableFile(MappableFile { fd, prot: libc::PROT_READ, offset: 0, length: BYTES as i64 })
    }

    fn signal(&self) {
        // drm_vgem_fence_signal: number, flags
        ask(&self.card, 0x4008_6442, &mut [self.number, 0]);
    }
}

/// Where sync files come from that are signalled as its count goes up, and fail when it goes away.
struct Timeline(File);

impl Timeline {
    const PATH: &str = "/sys/kernel/debug/sync/sw_sync";

    fn new() -> Self {
        let timeline = OpenOptions::new().read(true).write(true).open(Self::PATH);
        Timeline(timeline.unwrap_or_else(|why| panic!("{}: {why}", Self::PATH)))
    }

    /// A sync file that is signalled once the count is `count`.
    fn fence(&self, count: u32) -> ParcelFileDescriptor {
        // sw_sync_create_fence_data: count, name (32 bytes), file descriptor
        let mut fence = [0u32; 10];
        fence[0] = count;
        ask(&self.0, 0xc028_5700, &mut fence);
        ParcelFileDescriptor::new(owned(fence[9] as i32))
    }

    fn count_on(&self) {
        ask(&self.0, 0x4004_5701, &mut 1u32);
    }
}

#[test]
#[ignore = "needs the kernel's sw_sync at its place in debugfs, as tests/vm has it under User-Mode Linux"]
fn sync_files_in_their_error_state_fail_executions() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let timeline = Timeline::new();
    let fences = [timeline.fence(1), timeline.fence(2)];
    let result = model.executeFenced(&request, &fences, false, -1, -1, -1).expect("launched");
    timeline.count_on();
    assert_eq!(wait(&result, Duration::from_millis(300)), None, "one is not signalled");
    drop(timeline);
    assert_eq!(wait(&result, PATIENCE), Some(false));
    assert_eq!(bytes_of(&output), [0xee; 12]);
    // One that failed before it is waited for.
    let answer = model.executeFenced(&request, &fences, false, -1, -1, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "fence 1 is in its error state");
    // One that was signalled before its timeline went away has not failed.
    let result = model.executeFenced(&request, &fences[..1], false, -1, -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(true));
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
}

#[test]
#[ignore = "needs /dev/dri/card0 of the vgem driver, which tests/vm has"]
fn sync_files_are_waited_for() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let (first, second) = (Pending::new(), Pending::new());
    let fences = [first.descriptor(), second.descriptor()];
    let pending = |result| wait(result, Duration::from_millis(300)).is_none();
    let result = model.executeFenced(&request, &fences, false, -1, -1, -1).expect("launched");
    assert!(pending(&result), "neither is signalled");
    second.signal();
    assert!(pending(&result), "one is not signalled");
    assert_eq!(bytes_of(&output), [0xee; 12]);
    first.signal();
    assert_eq!(wait(&result, PATIENCE), Some(true));
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
    // Signalled before it is waited for.
    let result = model.executeFenced(&request, &fences, false, -1, -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(true));
}

#[test]
#[ignore = "needs /dev/dri/card0 of the vgem driver, which tests/vm has"]
fn a_device_that_is_busy_with_memory_is_waited_for_as_long_as_a_client_may_wait() {
    const ELEMENTS: usize = BYTES / 4;
    let (harness, device) = (Harness::new(), Pending::new());
    let model = harness.prepare(&floor_model(&[ELEMENTS as i32]));
    let (mut request, output) = request(&[], BYTES);
    request.inputs = vec![argument(0, 0, BYTES as i64)];
    request.pools[0] = RequestMemoryPool::Pool(device.memory());
    let soon = || boottime_ns() as i64 + Duration::from_millis(300).as_nanos() as i64;
    let missed = |status| {
        [ErrorStatus::MISSED_DEADLINE_TRANSIENT, ErrorStatus::MISSED_DEADLINE_PERSISTENT].contains(&status)
    };
    assert!(missed(status(&model.executeSynchronously(&request, false, soon(), -1))));
    assert_eq!(bytes_of(&output), [0xee; BYTES]);
    let sum = sum_model(ELEMENTS as i32, device.memory());
    let (callback, verdict) = callback();
    let prepare = harness.device().prepareModel(
        &sum,
        ExecutionPreference::FAST_SINGLE_ANSWER,
        Priority::MEDIUM,
        soon(),
        &[],
        &[],
        &[0; 32],
        &callback,
    );
    prepare.expect("asked");
    assert!(missed(verdict.recv_timeout(PATIENCE).expect("a verdict").0));
    device.signal();
    model.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output), [0; BYTES]);
    harness.prepare(&sum);
}
