//! From 32-bit sums to bytes, exactly as [`Multiplier`] rounds, in a form that vectors compute without a branch.
//!
//! With x the sum, m the mantissa and r the right shift, rounding the doubled high product and then its shift, halves away
//! from zero, is
//! `(x m + 2^30 + 2^(30+r) - (x < 0) 2^31) >> (31+r)`, and for r = 0 `(x m + 2^30) >> 31`: floors nest, and the doubled
//! high product is 0 where its sign and that of x differ, which either rounding leaves at 0. Rounding once is
//! `(x m + 2^(30+r)) >> (31+r)`. So one formula with three constants a column serves both. 64 bits are enough: the product
//! is at most 2^62, the constants at most 2^61 + 2^30.
//!
//! A left shift saturates before the product. Clamping x to what can be shifted is as good: either way the result is beyond
//! all bytes, as mantissas are at least 2^30.
//!
//! Where vectors have instructions that round and saturate of themselves, they get the multiplier's parts as they are.
//!
//! All but a few sums need no 64 bits. With v = x m / 2^(31+r), either formula is v, moved away from 0 by n = 2^-(r+1) where
//! it rounds twice and by nothing otherwise, and then rounded: floor(v + 1/2). Floats compute that before its floor, plus the
//! output's zero point, in units of 2^-16, of which [`OFF`] are added besides. Up to |v| = 512 they are off by less than so
//! many: the sum, the multiplier, the product, what is added to it and the conversion round by 2 + 2 + 2 + 1 + 1/2 units at most.
//! So the upper half of the 32 bits is the output before it is bounded, unless the lower half is below [`UNSURE`], twice
//! as much. Beyond 512 all is bounded to the same byte whatever the zero point. What does not fit 32 bits becomes -2^31,
//! whose lower half is 0: unsure as well. Where one of a few vectors' sums is unsure, those take the formula. Multipliers of 1
//! and more do always.
//!
//! Where all outputs below the zero point are one byte, v may be moved up below 0, too: what that changes is at most the
//! zero point, and that byte is not below it.

use super::size::{Panel, Size, SHORT};
use crate::memory::AlignedBuf;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::Interrupt;
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;

/// What turns the sums of a product's columns into bytes.
pub struct Requant {
    /// For each vector of columns, in the wide form: mantissas, roundings, signs and shifts, each 64 bits, those of even
    /// columns first.
    wide: AlignedBuf,
    /// For each vector of columns, each 32 bits, in the wide form: the least and the largest sum, and the left shift; empty
    /// where no column has one. In the narrow form: the mantissa, the right shift as a negative number, the left shift.
    narrow: AlignedBuf,
    /// For each vector of columns, each 32 bits, in the wide form: multipliers and what moves sums away from 0, as floats in
    /// units of 2^-16; empty where a multiplier is 1 or more. Where outputs are one-sided, all else that is added to scaled
    /// sums is in there, too.
    quick: AlignedBuf,
    rounding: Rounding,
    /// The last vector of columns that has constants: the first if all have the same.
    last: usize,
    lanes: usize,
    /// For each panel what is known of the size of its scaled sums, where weights stay what they are.
    sizes: Option<Scratch<Size>>,
    /// As the rows of inputs are summed as well: how often a row's sum is to be subtracted. 0 where it need not be known.
    pub row_factor: i32,
    pub target: Bytes,
}

/// What floats are off by at most, in units of 2^-16.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // others round of themselves
pub const OFF: i32 = 8;

/// How many such units above an integer a float must be to be sure of its floor.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub const UNSURE: i32 = 2 * OFF;

/// One in those units.
const ONE: f32 = 65536.0;

/// What constants vectors want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Those of the formula above.
    Wide,
    /// The multiplier's parts.
    Narrow,
}

/// How the narrow form rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// As [`Multiplier::apply_once`] does.
    Once,
    /// As [`Multiplier::apply`] does.
    Twice,
    /// The same where all multipliers are below a half, as nearly all are: each shifts to the right.
    TwiceBelowHalf,
}

impl Rounding {
    /// That of multipliers whose largest shift is this.
    fn of(shift: i32, once: bool) -> Self {
        match (once, shift < 0) {
            (true, _) => Rounding::Once,
            (_, false) => Rounding::Twice,
            (_, true) => Rounding::TwiceBelowHalf,
        }
    }
}

/// The output's bytes, as unsigned ones until they are stored.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    pub zero: i16,
    pub low: u8,
    pub high: u8,
    /// What they are xored with to become the output's type.
    pub flip: u8,
}

/// How the bytes of an output come from its sums.
pub struct Requantisation<'a> {
    /// Per column.
    pub multipliers: &'a [Multiplier],
    pub ty: OperandType,
    pub zero: i32,
    /// Least and largest output.
    pub range: (i32, i32),
    /// Whether to round as [`Multiplier::apply_once`] does.
    pub once: bool,
    /// There may be very many columns.
    pub interrupt: &'a dyn Interrupt,
}

/// What it costs to make a column's constants, in the steps that [`Pace`] counts.
const CONSTANTS: usize = 8;

/// The constants of one vector of columns.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Four times as many elements as there are lanes, in the wide form.
    pub wide: *const i64,
    /// Three times as many; null where there are none.
    pub narrow: *const i32,
    /// Twice as many; null where there are none.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub quick: *const f32,
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))] // it is in the constants of the wide form
    pub rounding: Rounding,
}

impl Requant {
    /// For vectors of so many lanes. `None` where there is no memory, or the work is to stop.
    pub fn new(requantisation: &Requantisation, form: Form, lanes: usize, row_factor: i32) -> Option<Self> {
        let (once, target) = (requantisation.once, Bytes::new(requantisation));
        let multipliers = requantisation.multipliers;
        let (mut pace, mut uniform, mut shift) = (Pace::of(requantisation.interrupt), true, i32::MIN);
        let each = pace.each(multipliers, 1, |multiplier| {
            uniform &= Some(multiplier) == multipliers.first();
            shift = multiplier.shift.max(shift);
        });
        each.ok()?;
        let vectors = match multipliers.len() {
            // Its kernel is only asked for, and will not run.
            0 => 0,
            _ if uniform => 1,
            count => count.div_ceil(lanes),
        };
        let shifted = shift > 0;
        let count = vectors.checked_mul(lanes)?;
        let (wides, narrows) = match form {
            Form::Wide => (4, if shifted { 3 } else { 0 }),
            Form::Narrow => (0, 3),
        };
        let mut wide = AlignedBuf::zeroed(count.checked_mul(wides * size_of::<i64>())?)?;
        let mut narrow = AlignedBuf::zeroed(count.checked_mul(narrows * size_of::<i32>())?)?;
        let quicks = if form == Form::Narrow || shifted { 0 } else { 2 };
        let mut quick = AlignedBuf::zeroed(count.checked_mul(quicks * size_of::<f32>())?)?;
        let to_quick = bytemuck::cast_slice_mut::<_, f32>(&mut quick);
        let (to_wide, to_narrow) =
            (bytemuck::cast_slice_mut::<_, i64>(&mut wide), bytemuck::cast_slice_mut::<_, i32>(&mut narrow));
        for column in 0..count {
            pace.spend(CONSTANTS).ok()?;
            let multiplier = if uniform { multipliers.first() } else { multipliers.get(column) };
            let Some(multiplier) = multiplier else { break };
            let (vector, lane) = (column / lanes, column % lanes);
            let (left, right) = (multiplier.shift.clamp(0, 30), (-multiplier.shift).clamp(0, 31));
            let mut put_narrow = |constants: [i32; 3]| {
                let at = vector * 3 * lanes + lane;
                constants
                    .into_iter()
                    .enumerate()
                    .for_each(|(i, constant)| to_narrow[at + i * lanes] = constant);
            };
            if form == Form::Narrow {
                put_narrow([multiplier.mantissa, -right, left]);
                continue;
            }
            let half = 1i64 << (30 + right);
            let twice = right > 0 && !once;
            let round = if twice { half + (1 << 30) } else { half };
            let at = vector * 4 * lanes + lane % 2 * (lanes / 2) + lane / 2;
            let sign = if twice { 1 << 31 } else { 0 };
            let constants = [multiplier.mantissa.into(), round, sign, i64::from(31 + right)];
            constants.into_iter().enumerate().for_each(|(i, constant)| to_wide[at + i * lanes] = constant);
            if shifted {
                put_narrow([i32::MIN >> left, i32::MAX >> left, left]);
            } else {
                let at = vector * 2 * lanes + lane;
                let real = f64::from(multiplier.mantissa) / (1u64 << (31 + right)) as f64;
                let nudge = if twice { 0.5 / (1u64 << right) as f32 } else { 0.0 };
                to_quick[at] = real as f32 * ONE;
                to_quick[at + lanes] = nudge * ONE + if target.is_one_sided() { target.base() } else { 0.0 };
            }
        }
        let rounding = Rounding::of(shift, once);
        Some(Requant {
            wide,
            narrow,
            quick,
            rounding,
            last: vectors.max(1) - 1,
            lanes,
            sizes: None,
            row_factor,
            target,
        })
    }

    /// The same for so many panels whose weights stay what they are. `None` where there is no memory.
    pub fn of_constants(mut self, panels: usize) -> Option<Self> {
        // In the other form nobody asks for sizes.
        if !self.narrow.is_empty() && self.wide.is_empty() {
            let mut sizes = reserved(panels).ok()?;
            sizes.resize_with(panels, Size::default);
            self.sizes = Some(sizes);
        }
        Some(self)
    }

    /// Whether all sums of a panel, whose first column is `first`, are within 16 bits when they are scaled, in the narrow form.
    ///
    /// # Safety
    /// The panel must be there.
    #[inline(always)]
    pub unsafe fn is_short(&self, first: usize, panel: &Panel) -> bool {
        let size = self.sizes.as_ref().and_then(|sizes| sizes.get(first / panel.columns));
        match size.and_then(Size::known) {
            Some(is_short) => is_short,
            // SAFETY: by contract.
            None => unsafe { self.find_size(first, panel, size) },
        }
    }

    /// # Safety
    /// As for [`Self::is_short`].
    #[cold]
    #[inline(never)]
    unsafe fn find_size(&self, first: usize, panel: &Panel, size: Option<&Size>) -> bool {
        let mut columns = 0..panel.columns;
        // SAFETY: the panel has the columns.
        let is_short = columns.clone().all(|c| self.is_short_sum(first + c, unsafe { panel.largest(c) }));
        let Some(size) = size else { return is_short };
        let is_short = is_short
            // SAFETY: as above.
            || columns.all(|c| self.is_short_sum(first + c, unsafe { panel.largest_by_weights(c) }));
        size.remember(is_short);
        is_short
    }

    /// Whether a sum of a column that is at most so large is within 16 bits when it is scaled, in the narrow form.
    pub fn is_short_sum(&self, column: usize, largest: f64) -> bool {
        let (vector, lane) = ((column / self.lanes).min(self.last), column % self.lanes);
        let constants: &[i32] = bytemuck::cast_slice(&self.narrow);
        let constant = |which: usize| constants[(vector * 3 + which) * self.lanes + lane];
        let (mantissa, right, left) = (constant(0), constant(1), constant(2));
        largest * f64::from(mantissa) * 2f64.powi(left + right - 31) <= SHORT
    }

    /// Whether it rounds as most do.
    #[cfg(target_arch = "aarch64")]
    pub fn is_usual(&self) -> bool {
        self.rounding == Rounding::TwiceBelowHalf
    }

    /// The constants of a vector of columns. One that is beyond the last gets those of the last, for a panel that ends
    /// with a vector of no columns.
    #[inline(always)]
    pub fn scales(&self, vector: usize) -> Scales {
        let at = vector.min(self.last) * self.lanes;
        let narrow = match self.narrow.is_empty() {
            true => std::ptr::null(),
            false => self.narrow.as_ptr().cast::<i32>().wrapping_add(at * 3),
        };
        let quick = match self.quick.is_empty() {
            true => std::ptr::null(),
            false => self.quick.as_ptr().cast::<f32>().wrapping_add(at * 2),
        };
        let wide = self.wide.as_ptr().cast::<i64>().wrapping_add(at * 4);
        Scales { wide, narrow, quick, rounding: self.rounding }
    }
}

impl Bytes {
    fn new(requantisation: &Requantisation) -> Self {
        let flip = if requantisation.ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED { 0x80 } else { 0 };
        let byte = |value: i32| (value + i32::from(flip)).clamp(0, 255) as u8;
        let (low, high) = (byte(requantisation.range.0), byte(requantisation.range.1));
        Bytes { zero: i16::from(byte(requantisation.zero)), low, high, flip }
    }

    /// Whether all outputs below the zero point are one byte.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    pub fn is_one_sided(&self) -> bool {
        i16::from(self.low) >= self.zero
    }

    /// What is added to scaled sums in units of 2^-16, whatever their sign: an exact float.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    pub fn base(&self) -> f32 {
        (f32::from(self.zero) + 0.5) * ONE + OFF as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Counting;

    #[test]
    fn constants_of_very_many_columns_are_made_with_pauses() {
        const COLUMNS: usize = 1 << 18;
        let multipliers: Vec<_> =
            (0..COLUMNS).map(|i| Multiplier::new(0.2 + (i % 8) as f64 / 64.0)).collect();
        for form in [Form::Wide, Form::Narrow] {
            let interrupt = Counting::default();
            let requantisation = Requantisation {
                multipliers: &multipliers,
                ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                zero: 0,
                range: (-128, 127),
                once: false,
                interrupt: &interrupt,
            };
            assert!(Requant::new(&requantisation, form, 8, 0).is_some());
            // To look at them alone comes by one for each 65,536.
            let passed = interrupt.take();
            assert!(passed >= COLUMNS >> 13, "{form:?}: {passed} yield points");
        }
    }
}
