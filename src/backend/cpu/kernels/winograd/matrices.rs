//! The matrices of tiles of bytes: `G g` along both dimensions, without its fractions, in words.
//!
//! Rows of `G` are (6 0 0), (1 1 1), (1 -1 1), (1 2 4), (1 -2 4) and (0 0 6): at most 49 times a weight, so that a weight of 255,
//! less its zero point, fits 16 bits.

use super::super::vector::{Level, Loop};
use crate::memory::View;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::Interrupt;

/// Weights of a filter for a pair of channels.
const TAPS: usize = 9;
const READ: usize = 6;
const PLACES: usize = READ * READ;
/// Channels of a column that are moved before the next column's.
const RUN: usize = 16;
/// Columns whose matrices are made at once, a part of a panel.
const COLUMNS: usize = 16;

/// A filter as it lies, `[column][tap][input channel]`.
pub struct Filter<'a> {
    pub weights: View<'a, i8>,
    pub columns: usize,
    pub channels: usize,
    /// What weights are xored with to become signed, and their zero point then.
    pub flip: i8,
    pub zero: i16,
}

impl Filter<'_> {
    /// Packs it as `[place][part][panel][pair of channels][column of the panel][channel of the pair]`, parts of so many channels, an
    /// even number of them, and panels of so many columns, sixteen or a multiple. Gives the sum of each column's weights. `None`
    /// where there are not as many weights, no memory is left, or it was told to stop.
    pub fn pack(
        &self,
        (part, width): (usize, usize),
        to: &mut [i16],
        interrupt: &dyn Interrupt,
    ) -> Option<Scratch<i32>> {
        let Filter { columns, channels, .. } = *self;
        let (panels, depth) = (columns.div_ceil(width), channels.next_multiple_of(2));
        let of_column = TAPS.checked_mul(channels)?;
        let of_place = panels.checked_mul(width)?.checked_mul(depth)?;
        let is_whole = self.weights.len() == columns.checked_mul(of_column)?;
        if !is_whole || to.len() != of_place.checked_mul(PLACES)? {
            return None;
        }
        let (mut pace, level) = (Pace::of(interrupt), Level::detect());
        let mut sums = filled(interrupt, 0i32, columns).ok()?;
        // Of one run, by place and column.
        let mut made = [[[0i16; RUN]; COLUMNS]; PLACES];
        for first_column in (0..columns).step_by(COLUMNS) {
            let (panel, beside) = (first_column / width, first_column % width);
            let count = COLUMNS.min(columns - first_column);
            for start in (0..channels).step_by(part) {
                let part = start..depth.min(start + part);
                let of_part = (start * panels + panel * part.len()) * width;
                for first in part.clone().step_by(RUN) {
                    let run = RUN.min(channels - first).min(part.end - first);
                    pace.spend(run * count * PLACES * 2).ok()?;
                    for (column, sum) in sums[first_column..][..count].iter_mut().enumerate() {
                        let mut taps = [[0i8; RUN]; TAPS];
                        for (tap, to) in taps.iter_mut().enumerate() {
                            let start = (first_column + column) * of_column + tap * channels + first;
                            self.weights.part(start, run).copy_to(&mut to[..run]);
                        }
                        let (flip, zero) = (self.flip, self.zero);
                        level.run(Places { taps: &taps, run, flip, zero, column, made: &mut made, sum });
                    }
                    let at = of_part + (first - start) * width + 2 * beside;
                    for (made, to) in made.iter().zip(to.chunks_exact_mut(of_place)) {
                        let to = &mut to[at..];
                        level.run(Pairs { made, count, pairs: run.div_ceil(2), width, to });
                    }
                }
            }
        }
        Some(sums)
    }
}

/// Makes the places of some channels of a column, and adds up its weights.
struct Places<'a> {
    taps: &'a [[i8; RUN]; TAPS],
    run: usize,
    flip: i8,
    zero: i16,
    column: usize,
    made: &'a mut [[[i16; RUN]; COLUMNS]; PLACES],
    sum: &'a mut i32,
}

impl Loop for Places<'_> {
    #[inline(always)]
    fn run(self) {
        let mut words = [[0i16; RUN]; TAPS];
        for (taps, words) in self.taps.iter().zip(&mut words) {
            for (i, (tap, word)) in taps.iter().zip(words).enumerate() {
                // What fills the last run up is 0, whatever the zero point.
                *word = if i < self.run { i16::from(tap ^ self.flip) - self.zero } else { 0 };
            }
        }
        *self.sum += words.as_flattened().iter().map(|&word| i32::from(word)).sum::<i32>();
        let mut rows = [[[0i16; RUN]; READ]; 3];
        for (words, row) in words.as_chunks::<3>().0.iter().zip(&mut rows) {
            *row = six(words);
        }
        let [above, middle, below] = &rows;
        for (j, ((a, b), c)) in above.iter().zip(middle).zip(below).enumerate() {
            let made = six(&[*a, *b, *c]);
            for (i, made) in made.into_iter().enumerate() {
                self.made[i * READ + j][self.column] = made;
            }
        }
    }
}

/// What becomes of three weights along one dimension.
#[inline(always)]
fn six([a, b, c]: &[[i16; RUN]; 3]) -> [[i16; RUN]; READ] {
    let mut made = [[0; RUN]; READ];
    for i in 0..RUN {
        let (outer, far) = (a[i] + c[i], a[i] + 4 * c[i]);
        made[0][i] = 6 * a[i];
        made[1][i] = outer + b[i];
        made[2][i] = outer - b[i];
        made[3][i] = far + 2 * b[i];
        made[4][i] = far - 2 * b[i];
        made[5][i] = 6 * c[i];
    }
    made
}

/// Puts pairs of channels of a place's columns side by side.
struct Pairs<'a> {
    made: &'a [[i16; RUN]; COLUMNS],
    count: usize,
    pairs: usize,
    width: usize,
    to: &'a mut [i16],
}

impl Loop for Pairs<'_> {
    #[inline(always)]
    fn run(self) {
        for (pair, line) in self.to.chunks_mut(2 * self.width).take(self.pairs).enumerate() {
            let (columns, _) = line[..2 * COLUMNS].as_chunks_mut::<2>();
            for (to, made) in columns.iter_mut().zip(&self.made[..self.count]) {
                *to = [made[2 * pair], made[2 * pair + 1]];
            }
        }
    }
}
