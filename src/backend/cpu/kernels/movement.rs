//! Operations that only move elements: rows copied on all threads, transpositions in blocks that stay in the cache.

use super::{Kernel, Source, Work};
use crate::memory::{Target, View};
use crate::ops::movement::{moves, requantisation, Axis};
use crate::ops::pace::{Pace, PAGE};
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Args, OpError, Operation, OperationType};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements of a row that are copied in one go, and bytes of padding.
const SEGMENT: usize = 64 * 1024;
/// Elements along each side of a block of a transposition.
const BLOCK: usize = 32;

/// Bytes that strides which advance together move in one round: the caches keep them for the next stride.
const NEAR: usize = 32 * 1024;
/// Bytes that elements of a row may be apart altogether: each page may be touched for the first time, which takes some microseconds.
const APART: usize = 1 << 18;

/// Strides that advance together. A unit of so many takes well under a millisecond, and is not shared out.
const MOST_TOGETHER: usize = 16;

/// Walks that are made whether the kernel will run or not.
const FEW: usize = 8;

/// What it costs to plan a walk, and to make a table, in the steps that [`Pace`] counts: a call may have very many.
const WALK: usize = 64;
const TABLE: usize = 2048;

/// A kernel for this call, if its operation only moves elements.
pub(super) fn select(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    let plan = moves(operation.ty, args)?.ok()?;
    let size = args.output(0).ok()?.ty.element_size()?;
    let count = |dims: &[u32]| crate::tensor::element_count(dims);
    // To make few twice takes longer than to make them at once. As long as it will not run, many need not be made, and memory is
    // no reason to have no kernel.
    let runs = plan.len() <= FEW || source.runs();
    let (mut strides, mut pace) = (reserved(if runs { plan.len() } else { 0 }).ok()?, Pace::new(args));
    for step in plan {
        let (input, output) = (args.get(step.input).ok()?, args.output(step.output).ok()?);
        if input.ty().element_size() != Some(size) {
            return None;
        }
        let (start, axes) = step.walk.checked(count(input.dims())?, count(&output.dims)?)?;
        if axes.is_empty() {
            continue;
        }
        let table = match operation.ty {
            OperationType::CONCATENATION if runs => {
                requantisation(input.info, output).map(counted).transpose().ok()?
            }
            _ => None,
        };
        pace.spend(if table.is_some() { TABLE } else { WALK }).ok()?;
        let stride = Stride::new((step.input, step.output), size, start, axes, table)?;
        if runs {
            strides.push(stride);
        }
    }
    Some(Box::new(Movement { size, padding: padding(operation.ty, args)?, strides }))
}

/// A table of the many that a call may have, as memory of its client.
fn counted(table: [u8; 256]) -> Result<Table, OpError> {
    let mut counted = reserved(1)?;
    counted.push(table);
    Ok(counted)
}

/// The element that the output consists of beforehand, as often as four bytes have it; `None` in it where all elements
/// are moved to, and altogether where it is not known yet.
fn padding(ty: OperationType, args: &Args) -> Option<Option<[u8; 4]>> {
    let input = args.get(0).ok();
    let element = match ty {
        OperationType::PAD | OperationType::SPACE_TO_BATCH_ND => input?.zero_point().to_le_bytes().to_vec(),
        OperationType::PAD_V2 => args.get(2).ok()?.bytes().ok()?.to_vec(),
        _ => return Some(None),
    };
    let element = element.get(..input?.ty().element_size()?)?;
    Some(Some(std::array::from_fn(|i| element[i % element.len()])))
}

struct Movement {
    /// Bytes of an element.
    size: usize,
    padding: Option<[u8; 4]>,
    strides: Scratch<Stride>,
}

/// By what each byte is replaced: one table.
type Table = Scratch<[u8; 256]>;

/// A walk that writes no element twice, most of them as rows of neighbours.
struct Stride {
    input: usize,
    output: usize,
    /// First elements of input and output.
    start: (usize, usize),
    /// All but those of a row and of a block, outermost first.
    outer: Scratch<Axis>,
    /// An axis along which the input's elements are neighbours, while those of a row are not.
    across: Option<Axis>,
    row: Axis,
    /// Elements of a row that are moved in one go.
    segment: usize,
    /// By what a byte is replaced.
    table: Option<Table>,
}

impl Stride {
    /// Of elements of `size` bytes. `None` where the walk does not write rows, or may write an element twice, and where there is no
    /// memory.
    fn new(
        (input, output): (usize, usize),
        size: usize,
        start: (usize, usize),
        mut axes: Vec<Axis>,
        table: Option<Table>,
    ) -> Option<Self> {
        let row = axes.pop()?;
        // Axes come with the longest steps in the output first: each must step over all within.
        let mut reach = row.to.max(1).checked_mul(row.count - 1)?.checked_add(1).filter(|_| row.to > 0)?;
        for axis in axes.iter().rev() {
            if axis.to < reach {
                return None;
            }
            reach = axis.to.checked_mul(axis.count - 1)?.checked_add(reach)?;
        }
        let is_across = |axis: &Axis| axis.from == 1 && row.from != 1 && row.to == 1;
        let across = axes.iter().position(is_across).map(|i| axes.remove(i));
        let mut outer = reserved(axes.len()).ok()?;
        outer.extend(axes);
        // Fewer if a unit has those of a block's rows.
        let most = if across.is_some() { SEGMENT / BLOCK } else { SEGMENT };
        let segment = most.min(APART / near(row.from, size).max(near(row.to, size)).max(1));
        Some(Stride { input, output, start, outer, across, row, segment, table })
    }

    /// Rows or bands of a block's rows.
    fn units(&self) -> usize {
        self.outer.iter().map(|axis| axis.count as usize).product::<usize>() * self.parts().0 * self.parts().1
    }

    /// In how many parts a unit's block is done, along the axis across and along the row.
    fn parts(&self) -> (usize, usize) {
        let across = self.across.map_or(1, |axis| (axis.count as usize).div_ceil(BLOCK));
        (across, (self.row.count as usize).div_ceil(self.segment))
    }

    /// Bytes or so of a unit.
    fn unit_size(&self) -> usize {
        let across = self.across.map_or(1, |axis| (axis.count as usize).min(BLOCK));
        across * (self.row.count as usize).min(self.segment)
    }

    /// Bytes or so of the pages that a unit is the first to touch, perhaps.
    fn span(&self, size: usize) -> usize {
        let both = |axis: &Axis| near(axis.from, size) + near(axis.to, size);
        let row = both(&self.row) * (self.row.count as usize).min(self.segment);
        let rows = self.across.map_or(0, |axis| near(axis.to, size) * (axis.count as usize).min(BLOCK));
        (row + rows).max(self.outer.last().map_or(0, both))
    }
}

/// The bytes of a step over elements of `size` bytes, but no more than it has of pages.
fn near(step: i64, size: usize) -> usize {
    usize::try_from(step.unsigned_abs()).map_or(PAGE, |step| step.saturating_mul(size).min(PAGE))
}

impl Kernel for Movement {
    fn name(&self) -> String {
        "movement".into()
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        if let (Some(padding), Some(out)) = (self.padding, outputs.first_mut()) {
            let all = out.len();
            work.for_each_chunk(out.part(0, all), SEGMENT, |_, mut part| {
                // Segments are whole elements.
                let len = part.len();
                let to = part.pointer(0, len);
                if padding == [padding[0]; 4] {
                    // SAFETY: `len` bytes were asked for.
                    unsafe { libc::memset(to.cast(), padding[0].into(), len) };
                    return;
                }
                for i in 0..len {
                    // SAFETY: as above.
                    unsafe { to.add(i).write(padding[i % 4]) };
                }
            })?;
        }
        // Strides of equally many short rows, as a concatenation's inputs mostly have, advance together: what one of them has
        // read or written near is then in the cache when the next one comes there.
        let is_short = |stride: &Stride| stride.unit_size() * self.size <= NEAR;
        let go_together = |a: &Stride, b: &Stride| a.units() == b.units() && is_short(a) && is_short(b);
        for strides in self.strides.chunk_by(go_together).flat_map(|strides| strides.chunks(MOST_TOGETHER)) {
            self.side_by_side(strides, inputs, outputs, work)?;
        }
        Ok(())
    }
}

impl Movement {
    /// Moves what belongs to strides of the same number of units, no two of which write the same elements.
    fn side_by_side(
        &self,
        strides: &[Stride],
        inputs: &[Option<View<u8>>],
        outputs: &[Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let units = strides.first().map_or(0, Stride::units);
        let (mut bytes, mut picoseconds, mut span) = (0, 0, 0);
        let mut ways = SmallVec::<[(&Stride, View<u8>, &Target<u8>); 4]>::with_capacity(strides.len());
        for stride in strides {
            let from = inputs.get(stride.input).copied().flatten().ok_or(OpError::Unresolved)?;
            let to = outputs.get(stride.output).ok_or(OpError::Unresolved)?;
            let strided = stride.across.is_some() || (stride.row.from, stride.row.to) != (1, 1);
            let unit = stride.unit_size() * self.size;
            bytes += unit;
            span += stride.span(self.size);
            picoseconds += unit * if strided { 800 } else { 100 } + 10_000;
            ways.push((stride, from, to));
        }
        let count = work.units_per_task(units, picoseconds, 2 * bytes).min(2 * APART / span.max(1)).max(1);
        let at_once = (NEAR / bytes.max(1)).max(1);
        work.in_parts(units, count, |units| {
            for first in units.clone().step_by(at_once) {
                for &(stride, from, to) in &ways {
                    stride.move_units(self.size, first..units.end.min(first + at_once), from, to);
                }
            }
        })
    }
}

impl Stride {
    /// Moves what belongs to some units, elements being of so many bytes.
    fn move_units(&self, size: usize, units: Range<usize>, from: View<u8>, to: &Target<u8>) {
        match size {
            1 => self.move_elements::<u8>(units, from, to),
            2 => self.move_elements::<[u8; 2]>(units, from, to),
            _ => self.move_elements::<[u8; 4]>(units, from, to),
        }
    }

    fn move_elements<T: Copy>(&self, units: Range<usize>, from: View<u8>, to: &Target<u8>) {
        let (across_parts, row_parts) = self.parts();
        let parts = across_parts * row_parts;
        // Where a unit lies is computed once for those beside it, too: that takes longer than to move a few elements.
        let axis = self.outer.last().filter(|_| parts == 1);
        let (count, steps) = axis.map_or((1, (0, 0)), |axis| (axis.count as usize, (axis.from, axis.to)));
        let mut next = units.start;
        while next < units.end {
            let first = next;
            next = units.end.min(first - first % count + count);
            let ((source, target), part) = (self.start_of(first / parts), first % parts);
            let part = (part / row_parts, part % row_parts);
            if parts == 1 && (self.row.from, self.row.to) == (1, 1) && self.table.is_none() {
                self.rows((source, target), steps, size_of::<T>(), next - first, from, to);
                continue;
            }
            for i in 0..(next - first) as i64 {
                self.unit::<T>((source + i * steps.0, target + i * steps.1), part, from, to);
            }
        }
    }

    /// Moves `count` whole rows of neighbours as they are, `steps` apart. Most are short, so that little may be done for each.
    fn rows(
        &self,
        (source, target): (i64, i64),
        steps: (i64, i64),
        size: usize,
        count: usize,
        from: View<u8>,
        to: &Target<u8>,
    ) {
        let len = self.row.count as usize * size;
        let (size, steps) = (size as i64, (steps.0 * size as i64, steps.1 * size as i64));
        let (source, target) = (source * size, target * size);
        let last = source + (count as i64 - 1) * steps.0;
        let (low, high) = (source.min(last) as usize, source.max(last) as usize);
        let from = from.pointer(low, high - low + len).wrapping_sub(low);
        // By their length, so that it is looked at once.
        macro_rules! with {
            ($copy:expr) => {
                for i in 0..count as i64 {
                    let (source, target) = ((source + i * steps.0) as usize, (target + i * steps.1) as usize);
                    // SAFETY: no two units write the same elements; as many bytes of both were asked for, and an output is no
                    // input.
                    unsafe {
                        let mut to = to.disjoint_part(target, len);
                        $copy(from.wrapping_add(source), to.pointer(0, len), len);
                    }
                }
            };
        }
        match len {
            4..8 => with!(copy_parts::<4>),
            8..16 => with!(copy_parts::<8>),
            16..32 => with!(copy_parts::<16>),
            _ => with!(copy),
        }
    }

    /// The first elements of what is row or block `index`, counted along the outer axes.
    fn start_of(&self, index: usize) -> (i64, i64) {
        let mut rest = index;
        let (mut source, mut target) = (self.start.0 as i64, self.start.1 as i64);
        for axis in self.outer.iter().rev() {
            let position = (rest % axis.count as usize) as i64;
            rest /= axis.count as usize;
            source += position * axis.from;
            target += position * axis.to;
        }
        (source, target)
    }

    /// Moves a part of the row or block that starts with these elements.
    fn unit<T: Copy>(
        &self,
        (source, target): (i64, i64),
        (band, part): (usize, usize),
        from: View<u8>,
        to: &Target<u8>,
    ) {
        let (first, band) = (part * self.segment, band * BLOCK);
        let count = self.segment.min(self.row.count as usize - first);
        let (source, target) =
            (source + first as i64 * self.row.from, target as usize + first * self.row.to as usize);
        match self.across {
            Some(across) => {
                let rows = BLOCK.min(across.count as usize - band);
                let target = target + band * across.to as usize;
                self.block::<T>((source + band as i64, target), (rows, across.to as usize), count, from, to);
            }
            None if self.row.to == 1 => self.row::<T>((source, target), count, from, to),
            None => self.apart::<T>((source, target), count, from, to),
        }
    }

    /// Moves `count` elements to where they lie apart.
    fn apart<T: Copy>(&self, (source, target): (i64, usize), count: usize, from: View<u8>, to: &Target<u8>) {
        let size = size_of::<T>();
        let from = from.elements_between(source, self.row.from, count, size);
        for i in 0..count {
            let from = from.wrapping_offset(i as isize * self.row.from as isize * size as isize);
            // SAFETY: no two units write the same elements, and all elements from the first to the last of the source
            // were asked for.
            unsafe {
                let mut to = to.disjoint_part((target + i * self.row.to as usize) * size, size);
                match &self.table {
                    Some(table) => to.set(0, table[0][usize::from(from.read())]),
                    None => {
                        to.pointer(0, size).cast::<T>().write_unaligned(from.cast::<T>().read_unaligned())
                    }
                }
            }
        }
    }

    /// Moves `count` elements to neighbours.
    fn row<T: Copy>(&self, (source, target): (i64, usize), count: usize, from: View<u8>, to: &Target<u8>) {
        let size = size_of::<T>();
        // SAFETY: no two units write the same elements.
        let mut to = unsafe { to.disjoint_part(target * size, count * size) };
        let to = to.pointer(0, count * size);
        if let (1, Some([table])) = (self.row.from, self.table.as_ref().map(|table| &table[..])) {
            let from = from.pointer(source as usize, count);
            for i in 0..count {
                // SAFETY: as many bytes of both were asked for.
                unsafe { to.add(i).write(table[usize::from(from.add(i).read())]) };
            }
        } else if self.row.from == 1 {
            let from = from.pointer(source as usize * size, count * size);
            // SAFETY: as many bytes of both were asked for; an output is no input.
            unsafe { copy(from, to, count * size) };
        } else {
            let from = from.elements_between(source, self.row.from, count, size);
            for i in 0..count {
                let from = from.wrapping_offset(i as isize * self.row.from as isize * size as isize);
                // SAFETY: all elements from the first to the last were asked for.
                unsafe { to.cast::<T>().add(i).write_unaligned(from.cast::<T>().read_unaligned()) };
            }
        }
    }

    /// Moves `rows` rows of `count` elements, `step` apart; the input's neighbours go to neighbouring rows.
    fn block<T: Copy>(
        &self,
        (source, target): (i64, usize),
        (rows, step): (usize, usize),
        count: usize,
        from: View<u8>,
        to: &Target<u8>,
    ) {
        let size = size_of::<T>();
        for first in (0..count).step_by(BLOCK) {
            let width = BLOCK.min(count - first);
            for row in 0..rows {
                // SAFETY: no two units write the same elements.
                let mut to = unsafe { to.disjoint_part((target + row * step + first) * size, width * size) };
                let to = to.pointer(0, width * size).cast::<T>();
                let start = source + row as i64 + first as i64 * self.row.from;
                let from = from.elements_between(start, self.row.from, width, size);
                for i in 0..width {
                    let from = from.wrapping_offset(i as isize * self.row.from as isize * size as isize);
                    // SAFETY: all elements from the first to the last were asked for.
                    unsafe { to.add(i).write_unaligned(from.cast::<T>().read_unaligned()) };
                }
            }
        }
    }
}

/// Copies bytes: a few of them without a call, which takes longer.
///
/// # Safety
/// As many bytes must be there to be read, and others to be written.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    const MOST: usize = 256;
    // SAFETY: by contract.
    unsafe {
        match len {
            0 => {}
            1 => to.write(from.read()),
            2..4 => copy_parts::<2>(from, to, len),
            4..8 => copy_parts::<4>(from, to, len),
            8..16 => copy_parts::<8>(from, to, len),
            16..32 => copy_parts::<16>(from, to, len),
            32..=MOST => copy_parts::<32>(from, to, len),
            _ => drop(libc::memcpy(to.cast(), from.cast(), len)),
        }
    }
}

/// Copies parts of so many bytes, of which the last may lie over the one before.
///
/// # Safety
/// As for [`copy`], of a part at the least.
#[inline(always)]
unsafe fn copy_parts<const PART: usize>(from: *const u8, to: *mut u8, len: usize) {
    let part = |at: usize| {
        // SAFETY: by contract, as a part from there on is within.
        unsafe {
            let bytes = from.add(at).cast::<[u8; PART]>().read_unaligned();
            to.add(at).cast::<[u8; PART]>().write_unaligned(bytes);
        }
    };
    let last = len - PART;
    (0..last).step_by(PART).for_each(part);
    part(last);
}

/// Elements that lie apart.
trait Apart {
    /// A pointer to element `start` of `size` bytes, from which `count` elements, each `step` from the one before, may be
    /// read.
    fn elements_between(self, start: i64, step: i64, count: usize, size: usize) -> *const u8;
}

impl Apart for View<'_, u8> {
    #[inline]
    fn elements_between(self, start: i64, step: i64, count: usize, size: usize) -> *const u8 {
        let last = start + (count as i64 - 1) * step;
        let (low, high) = (start.min(last) as usize, start.max(last) as usize);
        self.pointer(low * size, (high - low + 1) * size).wrapping_add((start as usize - low) * size)
    }
}
