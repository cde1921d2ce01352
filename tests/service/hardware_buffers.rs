//! Hardware buffers where there is no libnativewindow: what each call says of those that are no plain bytes, or whose handle
//! is nonsense.

use crate::common::*;
use nnhal::aidl::*;
use std::fs::File;

const BYTES: i32 = 4096;

fn hardware_buffer(files: &[&File], format: PixelFormat) -> Memory {
    let description = HardwareBufferDescription {
        width: BYTES,
        height: 1,
        layers: 1,
        format,
        usage: BufferUsage(0x33),
        stride: BYTES,
    };
    let fds = files.iter().filter_map(|file| descriptor(file)).collect();
    Memory::HardwareBuffer(HardwareBuffer { description, handle: NativeHandle { fds, ints: vec![] } })
}

fn request_with(pool: Memory, output: &File) -> Request {
    Request {
        inputs: vec![argument(0, 0, BYTES.into())],
        outputs: vec![argument(1, 0, BYTES.into())],
        pools: vec![RequestMemoryPool::Pool(pool), RequestMemoryPool::Pool(ashmem(output, BYTES.into()))],
    }
}

/// Every way in refuses what `pool` gives with `expected`, for the reason `why`.
#[track_caller]
fn assert_refused_everywhere(harness: &Harness, pool: &dyn Fn() -> Memory, expected: ErrorStatus, why: &str) {
    let output = memfd(&[0; BYTES as usize]);
    let good = harness.prepare(&sum_model(BYTES / 4, ashmem(&memfd(&[0; BYTES as usize]), BYTES.into())));
    assert_refused(harness.device().getSupportedOperations(&sum_model(BYTES / 4, pool())), expected, why);
    let (launch, (told, prepared)) = harness.connection.launch(&sum_model(BYTES / 4, pool()));
    assert_refused(launch, expected, why);
    assert_eq!((told, prepared.is_none()), (expected, true));
    let request = request_with(pool(), &output);
    assert_refused(good.executeSynchronously(&request, false, -1, -1), expected, why);
    assert_refused(good.executeFenced(&request, &[], false, -1, -1, -1), expected, why);
}

#[test]
fn images_are_refused_as_what_cannot_be_mapped() {
    let (harness, file) = (Harness::new(), memfd(&[0; BYTES as usize]));
    let image = || hardware_buffer(&[&file], PixelFormat::RGBA_8888);
    let model = harness.prepare(&floor_model(&[BYTES]));
    let output = memfd(&[0; 4 * BYTES as usize]);
    let request = Request {
        inputs: vec![argument(0, 0, 0)],
        outputs: vec![argument(1, 0, 4 * i64::from(BYTES))],
        pools: vec![
            RequestMemoryPool::Pool(image()),
            RequestMemoryPool::Pool(ashmem(&output, 4 * i64::from(BYTES))),
        ],
    };
    let (failure, why) = (ErrorStatus::GENERAL_FAILURE, "need libnativewindow");
    assert_refused(model.executeSynchronously(&request, false, -1, -1), failure, why);
    assert_refused(model.executeFenced(&request, &[], false, -1, -1, -1), failure, why);
    let planes = || hardware_buffer(&[&file], PixelFormat::YCBCR_420_888);
    let request = request_with(planes(), &output);
    assert_refused(model.executeSynchronously(&request, false, -1, -1), failure, "in one plane");
}

#[test]
fn handles_that_mean_nothing_are_found_before_anything_is_promised() {
    let harness = Harness::new();
    let none = || hardware_buffer(&[], PixelFormat::BLOB);
    let invalid = ErrorStatus::INVALID_ARGUMENT;
    let undecoded = ErrorStatus::GENERAL_FAILURE;
    assert_refused_everywhere(&harness, &none, undecoded, "a hardware buffer without a handle");
    let (pipe, _writer) = nix::unistd::pipe().expect("a pipe");
    let pipe = File::from(pipe);
    let nonsense = || hardware_buffer(&[&pipe], PixelFormat::BLOB);
    assert_refused_everywhere(&harness, &nonsense, undecoded, "has no size");
    let small = memfd(&[0; 8]);
    let short = || hardware_buffer(&[&small], PixelFormat::BLOB);
    assert_refused_everywhere(&harness, &short, invalid, "its file has only 8");
}

#[test]
fn blobs_carry_constants_and_arguments() {
    let harness = Harness::new();
    let file = |value: f32| memfd(&floats(&[value; BYTES as usize / 4]));
    let (constant, input, output) = (file(2.0), file(0.5), file(0.0));
    let blob = |file: &File| hardware_buffer(&[file], PixelFormat::BLOB);
    let prepared = harness.prepare(&sum_model(BYTES / 4, blob(&constant)));
    let request = request_with(blob(&input), &output);
    prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output), bytes_of(&file(2.5)));
}
