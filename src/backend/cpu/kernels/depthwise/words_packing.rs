//! Weights of filters in the form of `words`: those of two rows for a channel are two words, side by side.

use super::super::Source;
use super::layout::{Order, CHANNELS};
use super::packing::{Packing, SignedWeights};
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::pace::Pace;
use crate::ops::Args;

/// Rows whose words lie side by side.
pub const PAIR: usize = 2;
/// Vectors that have a pair of rows for sixteen channels.
pub const HALVES: usize = 2;
/// Words of a vector.
pub const WORDS: usize = 16;

/// Pairs of rows under as many rows of outputs as share them.
pub fn pairs(geometry: &DepthwiseGeometry, rows: usize) -> usize {
    (geometry.height.kernel + rows - 1).div_ceil(PAIR)
}

/// Words of weights, `[block of channels][row of outputs][half][pair of rows][tap][channel][row]`.
pub fn weights(packing: &Packing, args: &Args, source: &mut Source) -> Option<Weights> {
    let Packing { geometry, rows, .. } = *packing;
    let (height, width, channels) = (geometry.height.kernel, geometry.width.kernel, packing.channels());
    let (blocks, pairs) = (channels.div_ceil(CHANNELS), pairs(geometry, rows));
    let half = pairs * width * WORDS;
    source.take::<i16>(blocks.checked_mul(rows * HALVES * half)?, |to| {
        let (weights, mut pace) = (SignedWeights::new(&args.arg(1).ok()?)?, Pace::new(args));
        (weights.bytes.len() == height * width * channels).then_some(())?;
        for (block, to) in to.chunks_exact_mut(rows * HALVES * half).enumerate() {
            let (c, count) = (block * CHANNELS, CHANNELS.min(channels - block * CHANNELS));
            for (below, to) in to.chunks_exact_mut(HALVES * half).enumerate() {
                for cell in 0..pairs * width {
                    let (pair, tap) = (cell / width, cell % width);
                    // Places without a weight become 0.
                    let mut of = [[weights.flip; CHANNELS]; PAIR];
                    for (i, of) in of.iter_mut().enumerate() {
                        let row = (pair * PAIR + i).checked_sub(below).filter(|&row| row < height);
                        let Some(row) = row else { continue };
                        let from = &weights.bytes[(row * width + tap) * channels + c..][..count];
                        match from.try_into() {
                            // Without a loop.
                            Ok(all) => *of = all,
                            Err(_) => of[..count].copy_from_slice(from),
                        }
                    }
                    let word = |at: usize| {
                        let channel = Order::Words.at(at / PAIR, CHANNELS);
                        i16::from((of[at % PAIR][channel] ^ weights.flip) as i8)
                    };
                    let words: [i16; HALVES * WORDS] = std::array::from_fn(word);
                    for (i, words) in words.as_chunks::<WORDS>().0.iter().enumerate() {
                        to[i * half + cell * WORDS..][..WORDS].copy_from_slice(words);
                    }
                    pace.spend(4 * WORDS).ok()?;
                }
            }
        }
        Some(())
    })
}
