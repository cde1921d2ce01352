//! The part that convolutions and fully connected layers have in common: operands made ready, sums given bias and
//! activation or rescaled, results stored. What is summed is the operation's own.

use super::ChannelRequant;
use crate::ops::image::{channels_last, exactly, Pixels};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::{Args, OpError, Out};
use crate::tensor::requant::Activation;

/// What sums are formed of: f32, or i32 that wraps.
pub trait Number: Copy + Default {
    /// `self + x * weight`.
    fn plus_product(self, x: Self, weight: Self) -> Self;

    fn plus(self, other: Self) -> Self;
}

impl Number for f32 {
    fn plus_product(self, x: f32, weight: f32) -> f32 {
        self + x * weight
    }

    fn plus(self, other: f32) -> f32 {
        self + other
    }
}

impl Number for i32 {
    fn plus_product(self, x: i32, weight: i32) -> i32 {
        self.wrapping_add(x.wrapping_mul(weight))
    }

    fn plus(self, other: i32) -> i32 {
        self.wrapping_add(other)
    }
}

/// Adds `x * weights` to `sums`, element by element.
pub fn accumulate<T: Number>(sums: &mut [T], x: T, weights: &[T]) {
    for (sum, &weight) in sums.iter_mut().zip(weights) {
        *sum = sum.plus_product(x, weight);
    }
}

/// The inner product, in eight partial sums that a compiler can keep in vector registers.
pub fn dot<T: Number>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 8;
    let mut partial = [T::default(); LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_blocks.remainder(), b_blocks.remainder());
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..LANES {
            partial[lane] = partial[lane].plus_product(a[lane], b[lane]);
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        partial[lane] = partial[lane].plus_product(a, b);
    }
    partial.into_iter().fold(T::default(), T::plus)
}

/// An operation on input 0, filter (input 1) and bias (input 2), each of whose outputs is a sum of products of the first
/// two, plus the bias of its channel.
pub trait WeightedSums {
    fn out_channels(&self) -> usize;

    fn activation(&self) -> Activation;

    /// Whether input and output are images with the channels first.
    fn nchw(&self) -> bool {
        false
    }

    /// Whether quantised sums are rounded once: see [`ChannelRequant::once`].
    fn rounds_once(&self) -> bool {
        false
    }

    /// Calls `emit(pixel, sums)` once for each output pixel, in any order: its number, counted row by row and image by
    /// image, and the sums of all its channels. The input has its channels last, the filter lies as the client gave it.
    fn sums<T: Number>(
        &self,
        input: &[T],
        filter: &[T],
        pace: &mut Pace,
        emit: impl FnMut(usize, &[T]) -> Result<(), OpError>,
    ) -> Result<(), OpError>;
}

/// Evaluates a call whose shapes have been accepted.
pub fn evaluate(operation: &impl WeightedSums, args: &Args, out: &mut Out) -> Result<(), OpError> {
    if out.data.is_empty() {
        return Ok(());
    }
    if args.get(0)?.ty().is_float() {
        evaluate_floats(operation, args, out)
    } else {
        evaluate_quantised(operation, args, out)
    }
}

fn evaluate_floats(operation: &impl WeightedSums, args: &Args, out: &mut Out) -> Result<(), OpError> {
    let (input, filter, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let mut pace = Pace::new(args);
    let values = channels_last(&input, input.floats()?, operation.nchw(), &mut pace)?;
    let weights = exactly(&filter, filter.floats()?)?;
    let bias = exactly(&bias, bias.floats()?)?;
    let activation = operation.activation();
    let mut finished = filled(0.0, operation.out_channels())?;
    let mut pixels = pixels(operation, out);
    operation.sums(&values, &weights, &mut pace, |pixel, sums| {
        for ((to, &sum), &bias) in finished.iter_mut().zip(sums).zip(bias.iter()) {
            *to = activation.apply(sum + bias);
        }
        pixels.put_floats(pixel, &finished)
    })
}

fn evaluate_quantised(operation: &impl WeightedSums, args: &Args, out: &mut Out) -> Result<(), OpError> {
    let (input, filter, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let mut pace = Pace::new(args);
    let channels = operation.out_channels();
    let activation = operation.activation();
    let requant = ChannelRequant::new(input.info, filter.info, out.info, channels, activation)?;
    let requant = ChannelRequant { once: operation.rounds_once(), ..requant };
    let values = channels_last(&input, input.centred()?.into(), operation.nchw(), &mut pace)?;
    let weights = exactly(&filter, filter.centred()?.into())?;
    let bias = exactly(&bias, bias.integers()?)?;
    let mut finished = filled(0, channels)?;
    let mut pixels = pixels(operation, out);
    operation.sums(&values, &weights, &mut pace, |pixel, sums| {
        for (channel, (to, (&sum, &bias))) in
            finished.iter_mut().zip(sums.iter().zip(bias.iter())).enumerate()
        {
            *to = requant.apply(sum.wrapping_add(bias), channel);
        }
        pixels.put_integers(pixel, &finished)
    })
}

fn pixels<'o, 'd>(operation: &impl WeightedSums, out: &'o mut Out<'d>) -> Pixels<'o, 'd> {
    if out.dims().len() == 4 {
        Pixels::image(out, operation.nchw())
    } else {
        Pixels::rows(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_takes_every_element_once() {
        let a: Vec<i32> = (1..=19).collect();
        assert_eq!(dot(&a, &a), 19 * 20 * 39 / 6);
        assert_eq!(dot(&[i32::MAX, 2], &[2, 2]), 2);
        assert_eq!(dot::<f32>(&[], &[]), 0.0);
    }
}
