//! Hardware buffers that are no BLOBs, over files of the test's own.

use super::native_window::{handle, symbol, Fault};
use super::*;
use std::os::unix::fs::FileExt;
use std::sync::Once;

/// What lies between rows, and where nothing was written yet.
pub const UNTOUCHED: u8 = 0xee;

/// A driver of the test's own in a process that has a libnativewindow from now on.
pub fn driver() -> Harness {
    static STAND_IN: Once = Once::new();
    // SAFETY: the functions are of their names' types, and keep to what the headers say unless a test wants a fault.
    STAND_IN.call_once(|| assert!(unsafe { nnhal::memory::stand_in_for_native_window(symbol) }));
    Harness::with_data(None)
}

/// An image, as its client has it.
pub struct Image {
    pub file: File,
    pub description: HardwareBufferDescription,
    pub pixel: usize,
    /// Bytes from one row to the next.
    pub row: usize,
    pub fault: Fault,
}

impl Image {
    /// `height` rows of `width` pixels of these bytes, every `row` bytes.
    pub fn new(format: PixelFormat, pixel: usize, [width, height]: [i32; 2], row: usize) -> Self {
        let (usage, stride) = (BufferUsage(0x33), (row / pixel) as i32);
        let description = HardwareBufferDescription { width, height, layers: 1, format, usage, stride };
        let file = memfd(&vec![UNTOUCHED; row * height as usize]);
        Image { file, description, pixel, row, fault: Fault::Nothing }
    }

    /// One of floats: each is a pixel.
    pub fn floats(width: usize, height: usize, row: usize) -> Self {
        Image::new(PixelFormat::RGBA_8888, 4, [width as i32, height as i32], row)
    }

    pub fn memory(&self) -> Memory {
        let handle = NativeHandle {
            fds: descriptor(&self.file).into_iter().collect(),
            ints: handle(self.row as i32, self.fault),
        };
        let description = HardwareBufferDescription { ..self.description };
        Memory::HardwareBuffer(HardwareBuffer { description, handle })
    }

    pub fn pool(&self) -> RequestMemoryPool {
        RequestMemoryPool::Pool(self.memory())
    }

    pub fn row_len(&self) -> usize {
        self.description.width as usize * self.pixel
    }

    pub fn with(self, pixels: &[u8]) -> Self {
        self.fill(pixels);
        self
    }

    pub fn fill(&self, pixels: &[u8]) {
        for (i, row) in pixels.chunks(self.row_len()).enumerate() {
            self.file.write_all_at(row, (i * self.row) as u64).expect("written");
        }
    }

    /// Checks that it holds these pixels, and that nothing else was written.
    #[track_caller]
    pub fn assert_holds(&self, pixels: &[u8], what: &str) {
        for (i, row) in bytes_of(&self.file).chunks(self.row).enumerate() {
            let (ours, padding) = row.split_at(self.row_len());
            assert!(ours == &pixels[i * self.row_len()..][..self.row_len()], "{what}: row {i}");
            assert!(padding.iter().all(|&byte| byte == UNTOUCHED), "{what}: after row {i}");
        }
    }
}
