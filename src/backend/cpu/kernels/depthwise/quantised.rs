//! 8-bit types. For sixteen channels at a time the columns of a few rows are interleaved to quads, which all outputs of
//! the row share; padding is the zero point there, so that no output is a special case.

use super::super::conv::PACKED_INPUTS;
use super::super::eight_bit::{requant, signed_zero, QuantInput};
use super::super::gemm::{Few, Requantisation};
use super::super::kernel::{input, output, ByRows, Lines, Pause};
use super::super::{Kernel, Source, Work};
use super::instructions::Instructions;
#[cfg(target_arch = "x86_64")]
use super::layout::GROUP;
use super::layout::{number, Order, CHANNELS, QUAD, ROWS, SIGNED};
use super::packed::Depthwise;
use super::packing::Packing;
use super::pixels::Row;
#[cfg(not(target_arch = "aarch64"))]
use super::quads::Base;
use super::quads::Line;
#[cfg(not(target_arch = "aarch64"))]
use super::quads::Quads as BothWays;
#[cfg(target_arch = "x86_64")]
use super::quads::{Avx2, Vnni};
#[cfg(target_arch = "aarch64")]
use super::quads_neon::{Base, Dotprod};
use super::rows::{copies, Rows};
#[cfg(target_arch = "aarch64")]
use super::slide::{self, BothWays};
use super::strips::{for_each_strip, Strip};
use super::under::Under;
#[cfg(target_arch = "x86_64")]
use super::{wide, words, words_packing};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::DepthwiseGeometry;
#[cfg(target_arch = "aarch64")]
use crate::ops::pace::Pace;
use crate::ops::{Args, OpError};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Columns of quads that are made at once, of bytes: those of a row of taps stay in the first cache.
const MAX_COLUMNS: usize = 384;

/// Quads of columns, none of which lies in two cache lines.
#[repr(align(64))]
struct Columns<C>([MaybeUninit<[C; QUAD]>; MAX_COLUMNS]);

/// The kernel of a call; `is_whole`: of a column that stands for an image, see [`super::whole`].
pub(super) fn kernel(
    geometry: DepthwiseGeometry,
    is_whole: bool,
    args: &Args,
    source: &mut Source,
) -> Option<Depthwise> {
    let (input, filter) = (args.get(0).ok()?, args.get(1).ok()?);
    let channels = geometry.input.channels * geometry.multiplier;
    let requant = requant(args, channels, geometry.activation, source)?;
    let extent = (geometry.width.kernel - 1) * geometry.width.dilation + 1;
    let groups = geometry.height.kernel.div_ceil(ROWS);
    if !is_whole && extent.checked_mul(groups)? > MAX_COLUMNS {
        return None;
    }
    let instructions = Instructions::detect();
    let requantisation = Requantisation {
        multipliers: &requant.multipliers,
        ty: args.output(0).ok()?.ty,
        zero: requant.zero_point,
        range: requant.range,
        once: false,
        interrupt: args.interrupt,
    };
    let (mut input, weight_zero) = (QuantInput::new(&input), signed_zero(&filter));
    if SIGNED {
        (input.zero, input.flip) = (input.zero ^ 0x80, input.flip ^ 0x80);
    }
    let is_plain = weight_zero == 0 && !is_whole;
    let order = match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni if channels >= GROUP && wide::fits(&geometry, is_plain) => Order::Wide,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 if words::fits(&geometry, is_plain) => Order::Words,
        _ => Order::Plain,
    };
    let (most_rows, input_zero) = match order {
        #[cfg(target_arch = "x86_64")]
        Order::Words => (words::ROWS, words::number(input)),
        _ => (ROWS, number(input.zero)),
    };
    // What is under a row of outputs and the next one is made into quads once.
    let height = &geometry.height;
    let shares = height.kernel < most_rows && height.stride == 1 && height.dilation == 1;
    let rows = if shares && geometry.multiplier == 1 && is_plain { 2 } else { 1 };
    let packing = Packing { geometry: &geometry, input_zero, weight_zero, rows, order };
    let (requant, weights) = match instructions {
        Instructions::Base => {
            (packing.requant::<Base>(&requantisation)?, packing.weights::<Base>(args, source)?)
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 if order == Order::Words => {
            (packing.requant::<Avx2>(&requantisation)?, words_packing::weights(&packing, args, source)?)
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            (packing.requant::<Avx2>(&requantisation)?, packing.weights::<Avx2>(args, source)?)
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni => {
            (packing.requant::<Vnni>(&requantisation)?, packing.weights::<Vnni>(args, source)?)
        }
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod => {
            (packing.requant::<Dotprod>(&requantisation)?, packing.weights::<Dotprod>(args, source)?)
        }
    };
    let bias = packing.bias(args, source)?;
    #[cfg(target_arch = "aarch64")]
    let slides = match weight_zero == 0 && !is_whole {
        true => {
            let mut pace = Pace::new(args);
            slide::fit(&geometry, instructions, [&weights, &bias], &requant, &mut pace).ok()?
        }
        false => None,
    };
    Some(Depthwise {
        #[cfg(target_arch = "aarch64")]
        slides,
        order,
        instructions,
        input,
        weight_zero,
        weights,
        bias,
        requant,
        rows,
        geometry,
    })
}

impl Kernel for Depthwise {
    fn name(&self) -> String {
        format!("depthwise {} 8-bit", self.instructions.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        for_each_strip(work, &self.geometry, out, (self.cost(), self.rows), |strip| {
            make(self, &mut Memory::new(&self.geometry, Lines::all(input))?, strip);
            Ok(())
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.weights, &self.bias]
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }

    fn by_rows(&self) -> Option<&dyn ByRows> {
        Some(self)
    }

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }
}

impl ByRows for Depthwise {
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        self.geometry.height.cells_under(rows)
    }

    fn cost(&self) -> usize {
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let channels = self.geometry.input.channels * self.geometry.multiplier;
        channels
            .saturating_mul(taps.saturating_mul(40).saturating_add(500))
            .saturating_add(copies(&self.geometry))
    }

    /// Those who ask for rows ask for no more at a time than take well under a millisecond.
    fn run_rows(
        &self,
        input: Lines<u8>,
        rows: Range<usize>,
        mut out: Target<u8>,
        _: Pause,
    ) -> Result<(), OpError> {
        let geometry = &self.geometry;
        let channels = geometry.input.channels * geometry.multiplier;
        let strip = Strip::whole(&mut out, rows.start * geometry.width.output, channels);
        make(self, &mut Memory::new(geometry, input)?, strip);
        Ok(())
    }
}

/// Memory of a task.
struct Memory<'a> {
    rows: Rows<'a, u8>,
    /// What lies under the taps of each group of rows.
    lines: Few<[Option<Line>; ROWS]>,
}

impl<'a> Memory<'a> {
    fn new(geometry: &'a DepthwiseGeometry, input: Lines<'a, u8>) -> Result<Self, OpError> {
        let lines = Few::reserved(geometry.height.kernel.div_ceil(ROWS))?;
        Ok(Memory { rows: Rows::new(geometry, input)?, lines })
    }
}

/// Computes a strip.
fn make(kernel: &Depthwise, memory: &mut Memory, strip: Strip<u8>) {
    match kernel.instructions {
        // SAFETY: needs no instruction set.
        Instructions::Base => unsafe { make_with::<Base>(kernel, memory, strip) },
        // SAFETY: the instruction set was detected on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2(kernel, memory, strip) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni => unsafe { vnni(kernel, memory, strip) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod => unsafe { dotprod(kernel, memory, strip) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(kernel: &Depthwise, memory: &mut Memory, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Avx2>(kernel, memory, strip) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn vnni(kernel: &Depthwise, memory: &mut Memory, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Vnni>(kernel, memory, strip) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "dotprod")]
fn dotprod(kernel: &Depthwise, memory: &mut Memory, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Dotprod>(kernel, memory, strip) }
}

/// # Safety
/// The machine must have the instruction set of `Q`.
#[inline(always)]
unsafe fn make_with<Q: BothWays>(kernel: &Depthwise, memory: &mut Memory, strip: Strip<u8>) {
    let geometry = &kernel.geometry;
    let (window, channels) = (&geometry.width, geometry.input.channels * geometry.multiplier);
    let (extent, groups) = ((window.kernel - 1) * window.dilation + 1, geometry.height.kernel.div_ceil(ROWS));
    // Cells that are wider than bytes fill the cache with fewer columns; one pixel's always have room.
    let columns = (MAX_COLUMNS / groups / size_of::<Q::Cell>()).max(extent);
    let most = (columns - extent) / window.stride + 1;
    let Memory { rows, lines } = memory;
    // On the stack, as threads that allocate at the same time wait for each other; and not cleared for each task.
    let mut columns = Columns([MaybeUninit::uninit(); MAX_COLUMNS]);
    let size = groups * window.kernel * QUAD;
    let Range { start: mut pixel, end } = strip.pixels;
    while pixel < end {
        let (row, x) = (pixel / window.output, pixel % window.output);
        let count = (window.output - x).min(end - pixel).min(most);
        let same_image = (row + 1) % geometry.height.output != 0;
        let two = kernel.rows == 2 && same_image && count == window.output && end - pixel >= 2 * count;
        if two {
            rows.select_two(row);
        } else {
            rows.select(row);
        }
        let under = Under::new(kernel, x * window.stride, (count - 1) * window.stride + extent);
        lines.clear();
        lines.extend((0..groups).map(|group| under.lines(rows, group)));
        let quads = &mut columns.0[..under.columns * groups];
        let made = if two { 2 } else { 1 };
        let to = strip.at(pixel, made * count);
        let Range { start: first, end: last } = strip.channels;
        // SAFETY: the rows under taps are whole; as many pixels were asked for at `to`. Strips start with a block.
        #[cfg(target_arch = "aarch64")]
        let first = unsafe { under.slide::<Q>(&lines[0], first..last, (made, count), to) };
        // SAFETY: as above, where the instruction set is there.
        #[cfg(target_arch = "x86_64")]
        let first = unsafe { under.in_order(lines, first..last, (made, count), to) };
        for block in first / CHANNELS..last.div_ceil(CHANNELS) {
            let c = block * CHANNELS;
            let width = CHANNELS.min(last - c);
            for (quads, lines) in quads.chunks_exact_mut(under.columns).zip(lines.iter()) {
                // SAFETY: the rows under taps are whole; the block has `width` channels.
                unsafe { under.fill::<Q>(lines, (c, width), quads) };
            }
            // SAFETY: all of them were filled, group by group.
            let quads = unsafe { std::slice::from_raw_parts(quads.as_ptr().cast(), quads.len()) };
            let weights = kernel.weights.elements::<Q::Weight>(block * kernel.rows * size, made * size);
            for below in 0..made {
                let to = to.wrapping_add(below * count * channels + c);
                let row = Row::<Q> { kernel, quads, columns: under.columns, block, to, width };
                // SAFETY: all columns of the `count` pixels are filled, and as many pixels were asked for at `to`, in each
                // row, which has weights of its own.
                unsafe { row.pixels_of_shape(count, weights.add(below * size)) };
            }
        }
        pixel += made * count;
    }
}
