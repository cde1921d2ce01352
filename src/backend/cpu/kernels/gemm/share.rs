//! How a product is shared out among threads: rows into bands, panels into strips, a task for each pair of them.
//!
//! A band reads all weights of its strip again, and a strip all inputs of its band: of the ways to get enough tasks, that is
//! taken which moves the fewest bytes. Threads have the same rows of each operation, as far as there are bands for all: what
//! they read then is what they wrote, and need not come from another core. Results do not depend on it.

use std::ops::Range;

/// What a product costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub rows: usize,
    /// Rows that are multiplied at once.
    pub tile: usize,
    pub panels: usize,
    /// Multiplications for a row and a panel, as many as take the time of one of floats.
    pub products: usize,
    /// As many as take the time that a row of outputs is written in, and gone on with.
    pub finish: usize,
    /// Bytes of a row of inputs, and of a panel.
    pub row_bytes: usize,
    pub panel_bytes: usize,
    /// Bytes of a row of outputs.
    pub output_bytes: usize,
    /// Whether operands are taken apart for each task.
    pub is_taken_apart: bool,
}

/// Bands and strips of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    rows: usize,
    tile: usize,
    panels: usize,
    bands: usize,
    strips: usize,
}

/// Products that are worth a task of their own, which sets tiles up and points to its rows before it multiplies.
const WORTHWHILE: u64 = 384 * 1024;
/// What a product takes, about.
pub const PICOSECONDS: usize = 30;
/// Products that take about a millisecond: only between tasks is looked whether to stop.
const LONG: u64 = 1_000_000_000 / PICOSECONDS as u64;
/// Tasks for each thread, at the most: threads do not start at the same moment, nor run undisturbed, nor all as fast.
const EACH: usize = 8;
/// The same where operands are taken apart for each task.
const FEW: usize = 2;
/// Strips that are considered.
const MOST_STRIPS: usize = 256;

impl Grid {
    pub fn new(cost: Cost, threads: usize) -> Self {
        let Cost { rows, panels, .. } = cost;
        // Bands are of whole tiles, which are nearly as high as each other.
        let tile = rows.div_ceil(rows.div_ceil(cost.tile).max(1)).max(1);
        let tiles = rows.div_ceil(tile).max(1);
        // More than a pointer has bits for, where those are 32.
        let all = |products: usize, of_each: usize| {
            (products as u64).saturating_mul(of_each as u64).saturating_mul(rows as u64)
        };
        let (total, finish) = (all(cost.products, panels), all(cost.finish, 1));
        // As many for each thread.
        let most = if cost.is_taken_apart { FEW } else { EACH };
        let each = (total / WORTHWHILE).div_ceil(threads as u64).min(most as u64) as usize;
        let shared = if threads > 1 { each * threads } else { 1 };
        let long = total.saturating_add(finish).div_ceil(LONG);
        let wanted = usize::try_from(long).unwrap_or(usize::MAX).max(shared).max(1);
        let moved = |&(bands, strips): &(usize, usize)| {
            let weights = cost.panel_bytes.saturating_mul(panels).saturating_mul(bands);
            let inputs = cost.row_bytes.saturating_mul(rows).saturating_mul(strips);
            // A thread that has other rows than before and after gets most of them from other cores.
            let elsewhere = cost.row_bytes.saturating_add(cost.output_bytes).saturating_mul(rows);
            weights.saturating_add(inputs).saturating_add(if bands < threads { elsewhere } else { 0 })
        };
        let ways = (1..=panels.min(wanted).min(MOST_STRIPS))
            .map(|strips| (wanted.div_ceil(strips).min(tiles), strips));
        let enough = |&(bands, strips): &(usize, usize)| bands * strips >= wanted;
        let best = ways.clone().filter(enough).min_by_key(moved);
        let (bands, strips) = best.unwrap_or((wanted.min(tiles), wanted.min(panels.max(1))));
        Grid { rows, tile, panels, bands, strips }
    }

    pub fn tasks(&self) -> usize {
        self.bands * self.strips
    }

    /// Rows and panels of a task. Neighbouring tasks have the same band.
    pub fn task(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (band, strip) = (index / self.strips, index % self.strips);
        let tiles = part(self.rows.div_ceil(self.tile), band, self.bands);
        let rows = tiles.start * self.tile..self.rows.min(tiles.end * self.tile);
        (rows, part(self.panels, strip, self.strips))
    }
}

/// Part `index` of `count` nearly even ones.
fn part(all: usize, index: usize, count: usize) -> Range<usize> {
    let bound = |i: usize| all / count * i + (all % count * i) / count;
    bound(index)..bound(index + 1)
}
