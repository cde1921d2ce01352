//! Weights and bias of 8-bit types in the form that quads are multiplied with.

use super::super::eight_bit::sign_flip;
use super::super::gemm::{Lanes, Requant, Requantisation};
use super::super::vector::{Level, Loop};
use super::super::Source;
use super::layout::{interleave, Order, CHANNELS, QUAD, ROWS};
use super::quads::Quads;
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Values};
use crate::ops::{Arg, Args, Interrupt};
use crate::tensor::requant::Multiplier;

/// Channels that are gone through between two looks whether to stop.
const RUN: usize = 4096;
/// Channels that stay together in any order.
const FOUR: usize = 4;

/// Weights and bias on their way into their packed form.
pub struct Packing<'a> {
    pub geometry: &'a DepthwiseGeometry,
    /// The number that the input's zero point is to the products.
    pub input_zero: i32,
    pub weight_zero: i32,
    /// For how many rows of outputs, one below the other, weights lie beside the rows of one quad.
    pub rows: usize,
    pub order: Order,
}

impl Packing<'_> {
    pub fn channels(&self) -> usize {
        self.geometry.input.channels * self.geometry.multiplier
    }

    /// What turns sums of products into bytes.
    pub fn requant<Q: Quads>(&self, requantisation: &Requantisation) -> Option<Requant> {
        let multipliers = self.in_order(requantisation.multipliers, requantisation.interrupt)?;
        let multipliers = &*multipliers;
        let requantisation = &Requantisation { multipliers, ..*requantisation };
        Requant::new(requantisation, Q::V::FORM, Q::V::LANES, 0)
    }

    /// The channel whose constants lie at a place.
    fn channel(&self, place: usize) -> usize {
        self.order.at(place, self.channels())
    }

    /// Multipliers of channels as they are packed. `None` where there is no memory, or the work is to stop.
    fn in_order<'m>(
        &self,
        multipliers: &'m [Multiplier],
        interrupt: &dyn Interrupt,
    ) -> Option<Values<'m, Multiplier>> {
        if self.order == Order::Plain || multipliers.len() != self.channels() {
            return Some(Values::Given(multipliers));
        }
        let count = multipliers.len().next_multiple_of(CHANNELS);
        let mut ordered = reserved(count).ok()?;
        let mut pace = Pace::of(interrupt);
        for first in (0..count).step_by(RUN) {
            pace.spend(RUN).ok()?;
            // Where there is no channel, any will do.
            let places = first..count.min(first + RUN);
            ordered.extend(places.map(|place| multipliers[self.channel(place).min(multipliers.len() - 1)]));
        }
        Some(ordered.into())
    }

    /// Quads of weights, `[block of channels][row of outputs][group of rows][column]`.
    pub fn weights<Q: Quads>(&self, args: &Args, source: &mut Source) -> Option<Weights> {
        let (height, width, channels) =
            (self.geometry.height.kernel, self.geometry.width.kernel, self.channels());
        let (groups, blocks) = (height.div_ceil(ROWS), channels.div_ceil(CHANNELS));
        let quads = blocks.checked_mul(self.rows)?.checked_mul(groups)?.checked_mul(width)?;
        source.take::<Q::Weight>(quads.checked_mul(QUAD)?, |to| {
            let (weights, mut pace) = (SignedWeights::new(&args.arg(1).ok()?)?, Pace::new(args));
            (weights.bytes.len() == height * width * channels).then_some(())?;
            let mut quads = to.chunks_exact_mut(QUAD);
            for c in (0..channels).step_by(CHANNELS) {
                let count = CHANNELS.min(channels - c);
                // Fours of channels are never taken apart.
                let fours: [usize; CHANNELS / FOUR] = std::array::from_fn(|i| self.channel(c + i * FOUR));
                for (below, group) in (0..self.rows).flat_map(|below| (0..groups).map(move |i| (below, i))) {
                    for (column, quad) in (0..width).zip(&mut quads) {
                        // Places without a weight become 0.
                        let mut rows = [[weights.flip; CHANNELS]; ROWS];
                        for (i, to) in rows.iter_mut().enumerate() {
                            let row = (group * ROWS + i).checked_sub(below).filter(|&row| row < height);
                            let Some(row) = row else { continue };
                            let from = &weights.bytes[(row * width + column) * channels..][..channels];
                            match from[c..c + count].try_into() {
                                Ok(_) if self.order != Order::Plain => {
                                    for (to, &at) in to.as_chunks_mut::<FOUR>().0.iter_mut().zip(&fours) {
                                        to.copy_from_slice(&from[at..at + FOUR]);
                                    }
                                }
                                // Without a loop.
                                Ok(all) => *to = all,
                                Err(_) => to[..count].copy_from_slice(&from[c..c + count]),
                            }
                        }
                        place::<Q>(interleave(rows, weights.flip), quad);
                        pace.spend(2 * QUAD).ok()?;
                    }
                }
            }
            Some(())
        })
    }

    /// The bias, with what the zero points add to the sum of the plain products.
    pub fn bias(&self, args: &Args, source: &mut Source) -> Option<Weights> {
        let channels = self.channels();
        source.take::<i32>(channels.next_multiple_of(CHANNELS), |all| {
            let (weights, arg) = (SignedWeights::new(&args.arg(1).ok()?)?, args.get(2).ok()?);
            let bias: &[i32] = arg.elements().ok().filter(|bias: &&[i32]| bias.len() == channels)?;
            let (to, flip, mut cells) = (&mut all[..channels], weights.flip, 0i32);
            let (mut pace, level) = (Pace::new(args), Level::detect());
            for weights in weights.bytes.chunks_exact(channels) {
                for (sums, weights) in to.chunks_mut(RUN).zip(weights.chunks(RUN)) {
                    pace.spend(RUN).ok()?;
                    level.run(Add { sums, weights, flip });
                }
                cells = cells.wrapping_add(1);
            }
            let (zero, zeros) = (self.input_zero, cells.wrapping_mul(self.weight_zero));
            for (to, bias) in to.chunks_mut(RUN).zip(bias.chunks(RUN)) {
                pace.spend(RUN).ok()?;
                let of_sum =
                    |sum: i32, bias: i32| bias.wrapping_sub(zero.wrapping_mul(sum.wrapping_sub(zeros)));
                to.iter_mut().zip(bias).for_each(|(to, &bias)| *to = of_sum(*to, bias));
            }
            // Two that change places do so when the first is come by.
            let all = all.chunks_exact_mut(self.order.group()).filter(|_| self.order != Order::Plain);
            for (i, group) in all.enumerate() {
                let first = i * group.len();
                pace.spend(group.len()).ok()?;
                for place in 0..group.len() {
                    let other = self.channel(first + place) - first;
                    group.swap(place, other.max(place));
                }
            }
            Some(())
        })
    }
}

/// Adds the weights of a cell to the sums of their channels.
struct Add<'a> {
    sums: &'a mut [i32],
    weights: &'a [u8],
    /// What makes them signed.
    flip: u8,
}

impl Loop for Add<'_> {
    #[inline(always)]
    fn run(self) {
        for (sum, &weight) in self.sums.iter_mut().zip(self.weights) {
            *sum = sum.wrapping_add(i32::from((weight ^ self.flip) as i8));
        }
    }
}

/// Weights where they lie, yet to be made signed.
pub struct SignedWeights<'a> {
    pub bytes: &'a [u8],
    /// What makes them signed.
    pub flip: u8,
}

impl<'a> SignedWeights<'a> {
    pub fn new(filter: &Arg<'a>) -> Option<Self> {
        Some(SignedWeights { bytes: filter.bytes().ok()?, flip: sign_flip(filter) })
    }
}

/// Weights of four rows, interleaved, as a quad.
#[inline(always)]
fn place<Q: Quads>(interleaved: [u8; QUAD], quad: &mut [Q::Weight]) {
    if size_of::<Q::Weight>() == 1 {
        // Those of bytes lie as the inputs do.
        bytemuck::cast_slice_mut::<_, u8>(quad).copy_from_slice(&interleaved);
        return;
    }
    for (at, &weight) in interleaved.iter().enumerate() {
        quad[Q::place(at / ROWS, at % ROWS)] = (weight as i8).into();
    }
}
