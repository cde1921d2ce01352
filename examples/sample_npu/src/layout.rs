//! The device's own layout of 8-bit tensors: channels in blocks of [`LANES`], all rows of a block one after another.
//!
//! An engine multiplies [`LANES`] elements at once, so it wants them side by side, from an aligned start. Clients know
//! the plain layout only: whatever comes from them or goes to them is converted, constants once, at compilation.

/// Elements that an engine takes at once.
pub const LANES: usize = 16;

/// A tensor as the device sees it: its last dimension is channels, all others are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub channels: usize,
}

impl Shape {
    /// That of a tensor of these dimensions, which are all known.
    pub fn of(dims: &[u32]) -> Self {
        let (last, others) = dims.split_last().unwrap_or((&1, &[]));
        Shape { rows: others.iter().map(|&d| d as usize).product(), channels: *last as usize }
    }

    pub fn plain_len(self) -> usize {
        self.rows.saturating_mul(self.channels)
    }

    pub fn tiled_len(self) -> usize {
        self.rows.saturating_mul(self.channels.div_ceil(LANES)).saturating_mul(LANES)
    }

    /// Where in the tiled layout the row's channels of `block` start.
    pub fn tile(self, row: usize, block: usize) -> usize {
        (block * self.rows + row) * LANES
    }
}

/// `plain` in the device's layout. Lanes beyond the last channel are zero.
pub fn tiled(plain: &[u8], shape: Shape) -> Vec<u8> {
    let mut tiled = vec![0; shape.tiled_len()];
    if shape.channels == 0 {
        return tiled;
    }
    for (row, values) in plain.chunks_exact(shape.channels).take(shape.rows).enumerate() {
        for (block, lanes) in values.chunks(LANES).enumerate() {
            let start = shape.tile(row, block);
            tiled[start..start + lanes.len()].copy_from_slice(lanes);
        }
    }
    tiled
}

/// What [`tiled`] was made of.
pub fn plain(tiled: &[u8], shape: Shape) -> Vec<u8> {
    let mut plain = vec![0; shape.plain_len()];
    if shape.channels == 0 {
        return plain;
    }
    for (row, values) in plain.chunks_exact_mut(shape.channels).enumerate() {
        for (block, lanes) in values.chunks_mut(LANES).enumerate() {
            let start = shape.tile(row, block);
            lanes.copy_from_slice(&tiled[start..start + lanes.len()]);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_there_and_back() {
        for dims in [&[1][..], &[3, 16], &[2, 5, 17], &[7, 1], &[1, 40]] {
            let shape = Shape::of(dims);
            let values: Vec<u8> = (0..shape.plain_len()).map(|i| i as u8).collect();
            let there = tiled(&values, shape);
            assert_eq!((there.len(), plain(&there, shape)), (shape.tiled_len(), values), "{dims:?}");
        }
        // Row 1, channel 16 of [2, 17]: the second block, its second row, first lane.
        let values: Vec<u8> = (0..34).collect();
        assert_eq!(tiled(&values, Shape::of(&[2, 17]))[2 * LANES + LANES], 33);
    }
}
