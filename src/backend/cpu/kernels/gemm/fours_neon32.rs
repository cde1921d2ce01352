//! Products on 32-bit Arm with NEON: four rows by a panel of eight columns, or what is left of rows, one by one, by four
//! panels. Either is four lines of sums, which is as many as registers hold besides weights and inputs.
//!
//! Bytes are widened to 16 bits, inputs with their sign or without, and four products at a time go to sums of 32 bits.

use super::finish::{Epilogue, Finish, Quant};
use super::float::Float;
use super::lanes::Lanes;
use super::lanes_neon32::Neon32;
use super::micro::{Block, Family, Micro};
use super::order_neon32::{
    bound, floats_of_four_panels, floats_of_four_rows, signed_of_four_panels, signed_of_four_rows,
    unsigned_of_four_panels, unsigned_of_four_rows, Lines,
};
use super::requant::Form;
use bytemuck::Zeroable;

pub static FLOATS: Micro<Float> = Micro {
    name: "neon32 float",
    rows: LINES,
    columns: COLUMNS,
    group: 1,
    at_once: 1,
    padded: |depth| depth,
    even: false,
    room: 0,
    flip: 0,
    form: Form::Wide,
    run: floats,
};

/// For unsigned inputs, and for signed ones. Weights are signed.
pub static BYTES: [Micro<Quant>; 2] = [of_bytes(bytes::<false>), of_bytes(bytes::<true>)];

const fn of_bytes(run: unsafe fn(&Block<Quant>)) -> Micro<Quant> {
    Micro {
        name: "neon32 8-bit",
        rows: LINES,
        columns: COLUMNS,
        group: 1,
        at_once: 1,
        padded: |depth| depth.next_multiple_of(4),
        even: false,
        room: 0,
        flip: 0,
        form: Neon32::FORM,
        run,
    }
}

/// Lines of sums that are formed at once.
const LINES: usize = 4;
/// Columns of a panel.
const COLUMNS: usize = 8;

/// Some lines of sums, each of a row and a panel. Where there are fewer than four, the last one is there again.
struct Tile {
    rows: [usize; LINES],
    panels: [usize; LINES],
    count: usize,
}

impl Tile {
    /// Whether its lines are rows of one panel.
    fn is_of_rows(&self) -> bool {
        self.panels[0] == self.panels[LINES - 1]
    }
}

/// Goes through a block: all rows but one or two by one panel after the other, then those, each by all panels.
fn for_each_tile<F: Family>(block: &Block<F>, mut tile: impl FnMut(Tile)) {
    let panels = block.columns.div_ceil(COLUMNS);
    let together = match block.rows % LINES {
        3 => block.rows,
        left => block.rows - left,
    };
    for panel in 0..panels {
        for row in (0..together).step_by(LINES) {
            let count = LINES.min(together - row);
            let rows = std::array::from_fn(|line| row + line.min(count - 1));
            tile(Tile { rows, panels: [panel; LINES], count });
        }
    }
    for row in together..block.rows {
        for panel in (0..panels).step_by(LINES) {
            let count = LINES.min(panels - panel);
            let panels = std::array::from_fn(|line| panel + line.min(count - 1));
            tile(Tile { rows: [row; LINES], panels, count });
        }
    }
}

/// The inner loops of a kind of product.
struct Loops<F: Family> {
    rows: unsafe extern "C" fn(*mut Lines<F::Bias>, &[*const F::Input; LINES], *const F::Weight, usize),
    panels: unsafe extern "C" fn(*mut Lines<F::Bias>, *const F::Input, &[*const F::Weight; LINES], usize),
}

impl<F: Family> Loops<F> {
    /// Makes the sums of a tile, with the bias. They stay where they are: to copy them costs as much as short products do.
    ///
    /// # Safety
    /// The machine must have NEON, and the block, as `Micro::run` demands it, have the rows and the panels.
    unsafe fn sums(&self, block: &Block<F>, tile: &Tile, sums: &mut Lines<F::Bias>) {
        // SAFETY: by contract.
        unsafe {
            for (sums, panel) in sums.iter_mut().zip(tile.panels) {
                let bias = block.bias.add(panel * COLUMNS);
                for (i, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
                    *sum = bias.add(i).read_unaligned();
                }
            }
            let mut weights = tile.panels.map(|panel| block.panels.add(panel * block.panel));
            for inputs in block.inputs.chunks_exact(block.rows) {
                let inputs = tile.rows.map(|row| *inputs.get_unchecked(row));
                match tile.is_of_rows() {
                    true => (self.rows)(sums, &inputs, weights[0], block.padded),
                    false => (self.panels)(sums, inputs[0], &weights, block.padded),
                }
                weights = weights.map(|weights| weights.wrapping_add(block.padded * COLUMNS));
            }
        }
    }
}

unsafe fn floats(block: &Block<Float>) {
    let loops = Loops::<Float> { rows: floats_of_four_rows, panels: floats_of_four_panels };
    let bounds = <[f32; 2]>::from(block.finish);
    for_each_tile(block, |tile| {
        // SAFETY: by the contract of `Micro::run`; the outputs exist, as many as columns are left at least.
        unsafe {
            let mut sums = Lines::zeroed();
            loops.sums(block, &tile, &mut sums);
            if bounds != [f32::NEG_INFINITY, f32::INFINITY] {
                bound(&mut sums, &bounds);
            }
            for ((sums, row), panel) in sums.iter().zip(tile.rows).zip(tile.panels).take(tile.count) {
                let column = panel * COLUMNS;
                let to = block.outputs.add(row * block.stride + column);
                for (i, &sum) in sums.as_flattened().iter().enumerate().take(block.columns - column) {
                    to.add(i).write_unaligned(sum);
                }
            }
        }
    });
}

unsafe fn bytes<const SIGNED: bool>(block: &Block<Quant>) {
    let loops = match SIGNED {
        true => Loops::<Quant> { rows: signed_of_four_rows, panels: signed_of_four_panels },
        false => Loops::<Quant> { rows: unsigned_of_four_rows, panels: unsigned_of_four_panels },
    };
    // SAFETY: by the contract of `Micro::run`.
    let epilogue = unsafe { Epilogue::<Neon32>::of::<SIGNED>(block) };
    for_each_tile(block, |tile| {
        // SAFETY: as above. A line that is there again writes the same bytes.
        unsafe {
            let mut sums = Lines::zeroed();
            loops.sums(block, &tile, &mut sums);
            if block.finish.0.row_factor != 0 {
                for (sums, row) in sums.iter_mut().zip(tile.rows) {
                    let term = Neon32::splat(*epilogue.terms.get_unchecked(row));
                    *sums = sums.map(|sums| Neon32::sub(sums, term));
                }
            }
            if tile.is_of_rows() {
                let finish = Finish::of(block, &epilogue, tile.panels[0]);
                for (sums, rows) in sums.as_chunks::<2>().0.iter().zip(tile.rows.as_chunks::<2>().0) {
                    finish.rows(*sums, *rows);
                }
                return;
            }
            for ((sums, row), panel) in sums.iter().zip(tile.rows).zip(tile.panels).take(tile.count) {
                Finish::of(block, &epilogue, panel).rows([*sums; 2], [row; 2]);
            }
        }
    });
}
