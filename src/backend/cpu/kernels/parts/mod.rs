//! Convolutions that are several smaller ones: each part multiplies some channels of the image by some weights, and its
//! outputs are spread over some of the whole's. The parts are [products](super::gemm) as any convolution is; this only
//! brings their inputs together and takes their outputs apart, some rows at a time.
//!
//! - `grouped`: GROUPED_CONV_2D, a part for each group.
//! - `transposed`: TRANSPOSE_CONV_2D, a part for the outputs that the same number of taps reach.

mod grouped;
#[cfg(test)]
mod tests;
mod transposed;

use super::gemm::{even_part, Outputs, Room};
use super::kernel::{ByRows, Lines, Pause};
use super::{Kernel, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::OpError;
pub(super) use grouped::select as select_grouped;
use std::ops::Range;
pub(super) use transposed::select as select_transposed;

/// Parts that a convolution may have.
const MOST_PARTS: usize = 1 << 10;
/// Bytes of a row of a part's input or output.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of a part's outputs that are made at a time: they are to stay in the cache.
const ROOM: usize = 512 * 1024;
/// What a band of rows takes, about, unless it is a single row.
const LONG: usize = 1_000_000_000;

/// Images by their rows; elements are bytes here.
#[derive(Clone, Copy)]
struct Image {
    batches: usize,
    height: usize,
    width: usize,
    /// Bytes of a pixel.
    pixel: usize,
}

impl Image {
    fn row(&self) -> usize {
        self.width * self.pixel
    }

    fn bytes(&self) -> usize {
        self.batches * self.height * self.row()
    }
}

/// Where a part's outputs go along a dimension: position `i` is `count` outputs from `first + i * step` on, of which those
/// outside do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread {
    first: i64,
    step: usize,
    count: usize,
}

/// A part of a convolution.
struct Part {
    product: Box<dyn Kernel>,
    /// Bytes of a pixel of the image that it reads: where they start, and how many.
    reads: (usize, usize),
    /// Rows for each image, and pixels of a row, of its own output.
    height: usize,
    width: usize,
    /// The rows of the whole output that a row becomes.
    rows: Spread,
    /// The bytes of such a row that a pixel becomes.
    columns: Spread,
}

impl Part {
    /// Bytes of a pixel of its own output.
    fn pixel(&self) -> usize {
        self.rows.count * self.columns.count
    }

    fn by_rows(&self) -> Result<&dyn ByRows, OpError> {
        self.product.by_rows().ok_or_else(|| OpError::failed("a part that does not go by rows"))
    }
}

struct Parts {
    parts: Vec<Part>,
    input: Image,
    output: Image,
}

impl Parts {
    /// `None` where a row is too long for a copy of it, or there are no parts, or many.
    fn new(parts: Vec<Part>, input: Image, output: Image) -> Option<Self> {
        let short = |part: &Part| {
            let read = input.width.checked_mul(part.reads.1);
            let made = part.width.checked_mul(part.pixel());
            read.max(made).is_some_and(|bytes| bytes <= MOST_BYTES) && read.is_some() && made.is_some()
        };
        let fits = !parts.is_empty() && parts.len() <= MOST_PARTS && parts.iter().all(short);
        fits.then_some(Parts { parts, input, output })
    }

    /// In how many bands the rows of each part are made, and about how long one takes.
    fn bands(&self, work: Work) -> Result<(usize, usize), OpError> {
        let (mut bands, mut longest, mut time) = (1, 1, 0usize);
        for part in &self.parts {
            let rows = self.input.batches * part.height;
            let row = part.width.saturating_mul(part.by_rows()?.cost()).max(1);
            bands = bands.max(rows.div_ceil((ROOM / (part.width * part.pixel()).max(1)).max(1)));
            bands = bands.max(rows.div_ceil((LONG / row).max(1)));
            (longest, time) = (longest.max(rows), time.saturating_add(row.saturating_mul(rows)));
        }
        let shared = match work.team.threads() {
            1 => 1,
            threads => (4 * threads).div_ceil(self.parts.len()),
        };
        let bands = bands.max(shared).min(longest);
        Ok((bands, time / (bands * self.parts.len())))
    }
}

impl Kernel for Parts {
    fn name(&self) -> String {
        let product = self.parts.first().map(|part| part.product.name()).unwrap_or_default();
        format!("{product}, in {} parts", self.parts.len())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let input = inputs.first().copied().flatten().ok_or(OpError::Unresolved)?;
        let out = outputs.first_mut().ok_or(OpError::Unresolved)?;
        if input.len() != self.input.bytes() || out.len() != self.output.bytes() {
            return Err(OpError::failed("images do not fit"));
        }
        let to = Outputs(out.pointer(0, self.output.bytes()));
        let ((bands, picoseconds), parts) = (self.bands(work)?, self.parts.len());
        let (count, owner) = (bands * parts, std::thread::current().id());
        // Neighbouring tasks read the same rows.
        work.for_each_part(count, work.units_per_task(count, picoseconds, 0), |tasks| {
            let pause = &|| work.pause(owner);
            let mut memory =
                Memory { lines: Room::default(), made: Room::default(), copier: Copier::new(pause) };
            for task in tasks {
                let (band, part) = (task / parts, &self.parts[task % parts]);
                let all = self.input.batches * part.height;
                let rows = even_part(all, band, bands);
                // SAFETY: the whole output was asked for, and each band of a part is made once.
                unsafe { self.band(part, rows, input, to, &mut memory) }?;
            }
            Ok(())
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.parts.iter().flat_map(|part| part.product.weights()).collect()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        super::conv::PACKED_INPUTS
    }

    fn packed_in_place(&self) -> &'static [usize] {
        &[1]
    }
}

/// Memory of a thread.
struct Memory<'a> {
    lines: Room,
    made: Room,
    copier: Copier<'a>,
}

impl Parts {
    /// Makes some rows of a part and spreads them.
    ///
    /// # Safety
    /// `out` must be the whole output, and no other thread write what these rows become. Parts have different outputs.
    unsafe fn band(
        &self,
        part: &Part,
        rows: Range<usize>,
        input: View<u8>,
        out: Outputs<u8>,
        memory: &mut Memory,
    ) -> Result<(), OpError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (product, row) = (part.by_rows()?, part.width * part.pixel());
        let Memory { lines, made, copier } = memory;
        let lines = self.lines(part, product.reads(rows.clone()), input, lines, copier)?;
        made.make(rows.len() * row)?;
        let made = &mut made[..rows.len() * row];
        product.run_rows(lines, rows.clone(), Target::of(made), copier.pause)?;
        for (i, made) in rows.zip(made.chunks_exact(row)) {
            let (image, position) = (i / part.height, i % part.height);
            let first = part.rows.first + (position * part.rows.step) as i64;
            for (i, to) in (first..first + part.rows.count as i64).enumerate() {
                if !(0..self.output.height as i64).contains(&to) {
                    continue;
                }
                let (line, row) = (image * self.output.height + to as usize, self.output.row());
                // SAFETY: it is a row of the output, and by contract these parts of it are ours.
                unsafe { spread(part, i, made, out.at(line * row), row, copier) }?;
            }
        }
        Ok(())
    }

    /// Some rows of the image, as a part reads them.
    fn lines<'a>(
        &self,
        part: &Part,
        rows: Range<usize>,
        input: View<'a, u8>,
        memory: &'a mut Room,
        copier: &mut Copier,
    ) -> Result<Lines<'a, u8>, OpError> {
        let Image { width, pixel, .. } = self.input;
        let (start, count) = part.reads;
        if count == pixel {
            return Ok(Lines::all(input));
        }
        memory.make(rows.len() * width * count)?;
        let memory = &mut memory[..rows.len() * width * count];
        if !rows.is_empty() {
            let pixels = rows.len() * width;
            let from = input.pointer(rows.start * width * pixel + start, (pixels - 1) * pixel + count);
            // SAFETY: as many bytes were asked for, and there is room for all pixels.
            unsafe { copier.copy((from, pixel), (memory.as_mut_ptr(), count), count, pixels) }?;
        }
        Ok(Lines { elements: View::of(memory), first: rows.start })
    }
}

/// Spreads a row of a part's outputs: of each pixel those that belong to row `i` of the ones it becomes, which starts at
/// `to` and has `row` bytes.
///
/// # Safety
/// The row must be there, and no other thread write what the part has of it.
unsafe fn spread(
    part: &Part,
    i: usize,
    made: &[u8],
    to: *mut u8,
    row: usize,
    copier: &mut Copier,
) -> Result<(), OpError> {
    let (Spread { first, step, count }, pixel) = (part.columns, part.pixel());
    let made = View::of(made);
    let place = |position: usize| first + (position * step) as i64;
    let is_whole = |&position: &usize| place(position) >= 0 && place(position) + count as i64 <= row as i64;
    // Those that the edges cut off are at the ends.
    let whole = match ((0..part.width).find(is_whole), (0..part.width).rev().find(is_whole)) {
        (Some(first), Some(last)) => first..last + 1,
        _ => 0..0,
    };
    for position in (0..whole.start).chain(whole.end..part.width) {
        let (start, end) = (place(position).max(0), (place(position) + count as i64).min(row as i64));
        if start < end {
            let (from, len) = ((start - place(position)) as usize, (end - start) as usize);
            let from = made.pointer(position * pixel + i * count + from, len);
            // SAFETY: as many bytes were asked for, and as many are in the row.
            unsafe { libc::memcpy(to.add(start as usize).cast(), from.cast(), len) };
        }
    }
    if !whole.is_empty() {
        let from = made.pointer(whole.start * pixel + i * count, (whole.len() - 1) * pixel + count);
        // SAFETY: as above, for each of the runs.
        unsafe {
            copier.copy((from, pixel), (to.add(place(whole.start) as usize), step), count, whole.len())?;
        }
    }
    Ok(())
}

/// Bytes that are copied between two looks whether to stop, about; a run takes as long as so many more.
const COPIED: usize = 1 << 20;
const RUN: usize = 16;

/// Copies runs, whose number and length are a client's choice, and pauses every now and then.
struct Copier<'a> {
    pause: Pause<'a>,
    copied: usize,
}

impl<'a> Copier<'a> {
    fn new(pause: Pause<'a>) -> Self {
        Copier { pause, copied: 0 }
    }

    /// Copies `runs` runs of `count` bytes, each so far from the one before.
    ///
    /// # Safety
    /// All runs must be there to be read, and to be written.
    unsafe fn copy(
        &mut self,
        from: (*const u8, usize),
        to: (*mut u8, usize),
        count: usize,
        runs: usize,
    ) -> Result<(), OpError> {
        let at_once = (COPIED / (count + RUN)).max(1);
        for first in (0..runs).step_by(at_once) {
            let runs = at_once.min(runs - first);
            let (from_run, to_run) = (from.0.wrapping_add(first * from.1), to.0.wrapping_add(first * to.1));
            // Long runs are copied one by one.
            for start in (0..count).step_by(COPIED) {
                let len = COPIED.min(count - start);
                self.spend(runs * (len + RUN))?;
                let (from_part, to_part) = (from_run.wrapping_add(start), to_run.wrapping_add(start));
                // SAFETY: by contract; they are a part of the runs.
                unsafe { copy_runs((from_part, from.1), (to_part, to.1), len, runs) };
            }
        }
        Ok(())
    }

    /// Notes what is about to be copied.
    fn spend(&mut self, bytes: usize) -> Result<(), OpError> {
        self.copied += bytes;
        if self.copied <= COPIED {
            return Ok(());
        }
        self.copied = bytes;
        (self.pause)()
    }
}

/// Copies `runs` runs of `count` bytes, each so far from the one before.
///
/// # Safety
/// All runs must be there to be read, and to be written.
unsafe fn copy_runs(from: (*const u8, usize), to: (*mut u8, usize), count: usize, runs: usize) {
    // SAFETY: by contract.
    unsafe {
        match count {
            _ if (from.1, to.1) == (count, count) => {
                libc::memcpy(to.0.cast(), from.0.cast(), runs * count);
            }
            1 => fixed::<1>(from, to, runs),
            2 => fixed::<2>(from, to, runs),
            4 => fixed::<4>(from, to, runs),
            8 => fixed::<8>(from, to, runs),
            16 => fixed::<16>(from, to, runs),
            32 => fixed::<32>(from, to, runs),
            64 => fixed::<64>(from, to, runs),
            _ => {
                for i in 0..runs {
                    libc::memcpy(to.0.add(i * to.1).cast(), from.0.add(i * from.1).cast(), count);
                }
            }
        }
    }
}

/// The same for runs of a length that the compiler knows.
///
/// # Safety
/// As of [`copy_runs`].
unsafe fn fixed<const N: usize>(from: (*const u8, usize), to: (*mut u8, usize), runs: usize) {
    for i in 0..runs {
        // SAFETY: by contract. Any bytes will do, should a client write them meanwhile.
        unsafe {
            let run = from.0.add(i * from.1).cast::<[u8; N]>().read_unaligned();
            to.0.add(i * to.1).cast::<[u8; N]>().write_unaligned(run);
        }
    }
}
