//! SOFTMAX of 8-bit lanes whose elements lie side by side: the bytes of the plain evaluation.

use super::gemm::Room;
use super::kernel::{input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::OpError;
use crate::tensor::fixed_softmax::Exponentials;

/// Elements of a lane that is short, and lanes that are a block of such.
const SHORT: usize = 32;
const LANES: usize = 64;

pub(super) struct Bytes {
    pub level: Level,
    /// Elements of a lane.
    pub len: usize,
    pub exponentials: Exponentials,
    /// What makes an unsigned element of one, and back.
    pub flip: u8,
}

impl Kernel for Bytes {
    fn name(&self) -> String {
        format!("softmax {} 8-bit", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let lanes = work.units_per_task(out.len() / self.len, self.len * 3000, 2 * self.len);
        work.try_for_each_chunk(out, lanes * self.len, |first, out| {
            let (mut room, len) = (Room::default(), if self.len > SHORT { self.len } else { 0 });
            let (powers, bytes) = (len * size_of::<i32>(), len * (size_of::<i32>() + 1));
            room.make(bytes)?;
            let (powers, lane) = room[..bytes].split_at_mut(powers);
            let (powers, input) = (bytemuck::cast_slice_mut(powers), input.part(first, out.len()));
            self.level.run(ByteLanes { softmax: self, input, out, powers, lane });
            Ok(())
        })
    }
}

struct ByteLanes<'a> {
    softmax: &'a Bytes,
    input: View<'a, u8>,
    out: Target<'a, u8>,
    /// Room for the exponentials of a lane that is not short, and for its elements.
    powers: &'a mut [i32],
    lane: &'a mut [u8],
}

impl Loop for ByteLanes<'_> {
    #[inline(always)]
    fn run(self) {
        match self.softmax.len <= SHORT {
            true => self.run_short(),
            false => self.run_each(),
        }
    }
}

impl ByteLanes<'_> {
    /// The same for lanes that are shorter than a vector, as those of pixels: many of them are a block, whose first elements lie
    /// side by side, then whose second ones, and so on.
    #[inline(always)]
    fn run_short(mut self) {
        let Bytes { len, flip, ref exponentials, .. } = *self.softmax;
        // What lies behind the last lane takes part, and no one reads what it becomes.
        let mut block = [0u8; SHORT * LANES];
        let (mut distances, mut powers) = ([[0u8; LANES]; SHORT], [[0i32; LANES]; SHORT]);
        let (distances, powers) = (&mut distances[..len], &mut powers[..len]);
        let (mut mantissas, mut rights) = ([0i32; LANES], [0u32; LANES]);
        for start in (0..self.out.len()).step_by(len * LANES) {
            let count = (len * LANES).min(self.out.len() - start);
            // A copy, as the greatest must be the greatest throughout.
            self.input.part(start, count).copy_to(&mut block[..count]);
            let mut max = [0u8; LANES];
            for (i, plane) in distances.iter_mut().enumerate() {
                let elements = block[i..].iter().step_by(len);
                plane.iter_mut().zip(elements).for_each(|(to, &q)| *to = q ^ flip);
                max.iter_mut().zip(&*plane).for_each(|(max, &q)| *max = q.max(*max));
            }
            let mut sums = [0i32; LANES];
            for (distances, powers) in distances.iter_mut().zip(&mut *powers) {
                distances.iter_mut().zip(&max).for_each(|(q, max)| *q = max - *q);
                powers.iter_mut().zip(&*distances).for_each(|(to, &d)| *to = exponentials.of(d.into()));
                sums.iter_mut().zip(&*powers).for_each(|(sum, &power)| *sum += Exponentials::term_of(power));
            }
            for ((mantissa, right), &sum) in mantissas.iter_mut().zip(&mut rights).zip(&sums) {
                let shares = Shares::of_few(sum);
                (*mantissa, *right) = (shares.mantissa, shares.right);
            }
            for (i, powers) in powers.iter().enumerate() {
                let (mut plane, multipliers) = ([0u8; LANES], mantissas.iter().zip(&rights));
                for ((to, &power), (&mantissa, &right)) in plane.iter_mut().zip(powers).zip(multipliers) {
                    *to = Shares { mantissa, right }.of(power) ^ flip;
                }
                // By itself, as writes at a distance are no vectors.
                block[i..].iter_mut().step_by(len).zip(&plane).for_each(|(to, &q)| *to = q);
            }
            self.out.copy_from(start, &block[..count]);
        }
    }

    #[inline(always)]
    fn run_each(self) {
        let ByteLanes { softmax, input, mut out, powers, lane } = self;
        let Bytes { len, flip, ref exponentials, .. } = *softmax;
        for start in (0..out.len()).step_by(len) {
            // A copy, as above.
            input.part(start, len).copy_to(lane);
            let max = lane.iter().fold(0, |max, &q| max.max(q ^ flip));
            let distances = lane.iter().map(|&q| i32::from(max) - i32::from(q ^ flip));
            powers.iter_mut().zip(distances).for_each(|(power, d)| *power = exponentials.of(d));
            let shares =
                Shares::new(powers.iter().map(|&power| i64::from(Exponentials::term_of(power))).sum());
            lane.iter_mut().zip(&*powers).for_each(|(q, &power)| *q = shares.of(power) ^ flip);
            out.copy_from(start, lane);
        }
    }
}

/// What makes bytes of the exponentials of a lane.
#[derive(Clone, Copy)]
struct Shares {
    mantissa: i32,
    right: u32,
}

impl Shares {
    /// For a lane whose exponentials' terms have a `sum`.
    #[inline(always)]
    fn new(sum: i64) -> Self {
        // Where all shares are 0, zero makes them so.
        let multiplier = Exponentials::multiplier(&Exponentials::reciprocal(sum)).unwrap_or_default();
        Shares { mantissa: multiplier.mantissa, right: (-multiplier.shift).clamp(0, 31) as u32 }
    }

    /// The same for a lane of no more than [`SHORT`] elements, in a form that compiles to vectors: their terms have a sum of
    /// at most 2^24. That is the [reciprocal](Exponentials::reciprocal) step by step, as nothing in it saturates but the last
    /// shift, where the sum is a power of two.
    #[inline(always)]
    fn of_few(sum: i32) -> Self {
        const _48_BY_17: i32 = 1_515_870_810;
        const MINUS_32_BY_17: i32 = -1_010_580_540;
        // Halves round up in products of either sign; the result has 32 bits, the same with and without sign.
        let mul = |a: i32, b: i32| {
            let product = i64::from(a) * i64::from(b);
            (product.wrapping_add(1 << 30) as u64 >> 31) as i32
        };
        let sum = sum.max(1) as u32;
        let headroom = sum.leading_zeros();
        let half = (sum << headroom >> 1) as i32;
        let mut y = _48_BY_17 + mul(half, MINUS_32_BY_17);
        for _ in 0..3 {
            y += mul(y, (1 << 29) - mul(half, y)) << 2;
        }
        let mantissa = if y >= 1 << 30 { i32::MAX } else { y << 1 };
        Shares { mantissa, right: 35 - headroom }
    }

    /// The output's least element is its zero point.
    #[inline(always)]
    fn of(self, power: i32) -> u8 {
        // Nothing here is negative, so that halves go one way only.
        let product = i64::from(power) * i64::from(self.mantissa);
        let high = (product.wrapping_add(1 << 30) as u64 >> 31) as u32;
        let half = (1u32 << self.right) >> 1;
        ((high.wrapping_add(half) >> self.right) as i32).clamp(0, 255) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_few_are_those_of_any() {
        let powers = (0..=24).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let others = (0..1 << 24).step_by(997);
        for sum in powers.chain(others).filter(|&sum| sum <= 1 << 24) {
            let (few, any) = (Shares::of_few(sum), Shares::new(sum.into()));
            assert_eq!((few.mantissa, few.right), (any.mantissa, any.right), "a sum of {sum}");
        }
    }
}
