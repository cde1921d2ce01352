//! ROI_ALIGN and ROI_POOLING of channels-last feature maps: cells of the grids over all regions are shared out among
//! threads, and a cell's channels are computed side by side. Results are those of the plain evaluation, byte for byte.

#[cfg(test)]
mod tests;

use super::elementwise::half::{narrow, widen};
use super::elementwise::{quantiser, Element};
use super::kernel::{input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{AlignedBuf, Target, View};
use crate::ops::detection::{cell, scaled, Axis, Image, Region, Scales};
use crate::ops::pace::Pace;
use crate::ops::scratch::{by_parts, Scratch};
use crate::ops::{Arg, Args, OpError, OperationType};
use crate::tensor::{OperandType::*, TensorInfo};
use std::ops::Range;

/// Channels that are computed at once.
const BLOCK: usize = 128;
/// Elements of the feature map that a cell may go back to: what takes under a millisecond.
const MOST_READS: usize = 1 << 22;
/// Channels that take about as long as one.
const NARROW: usize = 16;

/// A kernel for this call, if it is of regions.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    let layout = match ty {
        OperationType::ROI_ALIGN => 9,
        OperationType::ROI_POOLING => 7,
        _ => return None,
    };
    let channels_first = args.bool(layout).ok()?;
    let (features, out) = (args.arg(0).ok()?, args.output(0).ok()?);
    let map = Image::new(features.dims(), channels_first).ok()?;
    let grid = Image::new(&out.dims, channels_first).ok()?;
    if [map.height, map.width, map.depth, grid.height, grid.width].contains(&0) || grid.depth != map.depth {
        return None;
    }
    let (float, byte, signed) = (|x: f32| x, |q: u8| q, |q: i8| q);
    if ty == OperationType::ROI_POOLING {
        let reads = (map.height / grid.height + 2).checked_mul(map.width / grid.width + 2)?;
        let zero = features.zero_point();
        return match features.ty() {
            TENSOR_FLOAT32 => kernel(args, map, grid, reads, Pooling { empty: 0.0, of: float, make: float }),
            TENSOR_FLOAT16 => kernel(args, map, grid, reads, Pooling { empty: 0.0, of: widen, make: narrow }),
            TENSOR_QUANT8_ASYMM => {
                let empty = zero.clamp(0, 255) as u8;
                kernel(args, map, grid, reads, Pooling { empty, of: byte, make: byte })
            }
            TENSOR_QUANT8_ASYMM_SIGNED => {
                let empty = zero.clamp(-128, 127) as i8;
                kernel(args, map, grid, reads, Pooling { empty, of: signed, make: signed })
            }
            _ => None,
        };
    }
    let [down, across] = [args.i32(7).ok()?, args.i32(8).ok()?].map(|n| n.max(0) as usize);
    let samples = [down, across];
    let most =
        |samples: usize, size: usize, cells: usize| if samples > 0 { samples } else { size / cells + 1 };
    let reads = most(down, map.height, grid.height).checked_mul(most(across, map.width, grid.width))?;
    let reads = reads.checked_mul(4)?;
    let (scale, zero) = (features.scale(), features.zero_point());
    match features.ty() {
        TENSOR_FLOAT32 => kernel(args, map, grid, reads, Align { samples, of: float, make: float }),
        TENSOR_FLOAT16 => kernel(args, map, grid, reads, Align { samples, of: widen, make: narrow }),
        TENSOR_QUANT8_ASYMM => {
            let of = move |q: u8| i32::from(q).wrapping_sub(zero) as f32 * scale;
            kernel(args, map, grid, reads, Align { samples, of, make: quantiser(out)? })
        }
        TENSOR_QUANT8_ASYMM_SIGNED => {
            let of = move |q: i8| i32::from(q).wrapping_sub(zero) as f32 * scale;
            let make = quantiser(out)?;
            kernel(args, map, grid, reads, Align { samples, of, make: move |x| make(x) as i8 })
        }
        _ => None,
    }
}

/// A kernel for cells each of which reads so many elements of each channel at the most; `None` where that is too many
/// for a task.
fn kernel<T: Element>(
    args: &Args,
    map: Image,
    grid: Image,
    reads: usize,
    cells: impl Cells<T> + 'static,
) -> Option<Box<dyn Kernel>> {
    let reads = reads.checked_mul(map.depth.max(NARROW)).filter(|&reads| reads <= MOST_READS)?;
    let scales = Scales::new(args).ok()?;
    let [roi, batches] = [1, 2].map(|i| args.arg(i).ok().map(|arg| arg.info.clone()));
    let level = Level::detect();
    let types = std::marker::PhantomData;
    Some(Box::new(Regions { level, roi: roi?, batches: batches?, scales, map, grid, reads, cells, types }))
}

/// What a cell is made of.
trait Cells<T>: Send + Sync {
    fn name(&self) -> &'static str;

    /// Makes `out.len()` channels, up to [`BLOCK`], of the cell in this row and column.
    fn compute(&self, map: &Map<T>, region: &Region, at: (usize, usize), out: &mut Target<T>);
}

struct Regions<T, C> {
    level: Level,
    /// Corners and batches, which steer: they are copied before they are looked at.
    roi: TensorInfo,
    batches: TensorInfo,
    scales: Scales,
    map: Image,
    grid: Image,
    /// Elements that a cell reads at the most, or the time of so many.
    reads: usize,
    cells: C,
    types: std::marker::PhantomData<fn(T) -> T>,
}

impl<T: Element, C: Cells<T>> Kernel for Regions<T, C> {
    fn name(&self) -> String {
        format!("{} {}", self.cells.name(), self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let regions = self.regions(inputs, work)?;
        let (elements, out) = (input::<T>(inputs, 0)?, output::<T>(outputs, 0)?);
        let depth = self.grid.depth;
        let (count, each) = (out.len() / depth, self.grid.height * self.grid.width);
        if count != regions.len() * each {
            return Err(OpError::failed("there are other regions than those of the output"));
        }
        work.for_each_range(count, self.reads.saturating_mul(150) + 20_000, |cells| {
            // SAFETY: each cell is of one range.
            let out = unsafe { out.disjoint_part(cells.start * depth, cells.len() * depth) };
            self.level.run(SomeCells { kernel: self, regions: &regions, elements, cells, out });
        })
    }
}

impl<T: Element, C: Cells<T>> Regions<T, C> {
    /// A private copy of the regions, all of which are within the feature map.
    fn regions(&self, inputs: &[Option<View<u8>>], work: Work) -> Result<Scratch<Region>, OpError> {
        let copy = |i: usize| {
            let view = input::<u8>(inputs, i)?;
            let mut copy = AlignedBuf::zeroed(view.len()).ok_or(OpError::OutOfMemory(view.len()))?;
            by_parts(work.interrupt, view.len(), |part| {
                view.part(part.start, part.len()).copy_to(&mut copy[part]);
                Ok::<_, OpError>(())
            })?;
            Ok::<_, OpError>(copy)
        };
        let (corners, batches) = (copy(1)?, copy(2)?);
        let corners = [Some(Arg { info: &self.roi, data: Some(&corners[..]) })];
        let batches = Arg { info: &self.batches, data: Some(&batches[..]) };
        let args = Args { signature_index: 0, inputs: &corners, outputs: &[], interrupt: work.interrupt };
        scaled(&args.get(0)?.reals()?, &batches, self.scales, &self.map, &mut Pace::new(&args))
    }
}

/// Some cells, counted through all regions.
struct SomeCells<'a, T, C> {
    kernel: &'a Regions<T, C>,
    regions: &'a [Region],
    elements: View<'a, T>,
    cells: Range<usize>,
    out: Target<'a, T>,
}

impl<T: Element, C: Cells<T>> Loop for SomeCells<'_, T, C> {
    #[inline(always)]
    fn run(mut self) {
        let Regions { map: image, grid, cells, .. } = self.kernel;
        let each = grid.height * grid.width;
        for (nth, index) in self.cells.clone().enumerate() {
            let (region, at) = (&self.regions[index / each], index % each);
            for first in (0..grid.depth).step_by(BLOCK) {
                let count = BLOCK.min(grid.depth - first);
                let map = Map { elements: self.elements, image, grid, first };
                let mut out = self.out.part(nth * grid.depth + first, count);
                cells.compute(&map, region, (at / grid.width, at % grid.width), &mut out);
            }
        }
    }
}

/// The feature map, from one channel on.
struct Map<'a, T> {
    elements: View<'a, T>,
    image: &'a Image,
    grid: &'a Image,
    first: usize,
}

impl<T: Element> Map<'_, T> {
    /// `count` channels of a place, which is in the map.
    #[inline(always)]
    fn at(&self, batch: usize, y: usize, x: usize, count: usize) -> *const T {
        let place = (batch * self.image.height + y) * self.image.width + x;
        self.elements.pointer(place * self.image.depth + self.first, count)
    }
}

struct Align<Of, Make> {
    /// In a cell, down and across; 0 for one to each element.
    samples: [usize; 2],
    of: Of,
    make: Make,
}

impl<T: Element, Of, Make> Cells<T> for Align<Of, Make>
where
    Of: Fn(T) -> f32 + Send + Sync,
    Make: Fn(f32) -> T + Send + Sync,
{
    fn name(&self) -> &'static str {
        "regions aligned"
    }

    #[inline(always)]
    fn compute(&self, map: &Map<T>, region: &Region, (y, x): (usize, usize), out: &mut Target<T>) {
        let [down, across] = self.samples;
        let rows = Axis::new(region.top, region.bottom, map.grid.height, down, map.image.height);
        let columns = Axis::new(region.left, region.right, map.grid.width, across, map.image.width);
        let count = out.len();
        let mut sums = [0f32; BLOCK];
        for (top, bottom, down) in rows.samples(y) {
            for (left, right, across) in columns.samples(x) {
                let corner = |y: usize, x: usize| map.at(region.batch, y, x, count);
                let corners =
                    [corner(top, left), corner(top, right), corner(bottom, left), corner(bottom, right)];
                // SAFETY: as many elements were asked for of each corner.
                unsafe { add_sample(corners, (down, across), &mut sums[..count], &self.of) };
            }
        }
        let samples = rows.count as f32 * columns.count as f32;
        let to = out.pointer(0, count);
        for (i, &sum) in sums[..count].iter().enumerate() {
            // SAFETY: as many elements were asked for.
            unsafe { to.add(i).write_unaligned((self.make)(sum / samples)) };
        }
    }
}

/// Adds what lies between four corners to the sums.
///
/// # Safety
/// The corners must be valid for as many elements as there are sums.
#[inline(always)]
unsafe fn add_sample<T: Element>(
    [a, b, c, d]: [*const T; 4],
    (down, across): (f32, f32),
    sums: &mut [f32],
    of: &impl Fn(T) -> f32,
) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: by contract.
        let [a, b, c, d] = unsafe { [a, b, c, d].map(|at| of(at.add(i).read_unaligned())) };
        *sum += (1.0 - down) * ((1.0 - across) * a + across * b) + down * ((1.0 - across) * c + across * d);
    }
}

struct Pooling<V, Of, Make> {
    /// What a cell without elements gives.
    empty: V,
    of: Of,
    make: Make,
}

impl<T: Element, V, Of, Make> Cells<T> for Pooling<V, Of, Make>
where
    V: Copy + PartialOrd + Send + Sync,
    Of: Fn(T) -> V + Send + Sync,
    Make: Fn(V) -> T + Send + Sync,
{
    fn name(&self) -> &'static str {
        "regions pooled"
    }

    #[inline(always)]
    fn compute(&self, map: &Map<T>, region: &Region, (y, x): (usize, usize), out: &mut Target<T>) {
        let rows = cell(region.top, region.bottom, y, map.grid.height, map.image.height);
        let columns = cell(region.left, region.right, x, map.grid.width, map.image.width);
        let (count, mut greatest, mut is_first) = (out.len(), [self.empty; BLOCK], true);
        for y in rows {
            for x in columns.clone() {
                let from = map.at(region.batch, y, x, count);
                for (i, greatest) in greatest[..count].iter_mut().enumerate() {
                    // SAFETY: as many elements were asked for.
                    let next = (self.of)(unsafe { from.add(i).read_unaligned() });
                    *greatest = if is_first || next > *greatest { next } else { *greatest };
                }
                is_first = false;
            }
        }
        let to = out.pointer(0, count);
        for (i, &greatest) in greatest[..count].iter().enumerate() {
            // SAFETY: as many elements were asked for.
            unsafe { to.add(i).write_unaligned((self.make)(greatest)) };
        }
    }
}
