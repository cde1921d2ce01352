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

use crate::memory::AlignedBuf;
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;

/// What turns the sums of a product's columns into bytes.
pub struct Requant {
    /// For each vector of columns: mantissas, roundings, signs and shifts, each 64 bits, those of even columns first.
    scales: AlignedBuf,
    /// For each vector of columns: the least and the largest sum, and the left shift, each 32 bits; empty where no column
    /// has one.
    left: AlignedBuf,
    /// The last vector of columns that has constants: the first if all have the same.
    last: usize,
    lanes: usize,
    /// As the rows of inputs are summed as well: how often a row's sum is to be subtracted. 0 where it need not be known.
    pub row_factor: i32,
    pub target: Bytes,
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
}

/// The constants of one vector of columns.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Four times as many elements as there are lanes.
    pub scales: *const i64,
    /// Three times as many; null where nothing is shifted left.
    pub left: *const i32,
}

impl Requant {
    /// For vectors of so many lanes. `None` where there is no memory.
    pub fn new(requantisation: &Requantisation, lanes: usize, row_factor: i32) -> Option<Self> {
        let multipliers = requantisation.multipliers;
        let uniform = multipliers.iter().all(|m| Some(m) == multipliers.first());
        let vectors = if uniform { 1 } else { multipliers.len().div_ceil(lanes) };
        let shifted = multipliers.iter().any(|m| m.shift > 0);
        let count = vectors.checked_mul(lanes)?;
        let mut scales = AlignedBuf::zeroed(count.checked_mul(4 * size_of::<i64>())?)?;
        let mut left = AlignedBuf::zeroed(if shifted { count * 3 * size_of::<i32>() } else { 0 })?;
        let (wide, narrow) =
            (bytemuck::cast_slice_mut::<_, i64>(&mut scales), bytemuck::cast_slice_mut::<_, i32>(&mut left));
        for column in 0..count {
            let multiplier = if uniform { multipliers.first() } else { multipliers.get(column) };
            let Some(multiplier) = multiplier else { break };
            let (vector, lane) = (column / lanes, column % lanes);
            let right = (-multiplier.shift).clamp(0, 31);
            let half = 1i64 << (30 + right);
            let twice = right > 0 && !requantisation.once;
            let round = if twice { half + (1 << 30) } else { half };
            let at = vector * 4 * lanes + lane % 2 * (lanes / 2) + lane / 2;
            let sign = if twice { 1 << 31 } else { 0 };
            let constants = [multiplier.mantissa.into(), round, sign, i64::from(31 + right)];
            constants.into_iter().enumerate().for_each(|(i, constant)| wide[at + i * lanes] = constant);
            if shifted {
                let (at, shift) = (vector * 3 * lanes + lane, multiplier.shift.clamp(0, 30));
                let bounds = [i32::MIN >> shift, i32::MAX >> shift, shift];
                bounds.into_iter().enumerate().for_each(|(i, bound)| narrow[at + i * lanes] = bound);
            }
        }
        let target = Bytes::new(requantisation);
        Some(Requant { scales, left, last: vectors.max(1) - 1, lanes, row_factor, target })
    }

    /// The constants of a vector of columns. One that is beyond the last gets those of the last, for a panel that ends
    /// with a vector of no columns.
    #[inline(always)]
    pub fn scales(&self, vector: usize) -> Scales {
        let at = vector.min(self.last) * self.lanes;
        let left = match self.left.is_empty() {
            true => std::ptr::null(),
            false => self.left.as_ptr().cast::<i32>().wrapping_add(at * 3),
        };
        Scales { scales: self.scales.as_ptr().cast::<i64>().wrapping_add(at * 4), left }
    }
}

impl Bytes {
    fn new(requantisation: &Requantisation) -> Self {
        let flip = if requantisation.ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED { 0x80 } else { 0 };
        let byte = |value: i32| (value + i32::from(flip)).clamp(0, 255) as u8;
        let (low, high) = (byte(requantisation.range.0), byte(requantisation.range.1));
        Bytes { zero: i16::from(byte(requantisation.zero)), low, high, flip }
    }
}
