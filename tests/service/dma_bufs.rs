//! Real dma-bufs in hardware buffers, as weights, inputs, outputs and what buffers are copied from and to: the same
//! bytes as through ashmem.

use crate::common::conv::Convolutions;
use crate::common::fences::*;
use crate::common::*;
use binder::{ParcelFileDescriptor, Strong};
use nnhal::aidl::*;
use nnhal::memory::{Access, ClientSlice, Mapping, MemoryError, Pool};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const ELEMENTS: usize = 4096;
const BYTES: usize = 4 * ELEMENTS;

/// A dma-buf, mapped here too.
struct Buffer {
    fd: OwnedFd,
    bytes: ClientSlice,
}

impl Buffer {
    fn new(fd: OwnedFd) -> Self {
        let mapping = Mapping::new(fd.as_fd(), 0, BYTES, Access::ReadWrite).expect("mapped");
        Buffer { fd, bytes: ClientSlice::whole(Arc::new(mapping)) }
    }

    fn fill(&self, bytes: &[u8]) {
        self.bytes.write(bytes).expect("written");
    }

    fn read(&self) -> Vec<u8> {
        self.bytes.to_private().expect("read").to_vec()
    }

    /// The hardware buffer of `width` bytes that it is.
    fn blob(&self, width: usize) -> Memory {
        let description = HardwareBufferDescription {
            width: width as i32,
            height: 1,
            layers: 1,
            format: PixelFormat::BLOB,
            stride: width as i32,
            ..Default::default()
        };
        let fds = vec![ParcelFileDescriptor::new(self.fd.try_clone().expect("dup"))];
        Memory::HardwareBuffer(HardwareBuffer { description, handle: NativeHandle { fds, ints: vec![0] } })
    }
}

fn request_of(pools: [Memory; 2]) -> Request {
    Request {
        inputs: vec![argument(0, 0, BYTES as i64)],
        outputs: vec![argument(1, 0, BYTES as i64)],
        pools: pools.map(RequestMemoryPool::Pool).into(),
    }
}

/// Executes in every way; `output` gives what the output holds after each, and spoils it.
fn execute(
    model: &Strong<dyn IPreparedModel>,
    request: &Request,
    output: &dyn Fn() -> Vec<u8>,
) -> [Vec<u8>; 3] {
    model.executeSynchronously(request, false, -1, -1).expect("executed");
    let plain = output();
    let burst = model.configureExecutionBurst().expect("a burst");
    burst.executeSynchronously(request, &[0, 1], false, -1, -1).expect("executed");
    output();
    // With the mapping that the burst has kept.
    burst.executeSynchronously(request, &[0, 1], false, -1, -1).expect("executed");
    let kept = output();
    let fenced = model.executeFenced(request, &[], false, -1, -1, -1).expect("launched");
    assert_eq!(wait(&fenced, PATIENCE), Some(true));
    [plain, kept, output()]
}

/// Every device's dma-bufs; there have to be some.
fn buffers(device: usize) -> (&'static str, [Buffer; 3]) {
    let make = || {
        let (name, fd) = dma_buf::from_devices(BYTES).into_iter().nth(device).expect("a device");
        (name, Buffer::new(fd.unwrap_or_else(|| panic!("no {name} here"))))
    };
    (make().0, [make().1, make().1, make().1])
}

#[test]
#[ignore = "needs /dev/udmabuf and /dev/dma_heap/system, which tests/vm has"]
fn dma_bufs_give_the_same_as_ashmem() {
    let harness = Harness::new();
    let weights = floats(&(0..ELEMENTS).map(|i| (i % 97) as f32 / 8.0).collect::<Vec<_>>());
    let values = floats(&(0..ELEMENTS).map(|i| (i % 89) as f32 / 4.0).collect::<Vec<_>>());
    let shared = memfd(&weights);
    let model = harness.prepare(&sum_model(ELEMENTS as i32, ashmem(&shared, BYTES as i64)));
    let (plain, output) = request(&values, BYTES);
    model.executeSynchronously(&plain, false, -1, -1).expect("executed");
    let expected = bytes_of(&output);
    // Its kernel reads and writes the dma-bufs in place.
    let images = Convolutions { side: 16, channels: 16, ..Default::default() };
    assert_eq!(images.bytes(), BYTES);
    let (convolution, image) = (harness.prepare(&images.model()), images.image(1));
    for device in 0..2 {
        let (name, [weights_buffer, input, output]) = buffers(device);
        weights_buffer.fill(&weights);
        input.fill(&values);
        let blobs = [input.blob(BYTES), output.blob(BYTES)];
        let request = request_of(blobs);
        let model = harness.prepare(&sum_model(ELEMENTS as i32, weights_buffer.blob(BYTES)));
        let take = || {
            let bytes = output.read();
            output.fill(&[0xee; BYTES]);
            bytes
        };
        take();
        for (way, bytes) in execute(&model, &request, &take).into_iter().enumerate() {
            assert!(bytes == expected, "{name}: other bytes by way {way}");
        }
        input.fill(&floats(&image));
        for (way, bytes) in execute(&convolution, &request, &take).into_iter().enumerate() {
            assert!(bytes == Convolutions::result(&image), "{name}: other bytes in place, by way {way}");
        }
        println!("{name}: the same bytes as through ashmem");
    }
}

#[test]
#[ignore = "needs /dev/udmabuf and /dev/dma_heap/system, which tests/vm has"]
fn pools_of_dma_bufs_carry_bytes() {
    let map = |memory: &Memory| {
        let pool = Pool::new(memory)?;
        ClientSlice::new(pool.map()?, 0, pool.size())
    };
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    for device in 0..2 {
        let (name, [buffer, ..]) = buffers(device);
        let fd = Some(ParcelFileDescriptor::new(buffer.fd.try_clone().expect("dup")));
        let file = MappableFile { fd, prot: libc::PROT_READ, offset: 0, length: BYTES as i64 };
        map(&buffer.blob(BYTES)).expect("mapped").write(&bytes).expect("written");
        for memory in [buffer.blob(BYTES), Memory::MappableFile(file)] {
            let read = map(&memory).expect("mapped").to_private().expect("read");
            assert!(read[..] == bytes[..], "{name}");
        }
        assert!(matches!(map(&buffer.blob(BYTES + 1)), Err(MemoryError::Invalid(_))), "{name}");
    }
}

#[test]
#[ignore = "needs /dev/udmabuf and /dev/dma_heap/system, which tests/vm has"]
fn device_buffers_are_copied_from_and_to_dma_bufs() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[ELEMENTS as i32]));
    for device in 0..2 {
        let (name, [source, target, _]) = buffers(device);
        let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        source.fill(&bytes);
        target.fill(&[0; BYTES]);
        let parcel = IPreparedModelParcel { preparedModel: Some(model.clone()) };
        let role = BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 };
        let buffer = harness.device().allocate(&BufferDesc::default(), &[parcel], &[role], &[]);
        let buffer = buffer.expect("allocated").buffer.expect("a buffer");
        buffer.copyFrom(&source.blob(BYTES), &[]).expect("copied");
        buffer.copyTo(&target.blob(BYTES)).expect("copied");
        assert!(target.read() == bytes, "{name}");
        let lie = buffer.copyTo(&target.blob(BYTES + 4096));
        assert_eq!(status(&lie), ErrorStatus::INVALID_ARGUMENT, "{name}: larger than it is");
    }
}
