//! TRANSPOSE_CONV_2D. Along a dimension, output `o` lies at place `o + padding = q * stride + r`. Only the taps `r`,
//! `r + stride` and so on reach it, from inputs `q`, `q - 1` and so on: so the outputs with one remainder `r` are a convolution
//! of stride 1 by these taps, the last one first. Remainders that have as many taps read the same inputs: they are one
//! convolution with more channels, whose pixel `q` is `stride` outputs beside each other. There are at most two numbers of
//! taps along each dimension. No tap is multiplied twice, and none by a zero that was put in.

use super::{Image, Part, Parts, Spread};
use crate::backend::cpu::kernels::conv::product;
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::picked::{Column, Picked};
use crate::backend::cpu::kernels::{Kernel, Source};
use crate::ops::conv::{ConvGeometry, TransposeGeometry, TransposeWindow};
use crate::ops::image::{ImageDims, Window};
use crate::ops::Args;
use std::ops::Range;

/// A kernel for this call of TRANSPOSE_CONV_2D.
pub fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let whole = TransposeGeometry::from_args(args).ok()?;
    let size = args.get(0).ok()?.ty().element_size()?;
    let (across, mut parts) = (classes(&whole.width)?, Vec::new());
    for rows in classes(&whole.height)? {
        for columns in &across {
            parts.push(part(isa, args, &whole, (&rows, columns), size, source)?);
        }
    }
    let ImageDims { batches, height, width, channels } = whole.input;
    let input = Image { batches, height, width, pixel: channels * size };
    let (height, width) = (whole.height.output, whole.width.output);
    let output = Image { batches, height, width, pixel: whole.out_channels * size };
    Some(Box::new(Parts::new(parts, input, output)?))
}

/// Remainders that have as many taps, along a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    remainders: Range<usize>,
    /// The convolution of stride 1.
    window: Window,
    /// Where its positions go.
    spread: Spread,
}

/// The classes that have outputs; `None` where some outputs are out of every input's reach, or inputs out of every output's.
fn classes(whole: &TransposeWindow) -> Option<Vec<Class>> {
    let &TransposeWindow { input, kernel, stride, pad_before, output } = whole;
    if kernel < stride {
        return None;
    }
    let (taps, odd) = (kernel / stride, kernel % stride);
    let mut classes = Vec::new();
    for (remainders, taps) in [(0..odd, taps + 1), (odd..stride, taps)] {
        let last_place = output - 1 + pad_before;
        if remainders.is_empty() || last_place < remainders.start {
            continue;
        }
        let first = pad_before.saturating_sub(remainders.end - 1).div_ceil(stride);
        let end = (last_place - remainders.start) / stride + 1;
        if first >= end {
            continue;
        }
        let (before, after) = ((taps - 1).checked_sub(first)?, end.saturating_sub(input));
        if after >= taps {
            return None;
        }
        let window = Window {
            input,
            kernel: taps,
            stride: 1,
            dilation: 1,
            pad_before: before,
            pad_after: after,
            output: end - first,
        };
        let spread = Spread {
            first: (first * stride + remainders.start) as i64 - pad_before as i64,
            step: stride,
            count: remainders.len(),
        };
        classes.push(Class { remainders, window, spread });
    }
    Some(classes)
}

/// The convolution of a class of rows and one of columns.
fn part(
    isa: Isa,
    args: &Args,
    whole: &TransposeGeometry,
    (rows, columns): (&Class, &Class),
    size: usize,
    source: &mut Source,
) -> Option<Part> {
    let (channels, depth) = (whole.out_channels, whole.input.channels);
    let (height, width) = (whole.height.kernel, whole.width.kernel);
    let remainders = rows.remainders.len().checked_mul(columns.remainders.len())?;
    let taps = rows.window.kernel.checked_mul(columns.window.kernel)?;
    let mut picked = Picked::with_room(remainders.checked_mul(channels)?, taps, depth)?;
    for row in rows.remainders.clone() {
        for column in columns.remainders.clone() {
            let tap = row * width + column;
            picked.columns.extend(
                (0..channels)
                    .map(|channel| Column { channel, start: (channel * height * width + tap) * depth }),
            );
        }
    }
    for row in (0..rows.window.kernel).rev() {
        for column in (0..columns.window.kernel).rev() {
            picked.taps.push((row * whole.height.stride * width + column * whole.width.stride) * depth);
        }
    }
    let geometry = ConvGeometry {
        input: whole.input,
        height: rows.window,
        width: columns.window,
        out_channels: picked.columns.len(),
        groups: 1,
        activation: whole.activation,
        nchw: false,
    };
    let pixel = channels * size;
    let across = columns.spread;
    Some(Part {
        product: product(isa, args, geometry, false, Some(&picked), source)?,
        reads: (0, depth * size),
        height: rows.window.output,
        width: columns.window.output,
        rows: rows.spread,
        columns: Spread {
            first: across.first * pixel as i64,
            step: across.step * pixel,
            count: across.count * pixel,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::image::Padding;
    use proptest::prelude::*;

    proptest! {
        /// Each pair of tap and input that falls on an output is in exactly one class, at the place of that output.
        #[test]
        fn classes_have_each_product_once(
            input in 1usize..7, kernel in 1u32..9, stride in 1i32..5, before in 0i32..6, after in -3i32..6,
        ) {
            let padding = Padding::Explicit(before, after);
            let Ok(whole) = TransposeWindow::new("width", input, kernel, stride, padding, 0) else { return Ok(()) };
            let Some(classes) = classes(&whole) else {
                let out_of_reach = (0..whole.output).any(|output| whole.sources(output).next().is_none());
                prop_assert!(out_of_reach || kernel < stride as u32 || before as u32 >= kernel - kernel % stride as u32);
                return Ok(());
            };
            let mut products = vec![Vec::new(); whole.output];
            for Class { remainders, window, spread } in classes {
                prop_assert!(window.pad_before < window.kernel && window.pad_after < window.kernel);
                for q in 0..window.output {
                    for (i, remainder) in remainders.clone().enumerate() {
                        let output = spread.first + (q * spread.step + i) as i64;
                        if (0..whole.output as i64).contains(&output) {
                            let taps = window.taps(q).map(|tap| {
                                (remainder + (window.kernel - 1 - tap) * whole.stride, window.cell(q, tap))
                            });
                            products[output as usize].extend(taps);
                        }
                    }
                }
            }
            for (output, mut products) in products.into_iter().enumerate() {
                products.sort();
                prop_assert_eq!(products, whole.sources(output).collect::<Vec<_>>(), "output {}", output);
            }
        }
    }
}
