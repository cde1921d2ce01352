//! What lies under the taps of a few outputs of 8-bit types: columns of four rows each, or padding.

#[cfg(target_arch = "x86_64")]
use super::layout::{Order, GROUP};
use super::layout::{CHANNELS, QUAD, ROWS};
use super::packed::Depthwise;
use super::quads::{Line, Quads};
use super::rows::Rows;
#[cfg(target_arch = "aarch64")]
use super::slide::{BothWays, Slide};
#[cfg(target_arch = "x86_64")]
use super::{wide::Wide, words::Words};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The columns of the input under some pixels of a row of outputs, padding counted.
pub struct Under<'a> {
    pub kernel: &'a Depthwise,
    pub columns: usize,
    /// Those that are not beside the input, and the first of them as the input counts.
    pub inside: Range<usize>,
    start: usize,
}

impl<'a> Under<'a> {
    pub fn new(kernel: &'a Depthwise, first: usize, columns: usize) -> Self {
        let window = &kernel.geometry.width;
        let before = window.pad_before.saturating_sub(first).min(columns);
        let after = (window.input + window.pad_before).saturating_sub(first).clamp(before, columns);
        let start = (first + before).saturating_sub(window.pad_before);
        Under { kernel, columns, inside: before..after, start }
    }

    /// Computes `count` pixels of one or two rows as `slide` does, if that is how they are made: of channels in whole blocks,
    /// as many as there are. Gives the first channel that is left.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`; there must be as many columns in the `lines`, and as many pixels of
    /// all channels at `to`; the first channel must be that of a block.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub unsafe fn slide<Q: BothWays>(
        &self,
        lines: &[Option<Line>; ROWS],
        of: Range<usize>,
        (made, count): (usize, usize),
        to: *mut u8,
    ) -> usize {
        let (kernel, whole) = (self.kernel, of.end - of.len() % CHANNELS);
        let Some(fit) = kernel.slides else { return of.start };
        let (geometry, input) = (&kernel.geometry, kernel.input);
        let channels = geometry.input.channels * geometry.multiplier;
        let block = kernel.rows * geometry.width.kernel * QUAD;
        let slide = Slide {
            fit,
            lines: *lines,
            inside: self.inside.clone(),
            padding: &[input.zero ^ input.flip; CHANNELS],
            flip: input.flip,
            count,
            weights: kernel.weights.elements(0, channels.div_ceil(CHANNELS) * block),
            block,
            bias: kernel.bias.elements(0, channels),
            requant: &kernel.requant,
            to,
            step: channels,
            below: count * channels,
        };
        // SAFETY: by contract; there are as many weights and sums of bias.
        unsafe { slide.run::<Q>(made, geometry.width.stride, of.start..whole) };
        whole
    }

    /// Computes `count` pixels of one or two rows as `wide` or `words` do, if that is how they are made: the first of whole
    /// groups of channels. Gives the first channel that is left.
    ///
    /// # Safety
    /// There must be as many columns in the `lines`, and as many pixels of all channels at `to`; the first channel must be that
    /// of a group.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub unsafe fn in_order(
        &self,
        lines: &[[Option<Line>; ROWS]],
        of: Range<usize>,
        (made, count): (usize, usize),
        to: *mut u8,
    ) -> usize {
        let (kernel, inside) = (self.kernel, self.inside.clone());
        let channels = kernel.geometry.input.channels;
        let below = count * channels;
        match kernel.order {
            Order::Plain => of.start,
            Order::Wide => {
                let end = of.end.min(channels / GROUP * GROUP);
                let wide = Wide { kernel, lines: lines[0], inside, to, below };
                for channel in (of.start..end).step_by(GROUP) {
                    // SAFETY: by contract; the instruction set was detected when the kernel was made.
                    unsafe { wide.make(channel, made, count) };
                }
                of.start.max(end)
            }
            Order::Words => {
                let end = of.end.next_multiple_of(CHANNELS);
                let words = Words { kernel, lines: lines.as_flattened(), inside, to, below };
                // SAFETY: as above.
                unsafe { words.make(of, made, count) };
                end
            }
        }
    }

    /// What lies under the taps of a group of rows; `None` beside the input.
    pub fn lines(&self, rows: &Rows<u8>, group: usize) -> [Option<Line>; ROWS] {
        let geometry = &self.kernel.geometry;
        let channels = geometry.input.channels * geometry.multiplier;
        let line = |line: *const u8| (line.wrapping_add(self.start * channels), channels);
        std::array::from_fn(|i| rows.row(group * ROWS + i).map(line))
    }

    /// Fills `quads` with all columns of channels from `c` on of a group of rows.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`, and there be `width` channels, at most sixteen, from `c` on.
    #[inline(always)]
    pub unsafe fn fill<Q: Quads>(
        &self,
        lines: &[Option<Line>; ROWS],
        (c, width): (usize, usize),
        quads: &mut [MaybeUninit<[Q::Cell; QUAD]>],
    ) {
        let (input, Range { start: before, end: after }) = (self.kernel.input, self.inside.clone());
        let padding = [input.zero ^ input.flip; CHANNELS];
        // SAFETY: by contract; padding is as long as a load.
        let beside = unsafe { Q::interleave([padding.as_ptr(); ROWS], input.flip) };
        quads[..before].fill(MaybeUninit::new(beside));
        quads[after..].fill(MaybeUninit::new(beside));
        let lines =
            lines.map(|line| line.map_or((padding.as_ptr(), 0), |(line, step)| (line.wrapping_add(c), step)));
        // A load of sixteen bytes must not leave the row for good: that may be the end of what there is.
        let whole = if width == CHANNELS { after } else { before };
        for (i, quad) in quads[before..whole].iter_mut().enumerate() {
            let columns = lines.map(|(line, step)| line.wrapping_add(i * step));
            // SAFETY: by contract; sixteen channels of a column inside of the row, or padding.
            quad.write(unsafe { Q::interleave(columns, input.flip) });
        }
        for (i, quad) in quads[whole..after].iter_mut().enumerate() {
            let mut columns = [padding; ROWS];
            for (column, (line, step)) in columns.iter_mut().zip(lines) {
                // SAFETY: the column has `width` channels, and so has the padding.
                unsafe {
                    libc::memcpy(column.as_mut_ptr().cast(), line.wrapping_add(i * step).cast(), width);
                }
            }
            // SAFETY: by contract; columns are as long as a load.
            quad.write(unsafe { Q::interleave([0, 1, 2, 3].map(|row| columns[row].as_ptr()), input.flip) });
        }
    }
}
