//! Attention: products of pairs of matrices, what steps on their rows make of them, and the products of that with other
//! matrices. Some rows of the first products, the scores, are made, gone on with and multiplied while they lie in the nearest
//! cache, and are never written to the arena. Which steps go together so is decided elsewhere.

use super::gemm::{even_part, Outputs, Room, MAX_ROWS};
use super::kernel::{ByPairs, Kernel};
use super::Work;
use crate::memory::{Target, View};
use crate::ops::OpError;

/// Bytes of scores that are made at a time.
const NEAR_BYTES: usize = 32 * 1024;

/// Two kernels, the second of which multiplies what is made of the first one's products.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    first: &'a dyn ByPairs,
    second: &'a dyn ByPairs,
}

impl<'a> Attention<'a> {
    /// `None` unless rows of the first one's products are rows of the second one's left matrices.
    pub fn of(first: &'a dyn Kernel, second: &'a dyn Kernel) -> Option<Self> {
        let (first, second) = (first.by_pairs()?, second.by_pairs()?);
        let (scores, values) = (first.size(), second.size());
        let fit = (scores.pairs, scores.rows, Some(scores.made)) == (values.pairs, values.rows, values.read);
        fit.then_some(Attention { first, second })
    }

    /// Makes the second kernel's output of the first one's inputs and the second one's right matrices, and does what the work
    /// says with the first one's products in between.
    pub fn run(
        self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (&[Some(left), Some(right), Some(values)], [out]) = (inputs, outputs) else {
            return Err(OpError::Unresolved);
        };
        let (scores, made) = (self.first.size(), self.second.size().made);
        let to = Outputs(out.pointer(0, scores.pairs * scores.rows * made));
        let bands = self.first.bands(work.team.threads());
        let (rows, owner) = (scores.rows.div_ceil(bands), std::thread::current().id());
        let time = self.first.time(rows, work.then).saturating_add(self.second.time(rows, None));
        let matrix = left.len() / scores.pairs;
        // In whole tiles, where there is more than one.
        let block = (NEAR_BYTES / scores.made).min(MAX_ROWS) / scores.tile * scores.tile;
        let block = block.max(scores.tile);
        let pause = || work.pause(owner);
        let count = scores.pairs * bands;
        work.for_each_part(count, work.units_per_task(count, time, 0), |units| {
            let (mut first, mut second, mut room) =
                (self.first.packed(), self.second.packed(), Room::default());
            room.make(block.min(scores.rows) * scores.made)?;
            for unit in units {
                let (pair, band) = (unit / bands, unit % bands);
                first.pack(right, pair, &pause)?;
                second.pack(values, pair, &pause)?;
                let left = left.part(pair * matrix, matrix);
                let part = even_part(scores.rows, band, bands);
                for start in part.clone().step_by(block) {
                    pause()?;
                    let rows = start..part.end.min(start + block);
                    let (here, bytes) = (room.as_mut_ptr(), rows.len() * scores.made);
                    // SAFETY: there is room for a block.
                    unsafe { first.multiply(left, rows.clone(), here) }?;
                    let number = pair * scores.rows + rows.start;
                    if let Some(then) = work.then {
                        let first = here.wrapping_sub(number * scores.made);
                        let (to, all) = ((first, scores.element), scores.made / scores.element);
                        // SAFETY: these rows were just written, to memory of ours.
                        unsafe { then.on_elements(to, number..number + rows.len(), 0..all, all) }?;
                    }
                    let scores = View::of(&room[..bytes]);
                    // SAFETY: no other unit has these rows of the output.
                    unsafe { second.multiply(scores, 0..rows.len(), to.at(number * made)) }?;
                }
            }
            Ok(())
        })
    }
}
