//! Filters as large as the image, of 8-bit types: a channel has one output, which is what becomes of a mean over an image.
//!
//! Four pixels of sixteen channels are a quad, which is multiplied as soon as it is made, as no other output needs it.

use super::super::conv::PACKED_INPUTS;
use super::super::gemm::Outputs;
use super::super::kernel::{input, output};
use super::super::{Kernel, Work};
use super::instructions::Instructions;
use super::layout::{CHANNELS, QUAD, ROWS};
use super::packed::Depthwise;
#[cfg(not(target_arch = "aarch64"))]
use super::quads::Base;
use super::quads::Quads;
#[cfg(target_arch = "x86_64")]
use super::quads::{Avx2, Vnni};
#[cfg(target_arch = "aarch64")]
use super::quads_neon::{Base, Dotprod};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::image::Window;
use crate::ops::OpError;

/// Blocks of channels that are summed side by side: a cache line of each pixel.
const SIDE: usize = 4;
/// Pixels of an image, at the most: only between images and blocks of channels is looked whether to stop.
const MOST_PIXELS: usize = 1 << 18;
/// What a pixel of sixteen channels takes, about.
const PICOSECONDS: usize = 500;

/// The same convolution of the pixels one below the other, where the filter covers the image once and nothing else.
pub fn column(geometry: &DepthwiseGeometry) -> Option<DepthwiseGeometry> {
    let is_whole = |window: &Window| {
        (window.kernel, window.dilation, window.output) == (window.input, 1, 1)
            && (window.pad_before, window.pad_after) == (0, 0)
    };
    let windows = [&geometry.height, &geometry.width];
    let pixels = geometry.height.input.checked_mul(geometry.width.input)?;
    if geometry.multiplier != 1 || pixels > MOST_PIXELS || !windows.into_iter().all(is_whole) {
        return None;
    }
    let mut column = *geometry;
    (column.input.height, column.input.width) = (pixels, 1);
    (column.height.input, column.height.kernel) = (pixels, pixels);
    (column.width.input, column.width.kernel) = (1, 1);
    Some(column)
}

/// A convolution of a [`column`].
pub struct Whole(pub Depthwise);

impl Kernel for Whole {
    fn name(&self) -> String {
        self.0.name()
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, mut out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let (pixels, channels, len) = (self.pixels(), self.0.geometry.input.channels, out.len());
        if len.checked_mul(pixels) != Some(input.len()) {
            return Err(OpError::failed("an image and its means do not fit"));
        }
        let to = Outputs(out.pointer(0, len));
        let (blocks, images) = (channels.div_ceil(SIDE * CHANNELS), len / channels);
        let cost = PICOSECONDS.saturating_mul(SIDE * pixels);
        let units = blocks * images;
        work.in_parts(units, work.units_per_task(units, cost, 0), |units| {
            for unit in units {
                let (image, first) = (unit / blocks, unit % blocks * SIDE * CHANNELS);
                let part = Part {
                    kernel: &self.0,
                    image: input.pointer(image * pixels * channels, pixels * channels),
                    to: to.at(image * channels),
                };
                part.make(first, channels.min(first + SIDE * CHANNELS));
            }
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.0.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

impl Whole {
    fn pixels(&self) -> usize {
        self.0.geometry.height.kernel
    }
}

/// An image, and where its outputs go.
struct Part<'a> {
    kernel: &'a Depthwise,
    image: *const u8,
    to: *mut u8,
}

impl Part<'_> {
    /// Computes channels from `first` on up to `end`, at most [`SIDE`] blocks.
    fn make(&self, first: usize, end: usize) {
        match self.kernel.instructions {
            // SAFETY: needs no instruction set.
            Instructions::Base => unsafe { self.make_with::<Base>(first, end) },
            // SAFETY: the instruction set was detected on this machine.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { self.avx2(first, end) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => unsafe { self.vnni(first, end) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Instructions::Dotprod => unsafe { self.dotprod(first, end) },
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn avx2(&self, first: usize, end: usize) {
        // SAFETY: this function's caller has detected the instruction set.
        unsafe { self.make_with::<Avx2>(first, end) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn vnni(&self, first: usize, end: usize) {
        // SAFETY: this function's caller has detected the instruction set.
        unsafe { self.make_with::<Vnni>(first, end) }
    }

    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "dotprod")]
    fn dotprod(&self, first: usize, end: usize) {
        // SAFETY: this function's caller has detected the instruction set.
        unsafe { self.make_with::<Dotprod>(first, end) }
    }

    /// # Safety
    /// The machine must have the instruction set of `Q`.
    #[inline(always)]
    unsafe fn make_with<Q: Quads>(&self, first: usize, end: usize) {
        let mut c = first;
        while c < end {
            // SAFETY: by contract; the image has as many channels.
            c += unsafe {
                match end - c {
                    64.. => self.blocks::<Q, 4>(c, CHANNELS),
                    32.. => self.blocks::<Q, 2>(c, CHANNELS),
                    left => self.blocks::<Q, 1>(c, left.min(CHANNELS)),
                }
            };
        }
    }

    /// Computes `N` blocks of `width` channels from `c` on, fewer than sixteen where it is one block, and tells how many
    /// channels that were.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`, and the image as many channels.
    #[inline(always)]
    unsafe fn blocks<Q: Quads, const N: usize>(&self, c: usize, width: usize) -> usize {
        let (kernel, channels) = (self.kernel, self.kernel.geometry.input.channels);
        let (pixels, flip) = (kernel.geometry.height.kernel, kernel.input.flip);
        let (first, quads) = (c / CHANNELS, pixels.div_ceil(ROWS));
        let weights = kernel.weights.elements::<Q::Weight>(first * quads * QUAD, N * quads * QUAD);
        let bias = kernel.bias.elements::<i32>(c, N * CHANNELS);
        // A byte that stands for 0, and weights of 1, with which the bytes are added up.
        let (beside, ones) = ([flip; CHANNELS], [Q::Weight::from(1); QUAD]);
        // SAFETY: by contract; there are as many weights, and sixteen sums of bias for each block; `beside` is as long as a
        // load.
        unsafe {
            let (mut sums, mut cells) = ([Q::load(bias); N], [Q::load([0; CHANNELS].as_ptr()); N]);
            for (i, sums) in sums.iter_mut().enumerate() {
                *sums = Q::load(bias.add(i * CHANNELS));
            }
            for quad in 0..quads {
                let left = pixels - quad * ROWS;
                let from = self.image.add(quad * ROWS * channels + c);
                for (i, (sums, cells)) in sums.iter_mut().zip(&mut cells).enumerate() {
                    let row = |row: usize| match row < left {
                        true => from.wrapping_add(row * channels + i * CHANNELS),
                        false => beside.as_ptr(),
                    };
                    let bytes = if N > 1 || width == CHANNELS {
                        Q::interleave([row(0), row(1), row(2), row(3)], flip)
                    } else {
                        // A load of sixteen bytes may leave the image.
                        let mut few = [beside; ROWS];
                        for (i, to) in few.iter_mut().enumerate() {
                            libc::memcpy(to.as_mut_ptr().cast(), row(i).cast(), width);
                        }
                        Q::interleave([0, 1, 2, 3].map(|i| few[i].as_ptr()), flip)
                    };
                    *sums = Q::add(*sums, bytes.as_ptr(), weights.add((i * quads + quad) * QUAD));
                    if kernel.weight_zero != 0 {
                        *cells = Q::add(*cells, bytes.as_ptr(), ones.as_ptr());
                    }
                }
            }
            for (i, (mut sums, cells)) in sums.into_iter().zip(cells).enumerate() {
                if kernel.weight_zero != 0 {
                    let mut less = Q::store(sums);
                    for (sum, cells) in less.iter_mut().zip(Q::store(cells)) {
                        *sum = sum.wrapping_sub(cells.wrapping_mul(kernel.weight_zero));
                    }
                    sums = Q::load(less.as_ptr());
                }
                let bytes = kernel.requantise::<Q>(first + i, sums);
                libc::memcpy(self.to.add(c + i * CHANNELS).cast(), bytes.as_ptr().cast(), width);
            }
        }
        N * width
    }
}
