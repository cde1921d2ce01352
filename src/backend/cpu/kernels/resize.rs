//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of channels-last images. Results are those of the plain evaluation, byte
//! for byte.

use super::elementwise::half::{narrow, widen};
use super::elementwise::{round, Element};
use super::kernel::{input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Source, Work};
use crate::memory::{Target, View};
use crate::ops::pace::touched;
use crate::ops::resize::{Blend, ResizeGeometry, LINES};
use crate::ops::scratch::{collected, Scratch};
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows and columns for which places are computed ahead.
const MAX_CELLS: usize = 1 << 14;

/// Channels of a pixel, at the most: one is made without a look whether to stop. Pixels of more are made plainly.
const MAX_CHANNELS: usize = 1 << 18;

/// A kernel for this call, if it is one of a resize.
pub(super) fn select(ty: OperationType, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    if !matches!(ty, OperationType::RESIZE_BILINEAR | OperationType::RESIZE_NEAREST_NEIGHBOR) {
        return None;
    }
    let geometry = ResizeGeometry::from_args(args).ok()?;
    if geometry.out_height.max(geometry.out_width) > MAX_CELLS || geometry.input.channels > MAX_CHANNELS {
        return None;
    }
    let nearest = ty == OperationType::RESIZE_NEAREST_NEIGHBOR;
    let places = |input: usize, output: usize| {
        let scale = geometry.scale(input, output);
        let place = |i: usize| match nearest {
            true => {
                let cell = geometry.nearest(i, input, scale);
                Blend { lower: cell, upper: cell, fraction: 0.0 }
            }
            false => geometry.blend(i, input, scale),
        };
        // It will not run: no places will do.
        let count = if source.runs() { output } else { 0 };
        collected(args.interrupt, (0..count).map(place)).ok()
    };
    let rows = places(geometry.input.height, geometry.out_height)?;
    let columns = places(geometry.input.width, geometry.out_width)?;
    let size = args.get(0).ok()?.ty().element_size()?;
    if nearest {
        return Some(Box::new(Nearest { geometry, rows, columns, size }));
    }
    match args.get(0).ok()?.ty() {
        TENSOR_FLOAT32 => bilinear(geometry, rows, columns, |x: f32| x, |x| x),
        TENSOR_FLOAT16 => bilinear(geometry, rows, columns, widen, narrow),
        TENSOR_QUANT8_ASYMM => {
            bilinear(geometry, rows, columns, |q: u8| q.into(), |x| round(within(x, 0.0, 255.0)) as u8)
        }
        TENSOR_QUANT8_ASYMM_SIGNED => {
            bilinear(geometry, rows, columns, |q: i8| q.into(), |x| round(within(x, -128.0, 127.0)) as i8)
        }
        _ => None,
    }
}

/// `x`, but no less than `least` and no more than `most`. Bounds that were put to what is rounded already, of 32 bits,
/// would keep the loop from becoming one of vectors.
#[inline(always)]
fn within(x: f32, least: f32, most: f32) -> f32 {
    let x = if x > least { x } else { least };
    if x < most {
        x
    } else {
        most
    }
}

/// Image, row and column of an output pixel.
fn place(geometry: &ResizeGeometry, pixel: usize) -> (usize, usize, usize) {
    let (row, column) = (pixel / geometry.out_width, pixel % geometry.out_width);
    (row / geometry.out_height, row % geometry.out_height, column)
}

fn bilinear<T: Element>(
    geometry: ResizeGeometry,
    rows: Scratch<Blend>,
    columns: Scratch<Blend>,
    number: impl Fn(T) -> f32 + Send + Sync + 'static,
    element: impl Fn(f32) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let level = Level::detect();
    Some(Box::new(Bilinear { level, geometry, rows, columns, number, element, elements: PhantomData }))
}

struct Bilinear<T, Number, Make> {
    level: Level,
    geometry: ResizeGeometry,
    rows: Scratch<Blend>,
    columns: Scratch<Blend>,
    number: Number,
    element: Make,
    elements: PhantomData<fn(T) -> T>,
}

impl<T, Number, Make> Kernel for Bilinear<T, Number, Make>
where
    T: Element,
    Number: Fn(T) -> f32 + Send + Sync,
    Make: Fn(f32) -> T + Send + Sync,
{
    fn name(&self) -> String {
        format!("bilinear {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, output::<T>(outputs, 0)?);
        let channels = self.geometry.input.channels;
        let count = out.len() / channels;
        let bytes = 2 * channels * size_of::<T>() + touched(size_of::<T>() * input.len(), count, LINES);
        let pixels = work.units_per_task(count, 400 * channels + 10_000, bytes);
        work.for_each_chunk(out, pixels * channels, |first, out| {
            self.level.run(BilinearLoop { resize: self, input, first: first / channels, out });
        })
    }
}

struct BilinearLoop<'a, T, Number, Make> {
    resize: &'a Bilinear<T, Number, Make>,
    input: View<'a, T>,
    /// The first pixel.
    first: usize,
    out: Target<'a, T>,
}

/// Sums that are made before they become elements: two loops for them, as one of both is not made of vectors.
const SUMS: usize = 1024;
/// Elements of a line that become numbers before they are blended, where pixels share them: an image that grows has each
/// cell in several pixels.
const SHARED: usize = 2048;

impl<T: Element, Number: Fn(T) -> f32, Make: Fn(f32) -> T> Loop for BilinearLoop<'_, T, Number, Make> {
    #[inline(always)]
    fn run(mut self) {
        let geometry = &self.resize.geometry;
        let (mut pixel, pixels) = (0, self.out.len() / geometry.input.channels);
        while pixel < pixels {
            let (image, row, column) = place(geometry, self.first + pixel);
            let count = (geometry.out_width - column).min(pixels - pixel);
            self.blend_row((image, row), column..column + count, pixel);
            pixel += count;
        }
    }
}

impl<T: Element, Number: Fn(T) -> f32, Make: Fn(f32) -> T> BilinearLoop<'_, T, Number, Make> {
    /// Some columns of an image's row, to where pixel `to` is.
    #[inline(always)]
    fn blend_row(&mut self, (image, row): (usize, usize), columns: Range<usize>, mut to: usize) {
        let Bilinear { geometry, rows, columns: places, number, element, .. } = self.resize;
        let (dims, channels, y) = (geometry.input, geometry.input.channels, rows[row]);
        let line = |row: usize| {
            let cell = (image * dims.height + row) * dims.width;
            self.input.pointer(cell * channels, dims.width * channels)
        };
        let lines = [line(y.lower), line(y.upper)];
        let mut sums = [0f32; SUMS];
        let mut shared = [[const { MaybeUninit::<f32>::uninit() }; SHARED]; 2];
        // Whole pixels, or parts of one.
        let (at_once, part) = ((SUMS / channels).max(1), channels.min(SUMS));
        for group in places[columns].chunks(at_once) {
            let (start, end) = group.iter().fold((usize::MAX, 0), |(start, end), x| {
                (start.min(x.lower).min(x.upper), end.max(x.lower + 1).max(x.upper + 1))
            });
            let len = end.saturating_sub(start) * channels;
            let is_shared = size_of::<T>() < size_of::<f32>() && len <= SHARED.min(group.len() * channels);
            if is_shared {
                for (shared, line) in shared.iter_mut().zip(lines) {
                    for (i, shared) in shared[..len].iter_mut().enumerate() {
                        // SAFETY: these cells are of a line that was asked for.
                        let element = unsafe { line.add(start * channels + i).read_unaligned() };
                        shared.write(number(element));
                    }
                }
            }
            for first in (0..channels).step_by(part) {
                let n = part.min(channels - first);
                for (x, sums) in group.iter().zip(sums.chunks_exact_mut(n)) {
                    let weights = [
                        (1.0 - y.fraction) * (1.0 - x.fraction),
                        y.fraction * (1.0 - x.fraction),
                        (1.0 - y.fraction) * x.fraction,
                        y.fraction * x.fraction,
                    ];
                    let at = |cell: usize| cell * channels + first;
                    // SAFETY: each corner is a pixel of a line that was asked for, or of the numbers that were made of
                    // it, and has so many channels from `first` on.
                    unsafe {
                        if is_shared {
                            let lines = [shared[0].as_ptr().cast(), shared[1].as_ptr().cast::<f32>()];
                            let corners = corners(lines, at(x.lower - start), at(x.upper - start));
                            blend_all(corners, weights, sums, &|x: f32| x);
                        } else {
                            blend_all(corners(lines, at(x.lower), at(x.upper)), weights, sums, number);
                        }
                    }
                }
                let count = group.len() * n;
                let out = self.out.pointer(to * channels + first, count);
                for (i, &sum) in sums[..count].iter().enumerate() {
                    // SAFETY: as many elements were asked for.
                    unsafe { out.add(i).write_unaligned(element(sum)) };
                }
            }
            to += group.len();
        }
    }
}

/// Where the corners of a pixel lie: the left ones of both lines, then the right ones.
#[inline(always)]
fn corners<T>(lines: [*const T; 2], left: usize, right: usize) -> [*const T; 4] {
    [
        lines[0].wrapping_add(left),
        lines[1].wrapping_add(left),
        lines[0].wrapping_add(right),
        lines[1].wrapping_add(right),
    ]
}

/// Sums of a pixel's channels.
///
/// # Safety
/// The corners must be valid for as many elements as there are sums.
#[inline(always)]
unsafe fn blend_all<T: Copy>(
    corners: [*const T; 4],
    weights: [f32; 4],
    sums: &mut [f32],
    number: &impl Fn(T) -> f32,
) {
    // SAFETY: by contract.
    unsafe {
        match sums.len() {
            len @ 16.. => {
                // What whole blocks leave is made by a smaller one, if that is enough.
                let rest = len % 16;
                let whole = if rest > 8 { len } else { len - rest };
                blend::<T, 16>(corners, weights, &mut sums[..whole], number);
                if whole < len {
                    let last = len - 8;
                    let corners = corners.map(|corner| corner.add(last));
                    blend::<T, 8>(corners, weights, &mut sums[last..], number);
                }
            }
            8.. => blend::<T, 8>(corners, weights, sums, number),
            4.. => blend::<T, 4>(corners, weights, sums, number),
            _ => blend::<T, 1>(corners, weights, sums, number),
        }
    }
}

/// The same, `N` at a time: vectors seldom divide their number, so the last block begins before the one
/// before it ends, and makes the same once more.
///
/// # Safety
/// The corners must be valid for as many elements as there are sums, of which there must be at least `N`.
#[inline(always)]
unsafe fn blend<T: Copy, const N: usize>(
    corners: [*const T; 4],
    weights: [f32; 4],
    sums: &mut [f32],
    number: &impl Fn(T) -> f32,
) {
    for first in (0..sums.len()).step_by(N) {
        let first = first.min(sums.len() - N);
        // Each by itself: an array of all four would be kept in memory.
        // SAFETY: by contract.
        let [a, b, c, d] = unsafe {
            [
                corners[0].add(first).cast::<[T; N]>().read_unaligned(),
                corners[1].add(first).cast::<[T; N]>().read_unaligned(),
                corners[2].add(first).cast::<[T; N]>().read_unaligned(),
                corners[3].add(first).cast::<[T; N]>().read_unaligned(),
            ]
        };
        for (i, sum) in sums[first..first + N].iter_mut().enumerate() {
            *sum = number(a[i]) * weights[0]
                + number(b[i]) * weights[1]
                + number(c[i]) * weights[2]
                + number(d[i]) * weights[3];
        }
    }
}

struct Nearest {
    geometry: ResizeGeometry,
    rows: Scratch<Blend>,
    columns: Scratch<Blend>,
    /// Bytes of an element.
    size: usize,
}

impl Kernel for Nearest {
    fn name(&self) -> String {
        "nearest".into()
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let dims = self.geometry.input;
        let pixel = dims.channels * self.size;
        let count = out.len() / pixel;
        let pixels =
            work.units_per_task(count, 50 * pixel + 10_000, 2 * pixel + touched(input.len(), count, 1));
        work.for_each_chunk(out, pixels * pixel, |first, mut out| {
            for i in 0..out.len() / pixel {
                let (image, row, column) = place(&self.geometry, first / pixel + i);
                let cell =
                    (image * dims.height + self.rows[row].lower) * dims.width + self.columns[column].lower;
                let (from, to) = (input.pointer(cell * pixel, pixel), out.pointer(i * pixel, pixel));
                // SAFETY: as many bytes of both were asked for; an output is no input.
                unsafe { libc::memcpy(to.cast(), from.cast(), pixel) };
            }
        })
    }
}
