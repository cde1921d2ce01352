//! The part that convolutions and fully connected layers have in common: operands made ready, sums given bias and
//! activation or rescaled, results stored. What is summed is the operation's own.

use super::ChannelRequant;
use crate::ops::image::{channels_last, exactly, Pixels};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Values};
use crate::ops::{Args, OpError, Out};
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;
use half::f16;

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

/// Adds `x * weights` to `sums`, element by element; `value` is what a weight stands for.
pub fn accumulate<T: Number, W: Copy>(sums: &mut [T], x: T, weights: &[W], value: impl Fn(W) -> T) {
    for (sum, &weight) in sums.iter_mut().zip(weights) {
        *sum = sum.plus_product(x, value(weight));
    }
}

/// The same for each of the elements `xs` and its row of weights, as long as the sums.
pub fn accumulate_rows<T: Number, W: Copy>(
    sums: &mut [T],
    xs: impl Iterator<Item = T> + Clone,
    weights: &[W],
    value: impl Fn(W) -> T + Copy,
    pace: &mut Pace,
) -> Result<(), OpError> {
    let columns = sums.len().max(1);
    for part in Pace::stretches(sums.len()) {
        let sums = &mut sums[part.clone()];
        let rows = weights.chunks_exact(columns).map(|row| &row[part.clone()]);
        pace.each(xs.clone().zip(rows), part.len(), |(x, row)| accumulate(sums, x, row, value))?;
    }
    Ok(())
}

const LANES: usize = 8;

/// The inner product, in eight partial sums that a compiler can keep in vector registers; `value` is what an element of
/// `b` stands for.
pub fn dot<T: Number, W: Copy>(
    a: &[T],
    b: &[W],
    value: impl Fn(W) -> T + Copy,
    pace: &mut Pace,
) -> Result<T, OpError> {
    let mut partial = [T::default(); LANES];
    pace.in_stretches(a.len().min(b.len()), 1, |part| {
        add_products(&mut partial, &a[part.clone()], &b[part], value)
    })?;
    Ok(partial.into_iter().fold(T::default(), T::plus))
}

fn add_products<T: Number, W: Copy>(
    partial: &mut [T; LANES],
    a: &[T],
    b: &[W],
    value: impl Fn(W) -> T + Copy,
) {
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_blocks.remainder(), b_blocks.remainder());
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..LANES {
            partial[lane] = partial[lane].plus_product(a[lane], value(b[lane]));
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        partial[lane] = partial[lane].plus_product(a, value(b));
    }
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
    /// image, and the sums of all its channels. The input has its channels last, the filter lies as the client gave it,
    /// and its elements stand for their `value`: it may be large, and is not widened ahead. `emit` may take as long as there
    /// are channels, so it is lent the pace.
    fn sums<T: Number, W: Copy>(
        &self,
        input: &[T],
        filter: &[W],
        value: impl Fn(W) -> T + Copy,
        pace: &mut Pace,
        emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
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
    let bias = exactly(&bias, bias.floats()?)?;
    let activation = operation.activation();
    let mut finished = filled(args.interrupt, 0.0, operation.out_channels())?;
    let mut pixels = pixels(operation, out);
    let emit = |pixel: usize, sums: &[f32], pace: &mut Pace| {
        pace.in_stretches(finished.len(), 1, |part| {
            let sums = sums[part.clone()].iter().zip(&bias[part.clone()]);
            for (to, (&sum, &bias)) in finished[part].iter_mut().zip(sums) {
                *to = activation.apply(sum + bias);
            }
        })?;
        pixels.put_floats(pixel, &finished, pace)
    };
    if filter.ty() == OperandType::TENSOR_FLOAT16 {
        let weights = exactly::<f16>(&filter, Values::Given(filter.elements()?))?;
        return operation.sums(&values, &weights, f16::to_f32, &mut pace, emit);
    }
    let weights = exactly(&filter, filter.floats()?)?;
    operation.sums(&values, &weights, |weight| weight, &mut pace, emit)
}

fn evaluate_quantised(operation: &impl WeightedSums, args: &Args, out: &mut Out) -> Result<(), OpError> {
    let (input, filter, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let mut pace = Pace::new(args);
    let channels = operation.out_channels();
    let activation = operation.activation();
    let requant =
        ChannelRequant::new(input.info, filter.info, out.info, channels, activation, args.interrupt)?;
    let requant = ChannelRequant { once: operation.rounds_once(), ..requant };
    let values = channels_last(&input, input.centred()?.into(), operation.nchw(), &mut pace)?;
    let bias = exactly(&bias, bias.integers()?)?;
    let mut finished = filled(args.interrupt, 0, channels)?;
    let mut pixels = pixels(operation, out);
    let emit = |pixel: usize, sums: &[i32], pace: &mut Pace| {
        pace.in_stretches(finished.len(), 1, |part| {
            for channel in part {
                finished[channel] = requant.apply(sums[channel].wrapping_add(bias[channel]), channel);
            }
        })?;
        pixels.put_integers(pixel, &finished, pace)
    };
    // Scales per channel have no zero point.
    let zero = if filter.channel_quant().is_some() { 0 } else { filter.zero_point() };
    if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM {
        let weights = exactly::<u8>(&filter, Values::Given(filter.elements()?))?;
        return operation.sums(&values, &weights, |q| i32::from(q).wrapping_sub(zero), &mut pace, emit);
    }
    let weights = exactly::<i8>(&filter, Values::Given(filter.elements()?))?;
    operation.sums(&values, &weights, |q| i32::from(q).wrapping_sub(zero), &mut pace, emit)
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
    use crate::ops::NeverInterrupted;

    #[test]
    fn dot_takes_every_element_once() {
        let (a, pace) = ((1..=19).collect::<Vec<i32>>(), &mut Pace::of(&NeverInterrupted));
        assert_eq!(dot(&a, &a, |x| x, pace), Ok(19 * 20 * 39 / 6));
        assert_eq!(dot(&[i32::MAX, 2], &[2u8, 2], i32::from, pace), Ok(2));
        assert_eq!(dot::<f32, f32>(&[], &[], |x| x, pace), Ok(0.0));
    }
}
