//! The matrices of Winograd's convolution, made of a filter's weights and packed in one go: each weight is read once, and
//! there is no copy of them all between.

use super::super::vector::{Level, Loop};
use super::transform::PLACES;
use crate::memory::View;
use crate::ops::pace::Pace;
use crate::ops::Interrupt;

/// Weights of a filter for a pair of channels.
pub const TAPS: usize = 9;
/// Channels of a column that are moved before the next column's: a cache line's worth.
const RUN: usize = 16;
/// Columns of a panel, at most.
const MOST_COLUMNS: usize = 32;

/// Packs a filter, `[column][tap][input channel]`, as `[place][panel][input channel][column of the panel]`, for panels of
/// `width` columns. `None` where it has not as many weights, or it was told to stop.
pub fn pack(
    filter: View<f32>,
    (columns, channels, width): (usize, usize, usize),
    to: &mut [f32],
    interrupt: &dyn Interrupt,
) -> Option<()> {
    let panels = columns.div_ceil(width);
    let (of_column, panel) = (TAPS.checked_mul(channels)?, channels.checked_mul(width)?);
    let of_place = panels.checked_mul(panel)?;
    let is_whole = filter.len() == columns.checked_mul(of_column)?;
    if !is_whole || to.len() != of_place.checked_mul(PLACES)? || width > MOST_COLUMNS {
        return None;
    }
    let (mut pace, level) = (Pace::of(interrupt), Level::detect());
    // Of one run, by place and column.
    let mut made = [[[0f32; RUN]; MOST_COLUMNS]; PLACES];
    for p in 0..panels {
        let count = width.min(columns - p * width);
        for first in (0..channels).step_by(RUN) {
            let run = RUN.min(channels - first);
            pace.spend(run * count * PLACES * 2).ok()?;
            for column in 0..count {
                let mut taps = [[0f32; RUN]; TAPS];
                for (tap, to) in taps.iter_mut().enumerate() {
                    let start = (p * width + column) * of_column + tap * channels + first;
                    filter.part(start, run).copy_to(&mut to[..run]);
                }
                level.run(Places { taps: &taps, column, made: &mut made });
            }
            for (made, to) in made.iter().zip(to.chunks_exact_mut(of_place)) {
                let lines = to[p * panel + first * width..].chunks_exact_mut(width).take(run);
                for (channel, line) in lines.enumerate() {
                    line[..count].iter_mut().zip(made).for_each(|(to, made)| *to = made[channel]);
                }
            }
        }
    }
    Some(())
}

/// Makes the places of some channels of a column.
struct Places<'a> {
    taps: &'a [[f32; RUN]; TAPS],
    column: usize,
    made: &'a mut [[[f32; RUN]; MOST_COLUMNS]; PLACES],
}

impl Loop for Places<'_> {
    #[inline(always)]
    fn run(self) {
        let mut rows = [[[0f32; RUN]; 4]; 3];
        for (taps, row) in self.taps.as_chunks::<3>().0.iter().zip(&mut rows) {
            *row = four(taps);
        }
        let [above, middle, below] = &rows;
        for (j, ((a, b), c)) in above.iter().zip(middle).zip(below).enumerate() {
            let made = four(&[*a, *b, *c]);
            for (i, made) in made.into_iter().enumerate() {
                self.made[i * 4 + j][self.column] = made;
            }
        }
    }
}

/// What becomes of three weights along one dimension.
#[inline(always)]
fn four([a, b, c]: &[[f32; RUN]; 3]) -> [[f32; RUN]; 4] {
    let mut made = [*a, [0.0; RUN], [0.0; RUN], *c];
    for i in 0..RUN {
        let outer = a[i] + c[i];
        made[1][i] = 0.5 * (outer + b[i]);
        made[2][i] = 0.5 * (outer - b[i]);
    }
    made
}
