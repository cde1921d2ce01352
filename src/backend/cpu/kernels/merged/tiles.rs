//! Several calls on floats, each by its own kernel, on a tile of elements or rows after the other: what they make between stays
//! in the nearest cache.
//!
//! The bytes are those of the same kernels run one after the other on all elements.

use super::call::{Call, Input, Tile};
use crate::backend::cpu::kernels::elementwise::is_elementwise;
use crate::backend::cpu::kernels::gemm::Room;
use crate::backend::cpu::kernels::kernel::{input, output};
use crate::backend::cpu::kernels::{Elementwise, Kernel, Work};
use crate::memory::{AlignedBuf, Target, View};
use crate::ops::OpError;
use crate::tensor::TensorInfo;
use std::sync::Arc;

/// Elements of a tile, unless one row has more.
const TILE: usize = 1024;
/// Tiles between the calls, at most: each thread has memory for them, which nobody counts.
const MOST_PLACES: usize = 8;
/// Inputs of a call that have elements; others are known when its kernel is made.
const MOST_INPUTS: usize = 2;
const SIZE: usize = size_of::<f32>();

/// Output 0 as what the calls make of input 0.
pub struct Tiles {
    calls: Vec<Part>,
    /// How many tiles are there at a time between the calls.
    places: usize,
    /// Rows of a tile, and bytes of each. Where no call tells rows from each other an element is a row.
    rows: usize,
    row: usize,
    /// Picoseconds that a row takes.
    cost: usize,
}

struct Part {
    kernel: Box<dyn Kernel>,
    inputs: Vec<Option<From>>,
    /// The place that it fills; the last call fills the output.
    to: usize,
    /// Bytes that it makes of a row.
    row: usize,
}

/// Tiles between the calls, which are parts of one room: threads that allocate wait for each other.
type Places<'a> = [&'a mut [u8]; MOST_PLACES];

fn places(room: &mut [u8], tile: usize) -> Places<'_> {
    let mut tiles = room.chunks_exact_mut(tile);
    std::array::from_fn(|_| tiles.next().unwrap_or_default())
}

enum From {
    Operand,
    Place(usize),
    /// The routine's own bytes.
    Constant(Arc<AlignedBuf>),
}

impl Tiles {
    /// `None` where one of the calls has no kernel that makes tiles, or there is much between the calls at a time.
    pub fn new(operand: &TensorInfo, calls: &[Call]) -> Option<Self> {
        let infos: Vec<_> = std::iter::once(operand).chain(calls.iter().map(|call| call.output)).collect();
        let tile = match calls.iter().any(|call| has_rows(operand, call)) {
            true => Tile::Rows((TILE / Tile::Rows(1).width(operand).max(1)).max(1)),
            false => Tile::Elements(TILE),
        };
        let last_read = |made: usize| calls.iter().rposition(|call| call.reads(made));
        let (mut parts, mut places): (Vec<Part>, Vec<Option<usize>>) = Default::default();
        let mut cost = 0usize;
        for (i, call) in calls.iter().enumerate() {
            // A place is free once what it holds was read for the last time: by a call before this one.
            let is_free =
                |held: &Option<usize>| held.is_none_or(|made| last_read(made).is_none_or(|read| read < i));
            let to = places.iter().position(is_free).unwrap_or(places.len());
            let from = |input: &Input| match *input {
                Input::Operand => Some(From::Operand),
                Input::Made(made) => Some(From::Place(parts.get(made)?.to)),
                Input::Constant(_, bytes) => Some(From::Constant(bytes.clone())),
            };
            let inputs = call.inputs.iter().take(MOST_INPUTS).map(|input| input.as_ref().map(from));
            let inputs =
                inputs.map(|from| from.map_or(Some(None), |from| from.map(Some))).collect::<Option<_>>()?;
            if to == MOST_PLACES {
                return None;
            }
            if to == places.len() {
                places.push(None);
            }
            places[to] = Some(i);
            let (kernel, width) = (call.kernel(&infos, tile)?, tile.width(call.output));
            kernel.tiled()?;
            cost = cost.saturating_add(kernel.picoseconds().saturating_mul(width));
            parts.push(Part { kernel, inputs, to, row: width * SIZE });
        }
        let (Tile::Elements(rows) | Tile::Rows(rows)) = tile;
        Some(Tiles { calls: parts, places: places.len(), rows, row: tile.width(operand) * SIZE, cost })
    }

    /// Bytes of a tile.
    fn size(&self) -> usize {
        self.rows * self.row
    }

    /// Memory for so many tiles, with whatever is in it.
    fn room(&self, tiles: usize) -> Result<Room, OpError> {
        let mut room = Room::default();
        room.make(tiles * self.size())?;
        Ok(room)
    }

    /// All calls on one tile.
    fn tile(&self, from: View<u8>, to: Target<u8>, places: &mut Places) -> Result<(), OpError> {
        let (last, rows, mut to) = (self.calls.len() - 1, to.len() / self.row, Some(to));
        for (i, part) in self.calls.iter().enumerate() {
            // No call reads the place that it fills.
            let made = std::mem::take(&mut places[part.to]);
            let mut inputs = [None; MOST_INPUTS];
            for (view, input) in inputs.iter_mut().zip(&part.inputs) {
                *view = input.as_ref().map(|input| match input {
                    From::Operand => from,
                    From::Place(place) => View::of(&*places[*place]),
                    From::Constant(bytes) => View::of(bytes),
                });
            }
            let ours = Target::of(&mut made[..rows * part.row]);
            let mut out = to.take_if(|_| i == last).unwrap_or(ours);
            part.kernel.tiled().ok_or(OpError::Unresolved)?.tile(&inputs, &mut out)?;
            places[part.to] = made;
        }
        Ok(())
    }
}

/// Whether a call on this operand, or on what comes of it, is one by rows.
fn has_rows(operand: &TensorInfo, call: &Call) -> bool {
    let is_row =
        |input: &Input| matches!(input, Input::Constant(info, _) if info.dims.iter().any(|&dim| dim != 1));
    !is_elementwise(call.operation.ty)
        || call.output.dims != operand.dims
        || call.inputs.iter().flatten().any(is_row)
}

impl Kernel for Tiles {
    fn name(&self) -> String {
        let kernel = self.calls.first().map(|part| part.kernel.name()).unwrap_or_default();
        let of = if self.row == SIZE { "tiles" } else { "rows" };
        format!("{kernel}, {} in {of}", self.calls.len())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (from, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let rows = work.units_per_task(out.len() / self.row, self.cost, 2 * self.row);
        let tile = self.size();
        work.try_for_each_chunk(out, rows.next_multiple_of(self.rows) * self.row, |first, mut to| {
            let mut room = self.room(self.places)?;
            let mut places = places(&mut room, tile);
            (0..to.len()).step_by(tile).try_for_each(|at| {
                let len = (to.len() - at).min(tile);
                self.tile(from.part(first + at, len), to.part(at, len), &mut places)
            })
        })
    }

    fn picoseconds(&self) -> usize {
        self.cost / (self.row / SIZE).max(1)
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Tiles {
    fn inputs(&self) -> usize {
        1
    }

    fn together(&self) -> usize {
        self.row / SIZE
    }

    fn go_on(&self, made: &mut [u8], _: usize, _: usize, _: Option<View<u8>>) -> Result<(), OpError> {
        let mut room = self.room(self.places + 1)?;
        let (copy, room) = room.split_at_mut(self.size());
        let mut places = places(room, self.size());
        for tile in made.chunks_mut(self.size()) {
            let copy = &mut copy[..tile.len()];
            copy.copy_from_slice(tile);
            self.tile(View::of(copy), Target::of(tile), &mut places)?;
        }
        Ok(())
    }
}
