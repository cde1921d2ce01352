//! Weights packed for a micro-kernel, with all that turns sums into outputs.

use super::choice;
use super::dynamic::{Column, Dynamic};
use super::float::Float;
use super::layout::{Layout, Pace};
use super::micro::{Block, Family, Line, Micro, Shape};
use super::quant::Quant;
use super::requant::{Requant, Requantisation};
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::vector::{Level, Loop};
use crate::backend::cpu::kernels::Source;
use crate::memory::{View, Weights};
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{copy, Interrupt};

/// What is packed.
pub struct Constants<'w, W, B> {
    /// `[column][input]`, which is how NNAPI lays out filters. Wherever they lie, each is read once or twice.
    pub weights: View<'w, W>,
    /// Per column.
    pub bias: &'w [B],
    /// Asked often; should it say so, nothing is packed.
    pub interrupt: &'w dyn Interrupt,
}

/// Inputs of a row, at the most: a few rows times the weights of a few columns are multiplied without a look whether to stop,
/// and that takes some milliseconds with so many. A product of more is evaluated plainly.
pub const MOST_INPUTS: usize = 1 << 18;

/// The packed side of a product.
pub struct Packed<F: Family> {
    pub micro: &'static Micro<F>,
    pub shape: Shape,
    /// Weights of a column for a segment.
    pub padded: usize,
    panels: Weights,
    bias: Weights,
    scaling: F::Scaling,
}

impl Packed<Float> {
    /// Packs what `constants` gives, for about so many rows of inputs. `None` where it gives nothing, or no memory is left, or
    /// lengths do not fit.
    pub fn float<'w>(
        isa: Isa,
        rows: usize,
        shape: Shape,
        range: (f32, f32),
        source: &mut Source,
        constants: impl FnOnce() -> Option<Constants<'w, f32, f32>>,
    ) -> Option<Self> {
        let micro = choice::float(isa, rows, shape);
        Packed::new(micro, shape, range, source, constants, |_, bias| bias, 0)
    }

    /// Weights that `fill` packs by itself for a [simple](choice::simple_float) micro-kernel, and biases that `bias` fills in.
    /// Columns are those of whole panels, of one segment. `None` as above.
    pub fn filled(
        micro: &'static Micro<Float>,
        shape: Shape,
        source: &mut Source,
        fill: impl FnOnce(&mut [f32]) -> Option<()>,
        bias: impl FnOnce(&mut [f32]) -> Option<()>,
    ) -> Option<Self> {
        let Shape { columns, segments, depth } = shape;
        if segments != 1 || !columns.is_multiple_of(micro.columns) || depth > MOST_INPUTS {
            return None;
        }
        let panels = source.take(columns.checked_mul(depth)?, fill)?;
        let bias = source.take(columns, bias)?;
        let scaling = (f32::NEG_INFINITY, f32::INFINITY);
        Some(Packed { micro, shape, padded: depth, panels, bias, scaling })
    }

    /// Multiplies rows of inputs by so many columns from a panel on, to `to`, where rows are `stride` elements apart.
    ///
    /// # Safety
    /// As for [`Self::multiply`], but for where outputs go.
    pub unsafe fn multiply_apart(
        &self,
        inputs: &[*const f32],
        panel: usize,
        columns: usize,
        (to, stride): (*mut f32, usize),
    ) {
        let first = panel * self.micro.columns;
        // SAFETY: the same contract.
        unsafe { self.run((inputs, None), inputs.len(), first..first + columns, (to, stride), &mut []) }
    }
}

/// Zero points of 8-bit inputs and weights, of the types as they are.
#[derive(Clone, Copy, Debug)]
pub struct Zeros {
    pub signed_inputs: bool,
    pub input: i32,
    pub signed_weights: bool,
    pub weight: i32,
}

/// How zero points become part of the weights and of the bias.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    /// What weights are xored with to become signed, and to become what the micro-kernel wants.
    sign: i8,
    pub flip: i8,
    /// Zero point of the signed weights.
    zero: i32,
    input: i32,
    /// Inputs of a row.
    inputs: i32,
    /// How often the sum of a row's inputs is to be subtracted.
    pub row_factor: i32,
}

impl Folding {
    pub fn new(zeros: Zeros, micro: &Micro<Quant>, inputs: usize) -> Self {
        // Bytes become signed by one flip, and what the micro-kernel wants by the other; the zero point moves along.
        let sign = if zeros.signed_weights { 0 } else { 0x80u8 };
        let zero = zeros.weight - i32::from(sign);
        Folding {
            sign: sign as i8,
            flip: (sign ^ micro.flip) as i8,
            zero,
            input: zeros.input,
            inputs: inputs as i32,
            row_factor: zero + i32::from(micro.flip),
        }
    }

    /// A weight as a number, yet with its zero point.
    #[inline(always)]
    pub fn number(&self, weight: i8) -> i32 {
        (weight ^ self.sign).into()
    }

    /// The bias of a column whose weights have this sum.
    #[inline(always)]
    pub fn bias(&self, sum: i32, bias: i32) -> i32 {
        let constant = self.inputs.wrapping_mul(self.zero).wrapping_sub(sum).wrapping_mul(self.input);
        bias.wrapping_add(constant)
    }
}

impl Packed<Quant> {
    /// Packs what `constants` gives: weights as bytes of whatever type. `None` as for floats.
    pub fn quant<'w>(
        isa: Isa,
        shape: Shape,
        zeros: Zeros,
        requantisation: &Requantisation,
        source: &mut Source,
        constants: impl FnOnce() -> Option<Constants<'w, i8, i32>>,
    ) -> Option<Self> {
        let micro = choice::quant(isa, zeros.signed_inputs);
        let inputs = shape.inputs()?;
        if source.runs() && requantisation.multipliers.len() != shape.columns {
            return None;
        }
        let folding = Folding::new(zeros, micro, inputs);
        let requant = Requant::new(requantisation, micro.form, micro.columns / 2, folding.row_factor)?;
        let requant = requant.of_constants(shape.columns.div_ceil(micro.columns))?;
        let folded = |row: View<i8>, bias: i32| folding.bias(sum(row, folding.sign), bias);
        Packed::new(micro, shape, requant, source, constants, folded, folding.flip as u8)
    }
}

/// The same of [dynamic](Dynamic) products: sums of more may be beyond 32 bits.
const MOST_DYNAMIC: usize = 1 << 16;
/// Inputs of a row, of a segment of it, and columns from which on it pays to make rows bytes.
const LEAST_DYNAMIC: (usize, usize, usize) = (32, 16, 16);

impl Packed<Dynamic> {
    /// Packs what `constants` gives: signed bytes without a zero point. `None` as for floats, where the instruction set has
    /// no such product, and where it does not pay.
    pub fn dynamic<'w>(
        isa: Isa,
        shape: Shape,
        range: (f32, f32),
        source: &mut Source,
        constants: impl FnOnce() -> Option<Constants<'w, i8, Column>>,
    ) -> Option<Self> {
        let (inputs, (least, depth, columns)) = (shape.inputs()?, LEAST_DYNAMIC);
        if !(least..=MOST_DYNAMIC).contains(&inputs) || shape.depth < depth || shape.columns < columns {
            return None;
        }
        let micro = choice::dynamic(isa)?;
        let folded = |row: View<i8>, column: Column| Column { sum: sum(row, 0), ..column };
        Packed::new(micro, shape, range, source, constants, folded, 0)
    }
}

impl<F: Family> Packed<F> {
    fn new<'w>(
        micro: &'static Micro<F>,
        shape: Shape,
        scaling: F::Scaling,
        source: &mut Source,
        constants: impl FnOnce() -> Option<Constants<'w, F::Weight, F::Bias>>,
        folded: impl Fn(View<F::Weight>, F::Bias) -> F::Bias,
        flip: u8,
    ) -> Option<Self> {
        let Shape { columns, segments, depth } = shape;
        let inputs = shape.inputs()?;
        if columns == 0 || inputs == 0 || inputs > MOST_INPUTS {
            return None;
        }
        let padded = (micro.padded)(depth);
        let all = columns.checked_next_multiple_of(micro.columns)?;
        let size = size_of::<F::Weight>();
        let given = if source.packs() { Some(constants()?) } else { None };
        let biases = match &given {
            Some(given) => Some(biases(given, shape, folded)?),
            None => None,
        };
        // Floats and groups of bytes may be as long.
        let form = [size, micro.group, micro.columns, padded, segments, depth, flip.into()];
        let from = given.as_ref().map(|given| given.weights.bytes());
        let count = all.checked_mul(segments)?.checked_mul(padded)?;
        let panels = source.take_once(from, form, count, |packed: &mut [F::Weight]| {
            let Constants { weights, interrupt, .. } = given.as_ref()?;
            let mut pace = Pace::of(*interrupt);
            let shape = Shape { depth: depth * size, ..shape };
            let layout = Layout { shape, padded: padded * size, columns: micro.columns, flip };
            let (weights, packed) = (weights.bytes(), bytemuck::cast_slice_mut(packed));
            match micro.group * size {
                1 => layout.pack::<1>(weights, packed, &mut pace),
                2 => layout.pack::<2>(weights, packed, &mut pace),
                4 => layout.pack::<4>(weights, packed, &mut pace),
                8 => layout.pack::<8>(weights, packed, &mut pace),
                _ => None,
            }
        })?;
        let bias = source.take(all, |to: &mut [F::Bias]| {
            let (from, interrupt) = (biases?, given?.interrupt);
            copy(interrupt, bytemuck::cast_slice_mut(to.get_mut(..columns)?), bytemuck::cast_slice(&from))
                .ok()
        })?;
        Some(Packed { micro, shape, padded, panels, bias, scaling })
    }

    pub fn weights(&self) -> Vec<&Weights> {
        vec![&self.panels, &self.bias]
    }

    /// Elements of a panel.
    fn panel(&self) -> usize {
        self.micro.columns * self.shape.segments * self.padded
    }

    /// How many panels there are.
    pub fn panels(&self) -> usize {
        self.shape.columns.div_ceil(self.micro.columns)
    }

    /// Multiplies rows of inputs by some of the panels.
    ///
    /// # Safety
    /// Each pointer of `inputs`, `[segment][row]`, must be valid for the padded depth, at one distance from the next of its
    /// segment if the micro-kernel wants it so, or as `line` says; `outputs`, of the first row and column 0, for all rows at a distance of all
    /// columns. There must be at least one row, at most [`MAX_ROWS`](super::micro::MAX_ROWS), and the micro-kernel's room,
    /// aligned to 64 bytes.
    pub unsafe fn multiply_lines(
        &self,
        (inputs, line): (&[*const F::Input], Option<Line>),
        rows: usize,
        panels: std::ops::Range<usize>,
        outputs: *mut F::Output,
        room: &mut [u8],
    ) {
        let first = panels.start * self.micro.columns;
        let columns = first..self.shape.columns.min(panels.end * self.micro.columns);
        let to = outputs.wrapping_add(first);
        // SAFETY: the same contract.
        unsafe { self.run((inputs, line), rows, columns, (to, self.shape.columns), room) }
    }

    /// The same for columns from the first one of a panel on, to `outputs`, which is where the first row's go, so many elements
    /// from one row to the next.
    ///
    /// # Safety
    /// As for [`Self::multiply_lines`].
    unsafe fn run(
        &self,
        (inputs, line): (&[*const F::Input], Option<Line>),
        rows: usize,
        columns: std::ops::Range<usize>,
        (outputs, stride): (*mut F::Output, usize),
        room: &mut [u8],
    ) {
        debug_assert!(room.len() >= self.micro.room);
        let width = self.micro.columns;
        let panels = columns.start / width..columns.end.div_ceil(width);
        let block = Block {
            inputs,
            line,
            rows,
            depth: self.shape.depth,
            padded: self.padded,
            group: self.micro.group,
            panels: self.panels.elements(panels.start * self.panel(), panels.len() * self.panel()),
            panel: self.panel(),
            columns: columns.len(),
            bias: self.bias.elements(columns.start, panels.len() * width),
            outputs,
            stride,
            finish: F::finish(&self.scaling, columns.start),
            room: room.as_mut_ptr(),
        };
        // SAFETY: micro-kernels come from detected instruction sets; the weights were asked for, the rest is the contract.
        unsafe { (self.micro.run)(&block) }
    }

    /// The same of rows that have nothing between them, by a micro-kernel that needs no room.
    ///
    /// # Safety
    /// As for [`Self::multiply_lines`].
    pub unsafe fn multiply(
        &self,
        inputs: &[*const F::Input],
        rows: usize,
        panels: std::ops::Range<usize>,
        outputs: *mut F::Output,
    ) {
        // SAFETY: the same contract.
        unsafe { self.multiply_lines((inputs, None), rows, panels, outputs, &mut []) }
    }
}

/// What a column costs besides its weights, in bytes that are packed meanwhile.
const COLUMN: usize = 64;

/// What `folded` makes of the bias of each column and its weights. `None` where these are not as many as the shape says, no
/// memory is left, or it was interrupted.
fn biases<W: bytemuck::Pod, B: Copy>(
    constants: &Constants<W, B>,
    shape: Shape,
    folded: impl Fn(View<W>, B) -> B,
) -> Option<Scratch<B>> {
    let Constants { weights, bias: given, interrupt } = constants;
    let (columns, inputs) = (shape.columns, shape.inputs()?);
    if weights.len() != columns.checked_mul(inputs)? || given.len() != columns {
        return None;
    }
    let mut pace = Pace::of(*interrupt);
    let mut bias = reserved(columns).ok()?;
    for (column, &given) in given.iter().enumerate() {
        pace.spend(inputs * size_of::<W>() + COLUMN)?;
        bias.push(folded(weights.part(column * inputs, inputs), given));
    }
    Some(bias)
}

/// The sum of a column's weights, which become signed if they are xored with `sign`.
fn sum(row: View<i8>, sign: i8) -> i32 {
    let mut sum = 0;
    Level::detect().run(Sum { row, sign, sum: &mut sum });
    sum
}

struct Sum<'a, 'w> {
    row: View<'w, i8>,
    sign: i8,
    sum: &'a mut i32,
}

impl Loop for Sum<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let (len, sign) = (self.row.len(), self.sign);
        let row = self.row.pointer(0, len);
        // SAFETY: `len` weights were asked for.
        let numbers = (0..len).map(|i| i32::from(unsafe { row.add(i).read_unaligned() } ^ sign));
        *self.sum = numbers.fold(0, i32::wrapping_add);
    }
}
