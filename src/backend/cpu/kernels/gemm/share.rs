//! How a product is shared out among threads: rows into bands, panels into strips, a task for each pair of them.
//!
//! A band reads all weights of its strip again, and a strip all inputs of its band: of the ways to get enough tasks, that is
//! taken which moves the fewest bytes. Threads have the same rows of each operation, as far as there are bands for all: what
//! they read then is what they wrote, and need not come from another core. Results do not depend on it.

use crate::backend::cpu::pool::shares::first_of;
use crate::backend::cpu::pool::LEAST_SHARED_NS;
use std::ops::Range;

/// What a product costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub rows: usize,
    /// Rows that are multiplied at once: so many of lines of an image, otherwise at the most.
    pub tile: usize,
    pub is_of_lines: bool,
    pub panels: usize,
    /// Multiplications for a row and a panel, as many as take the time of one of floats.
    pub products: usize,
    /// As many as take the time that the inputs of a row of outputs are copied in, and the row is written and gone on with.
    pub finish: usize,
    /// Bytes of a row of inputs, and of a panel.
    pub row_bytes: usize,
    pub panel_bytes: usize,
    /// Bytes of a row of outputs.
    pub output_bytes: usize,
    /// Tasks for each thread, at the most.
    pub each: usize,
    /// Whether outputs are gone on with: whole rows at one go, but parts of rows one by one.
    pub is_gone_on_with: bool,
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
/// Products that are worth being shared out at all.
const SHARED: u64 = (LEAST_SHARED_NS * 1000 / PICOSECONDS) as u64;
/// Products that take about a millisecond: only between tasks is looked whether to stop.
pub const LONG: u64 = 1_000_000_000 / PICOSECONDS as u64;
/// Tasks for each thread: threads do not start at the same moment, nor run undisturbed, nor all as fast; but to begin a
/// task takes time, too.
pub const EACH: usize = 4;
/// The same where much is done for each task before it multiplies.
pub const FEW: usize = 2;
/// What going on with a part of a row takes besides, as so many bytes that are moved.
const CALL: usize = 2048;
/// Strips that are considered.
const MOST_STRIPS: usize = 256;

impl Grid {
    pub fn new(cost: Cost, threads: usize) -> Self {
        let Cost { rows, panels, .. } = cost;
        // Bands are of whole tiles, which are nearly as high as each other, and as many for each thread.
        let tile = match rows.div_ceil(cost.tile) {
            0 | 1 => rows.max(1),
            _ if cost.is_of_lines => cost.tile,
            count => rows.div_ceil(count.next_multiple_of(threads)),
        };
        let tiles = rows.div_ceil(tile).max(1);
        // More than a pointer has bits for, where those are 32.
        let all = |products: usize, of_each: usize| {
            (products as u64).saturating_mul(of_each as u64).saturating_mul(rows as u64)
        };
        let (total, finish) = (all(cost.products, panels), all(cost.finish, 1));
        // As many for each thread.
        let each = (total / WORTHWHILE).div_ceil(threads as u64).clamp(1, cost.each as u64) as usize;
        let shared = if threads > 1 && total >= SHARED { each * threads } else { 1 };
        let long = total.saturating_add(finish).div_ceil(LONG);
        let wanted = usize::try_from(long).unwrap_or(usize::MAX).max(shared).max(1);
        if wanted == 1 {
            return Grid { rows, tile, panels, bands: 1, strips: 1 };
        }
        let moved = |&(bands, strips): &(usize, usize)| {
            let weights = cost.panel_bytes.saturating_mul(panels).saturating_mul(bands);
            let inputs = cost.row_bytes.saturating_mul(rows).saturating_mul(strips);
            // A thread that has other rows than before and after gets most of them from other cores.
            let elsewhere = cost.row_bytes.saturating_add(cost.output_bytes).saturating_mul(rows);
            // Others wait for the one that has most, whose products more take about as long as so many bytes.
            let grid = Grid { rows, tile, panels, bands, strips };
            let more = (grid.most(threads) * threads).saturating_sub(tiles * panels);
            let late = more.saturating_mul(tile.saturating_mul(cost.products));
            let elsewhere = if bands < threads { elsewhere } else { 0 };
            let calls =
                if cost.is_gone_on_with && strips > 1 { rows.saturating_mul(strips * CALL) } else { 0 };
            [inputs, elsewhere, late, calls].into_iter().fold(weights, usize::saturating_add)
        };
        let ways = (1..=panels.min(wanted).min(MOST_STRIPS)).map(|strips| match wanted.div_ceil(strips) {
            1 => (1, strips),
            bands => (bands.next_multiple_of(threads).min(tiles), strips),
        });
        let enough = |&(bands, strips): &(usize, usize)| bands * strips >= wanted;
        let best = ways.clone().filter(enough).min_by_key(moved);
        let (bands, strips) = best.unwrap_or((wanted.min(tiles), wanted.min(panels.max(1))));
        Grid { rows, tile, panels, bands, strips }
    }

    pub fn tasks(&self) -> usize {
        self.bands * self.strips
    }

    /// The most tiles and panels, counted together, that one of the threads has, each of which has as many tasks.
    fn most(&self, threads: usize) -> usize {
        if threads == 1 {
            return self.tiles() * self.panels;
        }
        let before = |thread: usize| {
            let task = first_of(self.tasks(), thread, threads);
            let (band, strip) = (task / self.strips, task % self.strips);
            let above = bound(self.tiles(), band, self.bands);
            let high = bound(self.tiles(), (band + 1).min(self.bands), self.bands) - above;
            above * self.panels + high * bound(self.panels, strip, self.strips)
        };
        let (mut most, mut last) = (0, 0);
        for next in (1..=threads).map(before) {
            (most, last) = (most.max(next - last), next);
        }
        most
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(self.tile)
    }

    /// Rows and panels of a task. Neighbouring tasks have the same band.
    pub fn task(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (band, strip) = (index / self.strips, index % self.strips);
        let tiles = even_part(self.tiles(), band, self.bands);
        let rows = tiles.start * self.tile..self.rows.min(tiles.end * self.tile);
        (rows, even_part(self.panels, strip, self.strips))
    }
}

/// Part `index` of `count` nearly even ones.
pub fn even_part(all: usize, index: usize, count: usize) -> Range<usize> {
    bound(all, index, count)..bound(all, index + 1, count)
}

/// Where it starts.
fn bound(all: usize, index: usize, count: usize) -> usize {
    // There may be more than 2^16 of each, whose product is beyond 32 bits.
    all / count * index + ((all % count) as u64 * index as u64 / count as u64) as usize
}
