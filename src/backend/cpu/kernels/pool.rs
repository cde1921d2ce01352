//! AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D: windows folded for channels side by side. Results are those of the plain
//! evaluation, byte for byte.

use super::elementwise::half::{narrow, widen};
use super::elementwise::Element;
use super::kernel::{input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::pace::touched;
use crate::ops::pool::PoolGeometry;
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::requant::{within, Activation};
use crate::tensor::{OperandType::*, TensorInfo};
use std::marker::PhantomData;

/// Elements that are folded side by side: a vector of bytes. Where a pixel has fewer channels, those of several windows.
const BLOCK: usize = 64;
/// So few channels of one window are folded one after the other: a vector that was just put together from less cannot be loaded
/// before that is in the cache, which takes some 10 ns for each cell.
const FEW: usize = 4;
/// Cells of a window that take well under a millisecond.
const MAX_CELLS: usize = 1 << 15;
/// Picoseconds that it takes to fold a block of a cell; to put one together first, where a window's channels do not fill it;
/// and to begin with a block.
const FOLDED: usize = 50 * BLOCK;
const GATHERED: usize = 15_000;
const BEGUN: usize = 10_000;

/// A kernel for this call, if it is one of a pool.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    use OperationType::*;
    if ![AVERAGE_POOL_2D, L2_POOL_2D, MAX_POOL_2D].contains(&ty) {
        return None;
    }
    let geometry = PoolGeometry::from_args(args).ok()?;
    let cells = geometry.height.kernel.checked_mul(geometry.width.kernel)?;
    if cells > MAX_CELLS {
        return None;
    }
    let out = args.output(0).ok()?;
    match out.ty {
        TENSOR_FLOAT32 => floats(ty, geometry, |x: f32| x, |x| x),
        TENSOR_FLOAT16 => floats(ty, geometry, widen, narrow),
        TENSOR_QUANT8_ASYMM => match ty {
            MAX_POOL_2D => greatest::<u8>(geometry, out),
            _ => average(geometry, out, |q: u8| q.into(), |q| q as u8),
        },
        TENSOR_QUANT8_ASYMM_SIGNED => match ty {
            MAX_POOL_2D => greatest::<i8>(geometry, out),
            _ => average(geometry, out, |q: i8| q.into(), |q| q as i8),
        },
        _ => None,
    }
}

fn floats<T: Element>(
    ty: OperationType,
    geometry: PoolGeometry,
    number: impl Fn(T) -> f32 + Send + Sync + 'static,
    element: impl Fn(f32) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let activation = activation(geometry.activation);
    let finish = move |x| element(activation(x));
    match ty {
        OperationType::MAX_POOL_2D => {
            // A NaN wins and stays. Without a branch: the compiler would store only what is larger, lane by lane, which
            // is slow on some processors.
            let larger = |max: f32, x: f32| if (x > max) | x.is_nan() { x } else { max };
            pool(geometry, f32::NEG_INFINITY, move |max, x| larger(max, number(x)), move |max, _| finish(max))
        }
        OperationType::AVERAGE_POOL_2D => {
            pool(geometry, 0.0, move |sum, x| sum + number(x), move |sum, cells| finish(sum / cells as f32))
        }
        _ => pool(
            geometry,
            0.0,
            move |sum, x| sum + number(x) * number(x),
            move |sum: f32, cells| finish((sum / cells as f32).sqrt()),
        ),
    }
}

/// With the same bits as [`Activation::apply`].
fn activation(activation: Activation) -> impl Fn(f32) -> f32 + Copy {
    let range = activation.float_range();
    move |x: f32| within(range, x)
}

fn range(geometry: &PoolGeometry, out: &TensorInfo) -> (i32, i32) {
    geometry.activation.quantised_range(out.ty, out.scale, out.zero_point)
}

fn average<T: Element>(
    geometry: PoolGeometry,
    out: &TensorInfo,
    number: impl Fn(T) -> i32 + Send + Sync + 'static,
    element: impl Fn(i32) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let (lo, hi) = range(&geometry, out);
    pool(
        geometry,
        0i32,
        move |sum, q| sum + number(q),
        move |sum, cells| {
            // Halves away from zero. Quotients of numbers this small are exact enough not to cross a whole number.
            let half = if sum < 0 { -((cells / 2) as i32) } else { (cells / 2) as i32 };
            let mean = f64::from(sum + half) / cells as f64;
            // SAFETY: it is no larger than an element.
            let mean: i32 = unsafe { mean.to_int_unchecked() };
            element(mean.max(lo).min(hi))
        },
    )
}

fn greatest<T: Element + Ord + TryFrom<i32>>(
    geometry: PoolGeometry,
    out: &TensorInfo,
) -> Option<Box<dyn Kernel>> {
    let (lo, hi) = range(&geometry, out);
    let (least, lo, hi) =
        (out.ty.integer_range()?.0.try_into().ok()?, lo.try_into().ok()?, hi.try_into().ok()?);
    pool(geometry, least, |max: T, q: T| max.max(q), move |max, _| max.max(lo).min(hi))
}

/// A kernel that folds each window from `start` on and finishes with the number of cells in it.
fn pool<T: Element, A: Copy + Send + Sync + 'static>(
    geometry: PoolGeometry,
    start: A,
    fold: impl Fn(A, T) -> A + Send + Sync + 'static,
    finish: impl Fn(A, usize) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    Some(Box::new(Pool { level: Level::detect(), geometry, start, fold, finish, elements: PhantomData }))
}

struct Pool<T, A, Fold, Finish> {
    level: Level,
    geometry: PoolGeometry,
    start: A,
    fold: Fold,
    finish: Finish,
    elements: PhantomData<fn(T) -> T>,
}

impl<T, A, Fold, Finish> Kernel for Pool<T, A, Fold, Finish>
where
    T: Element,
    A: Copy + Send + Sync,
    Fold: Fn(A, T) -> A + Send + Sync,
    Finish: Fn(A, usize) -> T + Send + Sync,
{
    fn name(&self) -> String {
        format!("pool {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, output::<T>(outputs, 0)?);
        let cells = self.geometry.height.kernel * self.geometry.width.kernel;
        // Any run of elements will do: blocks of channels, or all channels of windows, as each window may have a block of its own.
        let channels = self.geometry.input.channels;
        let (unit, gathered) = match channels {
            _ if channels.is_multiple_of(BLOCK) => (BLOCK, 0),
            _ => (channels.min(BLOCK), GATHERED),
        };
        let (count, cost) = (out.len().div_ceil(unit), cells * (FOLDED + gathered) + BEGUN);
        let read = touched(size_of::<T>() * input.len(), count, self.geometry.height.kernel);
        let units = work.units_per_task(count, cost, 2 * unit * size_of::<T>() + read);
        work.for_each_chunk(out, units * unit, |first, out| {
            self.level.run(PoolLoop { pool: self, input, first, out });
        })
    }
}

struct PoolLoop<'a, T, A, Fold, Finish> {
    pool: &'a Pool<T, A, Fold, Finish>,
    input: View<'a, T>,
    /// The first element of the output.
    first: usize,
    out: Target<'a, T>,
}

impl<T, A, Fold, Finish> Loop for PoolLoop<'_, T, A, Fold, Finish>
where
    T: Element,
    A: Copy,
    Fold: Fn(A, T) -> A,
    Finish: Fn(A, usize) -> T,
{
    #[inline(always)]
    fn run(mut self) {
        let channels = self.pool.geometry.input.channels;
        let (mut done, len) = (0, self.out.len());
        while done < len {
            let (pixel, first) = ((self.first + done) / channels, (self.first + done) % channels);
            let end = (done + channels - first).min(len);
            let most = if first == 0 { BLOCK.min(len - done) / channels } else { 0 };
            let (window, count) = self.windows(pixel, most.max(1));
            if count > 1 {
                self.block(window, 0, channels, count, done);
                done += count * channels;
                continue;
            }
            let mut c = first;
            while done < end {
                let width = BLOCK.min(end - done);
                self.block(window, c, width, 1, done);
                (c, done) = (c + width, done + width);
            }
        }
    }
}

/// The cells under a window, all of them in the image.
#[derive(Clone, Copy)]
struct Cells {
    /// The element of the first cell's first channel.
    first: usize,
    rows: usize,
    columns: usize,
    /// Elements from a cell to the one below, and to the next.
    below: usize,
    next: usize,
}

impl<T, A, Fold, Finish> PoolLoop<'_, T, A, Fold, Finish>
where
    T: Element,
    A: Copy,
    Fold: Fn(A, T) -> A,
    Finish: Fn(A, usize) -> T,
{
    /// The window of an output pixel, and how many, at most `most`, from there on in its row have the same taps.
    #[inline(always)]
    fn windows(&self, pixel: usize, most: usize) -> (Cells, usize) {
        let (height, width) = (&self.pool.geometry.height, &self.pool.geometry.width);
        let channels = self.pool.geometry.input.channels;
        let (row, x) = (pixel / width.output, pixel % width.output);
        let (image, y) = (row / height.output, row % height.output);
        let (rows, columns) = (height.taps(y), width.taps(x));
        let line = image * height.input + height.cell(y, rows.start);
        let column = width.cell(x, columns.start);
        let mut count = most.min(width.output - x);
        while count > 1 && width.taps(x + count - 1) != columns {
            count -= 1;
        }
        let cells = Cells {
            first: (line * width.input + column) * channels,
            rows: rows.len(),
            columns: columns.len(),
            below: height.dilation * width.input * channels,
            next: width.dilation * channels,
        };
        (cells, count)
    }

    /// Computes `width` channels from channel `c` on of `count` windows side by side, a block at most together: of several
    /// windows, all channels.
    #[inline(always)]
    fn block(&mut self, window: Cells, c: usize, width: usize, count: usize, at: usize) {
        let Pool { start, fold, finish, geometry, .. } = self.pool;
        let Cells { first, rows, columns, below, next } = window;
        // What no address has is of one window.
        let apart = geometry.width.stride.wrapping_mul(geometry.input.channels);
        let reach = (columns - 1) * next + (count - 1) * apart + width;
        let (mut folded, mut side_by_side) = ([*start; BLOCK], [T::zeroed(); BLOCK]);
        let is_narrow = count == 1 && width <= FEW;
        for row in 0..rows {
            let line = self.input.pointer(first + row * below + c, reach);
            // SAFETY: so many cells of this row lie under the windows, and all up to the last were asked for.
            let cell = |column: usize| unsafe { line.add(column * next) };
            if is_narrow {
                for column in 0..columns {
                    for (i, folded) in folded[..width].iter_mut().enumerate() {
                        // SAFETY: the cell has so many channels.
                        *folded = fold(*folded, unsafe { cell(column).add(i).read_unaligned() });
                    }
                }
                continue;
            }
            if width < BLOCK {
                for column in 0..columns {
                    for i in 0..count {
                        // SAFETY: as above; together they are no more than a block.
                        unsafe {
                            let to = side_by_side.as_mut_ptr().add(i * width);
                            libc::memcpy(
                                to.cast(),
                                cell(column).add(i * apart).cast(),
                                width * size_of::<T>(),
                            );
                        }
                    }
                    // SAFETY: a block of elements is there.
                    unsafe { fold_cells(fold, &mut folded, [side_by_side.as_ptr()]) };
                }
                continue;
            }
            let mut column = 0;
            while column < columns {
                // No single one is left where there are more: it would take as many loads and stores of what is folded.
                // SAFETY: each of these cells has a block of channels.
                column += unsafe {
                    match columns - column {
                        1 => fold_cells(fold, &mut folded, [cell(column)]),
                        2 | 4 => fold_cells(fold, &mut folded, [cell(column), cell(column + 1)]),
                        _ => {
                            fold_cells(fold, &mut folded, [cell(column), cell(column + 1), cell(column + 2)])
                        }
                    }
                };
            }
        }
        let (len, cells) = (count * width, rows * columns);
        let to = self.out.pointer(at, len);
        if len == BLOCK {
            for (i, &folded) in folded.iter().enumerate() {
                // SAFETY: as many elements were asked for.
                unsafe { to.add(i).write_unaligned(finish(folded, cells)) };
            }
            return;
        }
        for (element, &folded) in side_by_side.iter_mut().zip(&folded) {
            *element = finish(folded, cells);
        }
        // SAFETY: as above.
        unsafe { libc::memcpy(to.cast(), side_by_side.as_ptr().cast(), len * size_of::<T>()) };
    }
}

/// Folds a block of elements of each of `N` cells, which takes fewer loads and stores than one cell after the other; gives `N`.
///
/// # Safety
/// Each cell must have a block of elements.
#[inline(always)]
unsafe fn fold_cells<T: Element, A: Copy, const N: usize>(
    fold: &impl Fn(A, T) -> A,
    folded: &mut [A; BLOCK],
    cells: [*const T; N],
) -> usize {
    // Of a length known to the compiler, which makes a loop of vectors of it: of a few elements it would not.
    for (i, folded) in folded.iter_mut().enumerate() {
        // SAFETY: by contract.
        *folded =
            cells.iter().fold(*folded, |folded, cell| fold(folded, unsafe { cell.add(i).read_unaligned() }));
    }
    N
}
