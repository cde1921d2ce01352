//! The rows of the input that a row of the output is made of.

use super::super::gemm::{Few, Room};
use super::super::kernel::Lines;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::OpError;
use bytemuck::Pod;

/// Elements of rows that each thread may copy.
const MOST_COPIED: usize = 1 << 20;

/// Rows of a filter: more are not worth a kernel.
const MOST_ROWS: usize = 1 << 12;

/// Products of a pixel's channels, as many as are made side by side at the most: no yield point comes between them.
const MOST_PRODUCTS: usize = 1 << 20;
const SIDE_BY_SIDE: usize = 64;

/// What an element of a repeated row takes, in picoseconds.
const REPEATED: usize = 500;

/// Whether no more has to be copied of the rows under an output row, no more rows are there, and no more taps.
pub fn are_small(geometry: &DepthwiseGeometry) -> bool {
    let row = [geometry.width.input, geometry.input.channels, geometry.multiplier];
    let channels = geometry.input.channels.saturating_mul(geometry.multiplier).min(SIDE_BY_SIDE);
    let products =
        [geometry.height.kernel, geometry.width.kernel].into_iter().fold(channels, usize::saturating_mul);
    if geometry.height.kernel > MOST_ROWS || products > MOST_PRODUCTS {
        return false;
    }
    geometry.multiplier == 1
        || row.into_iter().fold(geometry.height.kernel, usize::saturating_mul) <= MOST_COPIED
}

/// What copies of the rows under an output row take for each of its pixels, in picoseconds.
pub fn copies(geometry: &DepthwiseGeometry) -> usize {
    if geometry.multiplier == 1 {
        return 0;
    }
    // No more than may be copied.
    let row = geometry.width.input * geometry.input.channels * geometry.multiplier;
    geometry.height.kernel * row * REPEATED / geometry.width.output.max(1)
}

/// Input rows under the taps of one output row, with as many channels as the output has.
pub struct Rows<'a, T> {
    geometry: &'a DepthwiseGeometry,
    input: Lines<'a, T>,
    /// Copies in which each channel comes as often as it has outputs; empty where that is once.
    repeated: Room,
    /// Where each row of taps reads: a row of the input, or the first of its elements among the copies; `None` beside the
    /// input. The taps of the next row follow if that is selected, too.
    starts: Few<Option<usize>>,
}

impl<'a, T: Pod> Rows<'a, T> {
    /// An error where there is no memory for them.
    pub fn new(geometry: &'a DepthwiseGeometry, input: Lines<'a, T>) -> Result<Self, OpError> {
        let starts = Few::reserved(geometry.height.kernel.saturating_add(1))?;
        let mut rows = Rows { geometry, input, repeated: Room::default(), starts };
        if geometry.multiplier > 1 {
            let elements = geometry.height.kernel.saturating_mul(rows.len());
            rows.repeated.make(elements.saturating_mul(size_of::<T>()))?;
        }
        Ok(rows)
    }

    /// Elements of a row.
    fn len(&self) -> usize {
        self.geometry.width.input * self.geometry.input.channels * self.geometry.multiplier
    }

    /// Goes to output row `row`, counted through all images.
    pub fn select(&mut self, row: usize) {
        let (height, multiplier) = (&self.geometry.height, self.geometry.multiplier);
        let (image, y, len) = (row / height.output, row % height.output, self.len());
        let (taps, mut copied) = (height.taps(y), 0);
        self.starts.clear();
        for tap in 0..height.kernel {
            if !taps.contains(&tap) {
                self.starts.push(None);
                continue;
            }
            let line = image * height.input + height.cell(y, tap);
            if multiplier == 1 {
                self.starts.push(Some(line));
                continue;
            }
            self.starts.push(Some(copied));
            let from = self.input.line(line, len / multiplier);
            let to =
                &mut bytemuck::cast_slice_mut::<_, T>(&mut self.repeated[..(copied + len) * size_of::<T>()])
                    [copied..];
            to.chunks_exact_mut(multiplier).enumerate().for_each(|(i, to)| to.fill(from.get(i)));
            copied += len;
        }
    }

    /// Goes to output rows `row` and the next one of the same image, which has one more row of input under it: the filter
    /// must go on by one row, and each channel have one output.
    pub fn select_two(&mut self, row: usize) {
        self.select(row);
        let height = &self.geometry.height;
        let (image, below, last) = (row / height.output, row % height.output + 1, height.kernel - 1);
        let line = || image * height.input + height.cell(below, last);
        self.starts.push(height.taps(below).contains(&last).then(line));
    }

    /// A pointer to the row under `tap`, all of whose elements may be read until another one is selected; `None` beside the
    /// input and beyond the taps.
    pub fn row(&self, tap: usize) -> Option<*const T> {
        let (start, len) = ((*self.starts.get(tap)?)?, self.len());
        Some(match self.geometry.multiplier {
            1 => self.input.line(start, len).pointer(0, len),
            // One that was copied as this was selected.
            _ => self.repeated[start * size_of::<T>()..(start + len) * size_of::<T>()].as_ptr().cast(),
        })
    }
}
