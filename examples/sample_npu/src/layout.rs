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
    for (row, values) in plain.chunks_exact(shape.channels.max(1)).take(shape.rows).enumerate() {
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
    for (row, values) in plain.chunks_exact_mut(shape.channels.max(1)).enumerate() {
        for (block, lanes) in values.chunks_mut(LANES).enumerate() {
            let start = shape.tile(row, block);
            lanes.copy_from_slice(&tiled[start..start + lanes.len()]);
        }
    }
    plain
}
