//! Which rows of a block are multiplied together, where as many as a tile has must lie at one distance.
//!
//! Rows have places, which lie at that distance. A tile begins with the first row that no tile before has, and has all rows
//! of as many places as it is high: no other choice needs fewer tiles.

use super::micro::{Line, MAX_ROWS};

/// Places of a tile, at the most.
pub const HEIGHT: usize = 16;

/// Some rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tile {
    start: u32,
    first: u16,
    end: u16,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // elsewhere tiles are only counted
impl Tile {
    /// The first of its places.
    pub fn start(&self) -> usize {
        self.start as usize
    }

    /// The rows that it has and no tile before.
    pub fn rows(&self) -> std::ops::Range<usize> {
        self.first.into()..self.end.into()
    }
}

/// The tiles of a block.
pub struct Tiles {
    rows: usize,
    /// Places of the block.
    all: usize,
    /// What cannot be computed from that, as there is something between lines.
    gaps: Option<Gaps>,
}

struct Gaps {
    tiles: [Tile; MAX_ROWS],
    count: usize,
    /// By row.
    places: [u32; MAX_ROWS],
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // as above
impl Tiles {
    /// Those of so many rows, at least 1, which lie as `line` says.
    #[inline(always)]
    pub fn new(rows: usize, line: Option<Line>) -> Self {
        let mut tiles = Tiles { rows, all: rows, gaps: None };
        // Most blocks have no gaps, and are too small to clear for each what is not needed.
        if let Some(line) = line {
            tiles.gaps = Some(Gaps::new(rows, line));
            tiles.all = tiles.place(rows - 1) + 1;
        }
        tiles
    }

    /// Places of each.
    pub fn height(&self) -> usize {
        self.all.min(HEIGHT)
    }

    pub fn count(&self) -> usize {
        self.gaps.as_ref().map_or(self.rows.div_ceil(HEIGHT), |gaps| gaps.count)
    }

    /// One of them, counted from the first.
    #[inline(always)]
    pub fn tile(&self, i: usize) -> Tile {
        match &self.gaps {
            None => {
                let first = i * HEIGHT;
                // The last one ends with the block.
                let (start, end) = (first.min(self.all - self.height()), self.rows.min(first + HEIGHT));
                Tile { start: start as u32, first: first as u16, end: end as u16 }
            }
            Some(gaps) => gaps.tiles[i],
        }
    }

    /// The place of a row, counted from that of the first.
    #[inline(always)]
    pub fn place(&self, row: usize) -> usize {
        match &self.gaps {
            None => row,
            Some(gaps) => gaps.places[row] as usize,
        }
    }
}

impl Gaps {
    fn new(rows: usize, line: Line) -> Self {
        let mut gaps = Gaps { tiles: [Tile::default(); MAX_ROWS], count: 0, places: places(rows, line) };
        let places = &gaps.places[..rows];
        let all = places.last().map_or(0, |&place| place as usize + 1);
        let mut first = 0;
        while first < rows {
            let start = (places[first] as usize).min(all - all.min(HEIGHT));
            let is_in = |&&place: &&u32| (place as usize) < start + HEIGHT;
            let end = first + places[first..].iter().take(HEIGHT).take_while(is_in).count();
            gaps.tiles[gaps.count] = Tile { start: start as u32, first: first as u16, end: end as u16 };
            gaps.count += 1;
            first = end;
        }
        gaps
    }
}

/// The places of so many rows.
fn places(rows: usize, line: Line) -> [u32; MAX_ROWS] {
    let mut places = [0; MAX_ROWS];
    let (mut left, mut place) = (line.rows - line.before, 0);
    let mut of_lines = &mut places[..rows];
    while !of_lines.is_empty() {
        let (of_line, others) = of_lines.split_at_mut(left.min(of_lines.len()));
        of_line.iter_mut().zip(place as u32..).for_each(|(to, place)| *to = place);
        place += left + line.places - line.rows;
        (of_lines, left) = (others, line.rows);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_row_is_in_one_tile(
            rows in 1usize..=MAX_ROWS, of_line in 1usize..80, between in 0usize..40, before in 0usize..80, lines in any::<bool>(),
        ) {
            let before = before % of_line;
            let line = Line { rows: of_line, places: of_line + between, before, distance: 1 };
            let tiles = Tiles::new(rows, lines.then_some(line));
            let place = |row: usize| match lines {
                true => (row + before) / of_line * line.places + (row + before) % of_line - before,
                false => row,
            };
            let mut next = 0;
            for tile in (0..tiles.count()).map(|i| tiles.tile(i)) {
                prop_assert!(tile.rows().start == next && !tile.rows().is_empty());
                prop_assert!(tile.start() + tiles.height() <= place(rows - 1) + 1, "nothing is read beyond the last row");
                for row in tile.rows() {
                    prop_assert_eq!(tiles.place(row), place(row));
                    prop_assert!((tile.start()..tile.start() + tiles.height()).contains(&place(row)));
                }
                next = tile.rows().end;
            }
            prop_assert_eq!(next, rows);
        }
    }

    #[test]
    fn tiles_go_on_across_lines_where_that_spares_some() {
        let count = |of_line: usize, places: usize, lines: usize| {
            Tiles::new(of_line * lines, Some(Line { rows: of_line, places, before: 0, distance: 1 })).count()
        };
        assert_eq!(count(7, 9, 7), 4);
        assert_eq!(count(14, 16, 14), 14);
        assert_eq!(count(28, 30, 8), 15);
        assert_eq!(count(32, 34, 8), 16, "one begins with each line");
        assert_eq!(count(1, 100, 5), 5);
    }
}
