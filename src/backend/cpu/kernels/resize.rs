//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of channels-last images. Results are those of the plain evaluation, byte
//! for byte.

use super::elementwise::{round, Element};
use super::vector::{Level, Loop};
use super::{input, output, Kernel, Source, Work};
use crate::memory::{Target, View};
use crate::ops::resize::{Blend, ResizeGeometry};
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType::*;
use std::marker::PhantomData;

/// Rows and columns for which places are computed ahead.
const MAX_CELLS: usize = 1 << 14;

/// A kernel for this call, if it is one of a resize.
pub(super) fn select(ty: OperationType, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    if !matches!(ty, OperationType::RESIZE_BILINEAR | OperationType::RESIZE_NEAREST_NEIGHBOR) {
        return None;
    }
    let geometry = ResizeGeometry::from_args(args).ok()?;
    if geometry.nchw || geometry.out_height.max(geometry.out_width) > MAX_CELLS {
        return None;
    }
    let nearest = ty == OperationType::RESIZE_NEAREST_NEIGHBOR;
    let places = |input: usize, output: usize| -> Vec<Blend> {
        let scale = geometry.scale(input, output);
        let place = |i: usize| match nearest {
            true => {
                let cell = geometry.nearest(i, input, scale);
                Blend { lower: cell, upper: cell, fraction: 0.0 }
            }
            false => geometry.blend(i, input, scale),
        };
        // It will not run: no places will do.
        let count = if matches!(source, Source::Later) { 0 } else { output };
        (0..count).map(place).collect()
    };
    let rows = places(geometry.input.height, geometry.out_height);
    let columns = places(geometry.input.width, geometry.out_width);
    let size = args.get(0).ok()?.ty().element_size()?;
    if nearest {
        return Some(Box::new(Nearest { geometry, rows, columns, size }));
    }
    match args.get(0).ok()?.ty() {
        TENSOR_FLOAT32 => bilinear(geometry, rows, columns, |x: f32| x, |x| x),
        TENSOR_QUANT8_ASYMM => {
            bilinear(geometry, rows, columns, |q: u8| q.into(), |x| round(x).clamp(0, 255) as u8)
        }
        TENSOR_QUANT8_ASYMM_SIGNED => {
            bilinear(geometry, rows, columns, |q: i8| q.into(), |x| round(x).clamp(-128, 127) as i8)
        }
        _ => None,
    }
}

/// Image, row and column of an output pixel.
fn place(geometry: &ResizeGeometry, pixel: usize) -> (usize, usize, usize) {
    let (row, column) = (pixel / geometry.out_width, pixel % geometry.out_width);
    (row / geometry.out_height, row % geometry.out_height, column)
}

fn bilinear<T: Element>(
    geometry: ResizeGeometry,
    rows: Vec<Blend>,
    columns: Vec<Blend>,
    number: impl Fn(T) -> f32 + Send + Sync + 'static,
    element: impl Fn(f32) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let level = Level::detect();
    Some(Box::new(Bilinear { level, geometry, rows, columns, number, element, elements: PhantomData }))
}

struct Bilinear<T, Number, Make> {
    level: Level,
    geometry: ResizeGeometry,
    rows: Vec<Blend>,
    columns: Vec<Blend>,
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
        let pixels = work.units_per_task(out.len() / channels, 400 * channels + 10_000);
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

impl<T: Element, Number: Fn(T) -> f32, Make: Fn(f32) -> T> Loop for BilinearLoop<'_, T, Number, Make> {
    #[inline(always)]
    fn run(mut self) {
        let Bilinear { geometry, rows, columns, number, element, .. } = self.resize;
        let dims = geometry.input;
        let (channels, len) = (dims.channels, self.out.len());
        let mut sums = [0f32; SUMS];
        let mut done = 0;
        while done < len {
            let count = SUMS.min(len - done);
            let mut made = 0;
            while made < count {
                let (pixel, channel) = ((done + made) / channels, (done + made) % channels);
                let (image, row, column) = place(geometry, self.first + pixel);
                let (y, x) = (rows[row], columns[column]);
                let n = (channels - channel).min(count - made);
                let at = |row: usize, column: usize| {
                    let cell = (image * dims.height + row) * dims.width + column;
                    self.input.pointer(cell * channels + channel, n)
                };
                let corners =
                    [at(y.lower, x.lower), at(y.upper, x.lower), at(y.lower, x.upper), at(y.upper, x.upper)];
                let weights = [
                    (1.0 - y.fraction) * (1.0 - x.fraction),
                    y.fraction * (1.0 - x.fraction),
                    (1.0 - y.fraction) * x.fraction,
                    y.fraction * x.fraction,
                ];
                let to = &mut sums[made..made + n];
                // SAFETY: so many channels of each corner were asked for.
                unsafe {
                    match n {
                        16.. => blend::<T, 16>(corners, weights, to, number),
                        8.. => blend::<T, 8>(corners, weights, to, number),
                        4.. => blend::<T, 4>(corners, weights, to, number),
                        _ => blend::<T, 1>(corners, weights, to, number),
                    }
                }
                made += n;
            }
            let to = self.out.pointer(done, count);
            for (i, &sum) in sums[..count].iter().enumerate() {
                // SAFETY: as many elements were asked for.
                unsafe { to.add(i).write_unaligned(element(sum)) };
            }
            done += count;
        }
    }
}

/// Sums of a pixel's channels, `N` at a time: vectors seldom divide their number, so the last block begins before the one
/// before it ends, and makes the same once more.
///
/// # Safety
/// The corners must be valid for as many elements as there are sums, of which there must be at least `N`.
#[inline(always)]
unsafe fn blend<T: Element, const N: usize>(
    corners: [*const T; 4],
    weights: [f32; 4],
    sums: &mut [f32],
    number: &impl Fn(T) -> f32,
) {
    for first in (0..sums.len()).step_by(N) {
        let first = first.min(sums.len() - N);
        // SAFETY: by contract.
        let parts = unsafe { corners.map(|corner| corner.add(first).cast::<[T; N]>().read_unaligned()) };
        for (i, sum) in sums[first..first + N].iter_mut().enumerate() {
            let part = |corner: usize| number(parts[corner][i]) * weights[corner];
            *sum = part(0) + part(1) + part(2) + part(3);
        }
    }
}

struct Nearest {
    geometry: ResizeGeometry,
    rows: Vec<Blend>,
    columns: Vec<Blend>,
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
        let pixels = work.units_per_task(out.len() / pixel, 50 * pixel + 10_000);
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
