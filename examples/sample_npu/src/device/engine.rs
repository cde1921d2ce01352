//! An engine: a scratchpad, and the instructions that work on it.
//!
//! It computes as NNAPI's reference does, to the last bit: a client may check.

use crate::layout::{plain, tiled, Shape, LANES};
use crate::plan::SCRATCH_BYTES;
use crate::protocol::JobStatus;
use crate::stream::{self, Instruction};
use nnhal::memory::{AlignedBuf, ClientSlice, MemoryError, SharedU64};

/// Multiplications between two looks whether the job is to be stopped: well under a millisecond's.
const LOOK: usize = 1 << 16;

/// A job, read.
pub struct Work {
    pub stream: Vec<Instruction>,
    pub weights: AlignedBuf,
    pub tables: AlignedBuf,
    /// Where each argument is; an error where its memory could not be mapped.
    pub places: Vec<Result<Place, MemoryError>>,
    pub cancel: SharedU64,
}

/// Where an argument is, and in which layout.
pub struct Place {
    pub slice: ClientSlice,
    pub tiled: bool,
}

pub struct Engine {
    scratch: Vec<u8>,
}

impl Engine {
    pub fn new() -> Self {
        Engine { scratch: vec![0; SCRATCH_BYTES] }
    }

    /// Runs a job to its end.
    pub fn run(&mut self, work: &Work) -> Result<(), JobStatus> {
        for i in &work.stream {
            check(work)?;
            let shape = Shape { rows: i.rows as usize, channels: i.channels as usize };
            let len = shape.plain_len();
            match i.code {
                stream::LOAD => {
                    let value = load(place(work, i.x)?, shape)?;
                    self.part(i.to, len)?.copy_from_slice(&value);
                }
                stream::STORE => store(place(work, i.to)?, self.part(i.x, len)?, shape)?,
                stream::ADD => {
                    let (x, y) = (self.part(i.x, len)?.to_vec(), self.part(i.y, len)?.to_vec());
                    for ((to, x), y) in self.part(i.to, len)?.iter_mut().zip(x).zip(y) {
                        *to = add(i, x, y);
                    }
                }
                stream::FULLY_CONNECTED => self.fully_connected(work, i, shape)?,
                stream::CLAMP => {
                    let x = self.part(i.x, len)?.to_vec();
                    let to = self.part(i.to, len)?.iter_mut();
                    to.zip(x).for_each(|(to, x)| *to = into_range(i, widen(i, x)));
                }
                stream::LOOKUP => {
                    let x = self.part(i.x, len)?.to_vec();
                    let table = constants(&work.tables, i.table, 256)?;
                    let to = self.part(i.to, len)?.iter_mut();
                    to.zip(x).for_each(|(to, x)| *to = table[usize::from(x)]);
                }
                _ => return Err(JobStatus::Fault),
            }
        }
        Ok(())
    }

    fn part(&mut self, at: u32, len: usize) -> Result<&mut [u8], JobStatus> {
        let rest = self.scratch.get_mut(at as usize..).ok_or(JobStatus::Fault)?;
        rest.get_mut(..len).ok_or(JobStatus::Fault)
    }

    fn fully_connected(&mut self, work: &Work, i: &Instruction, shape: Shape) -> Result<(), JobStatus> {
        let units = i.units as usize;
        let weights_shape = Shape { rows: units, channels: shape.channels };
        let weights = constants(&work.weights, i.y, weights_shape.tiled_len())?;
        let biases = constants(&work.tables, i.table, units.saturating_mul(4))?;
        let input = self.part(i.x, shape.plain_len())?.to_vec();
        let output = self.part(i.to, shape.rows.saturating_mul(units))?;
        let mut since_look = 0;
        for (x, to) in input.chunks_exact(shape.channels).zip(output.chunks_exact_mut(units)) {
            for (unit, (to, bias)) in to.iter_mut().zip(biases.chunks_exact(4)).enumerate() {
                let mut sum = i32::from_le_bytes([bias[0], bias[1], bias[2], bias[3]]);
                for (block, lanes) in x.chunks(LANES).enumerate() {
                    for (&x, &w) in lanes.iter().zip(&weights[weights_shape.tile(unit, block)..]) {
                        let (x, w) = (widen(i, x) - i.x_units.zero_point, widen(i, w) - i.y_units.zero_point);
                        sum = sum.wrapping_add(x * w);
                    }
                }
                *to = into_range(i, i.out.multiply(sum).saturating_add(i.out.zero_point));
                since_look += shape.channels;
                if since_look >= LOOK {
                    since_look = 0;
                    check(work)?;
                }
            }
        }
        Ok(())
    }
}

fn add(i: &Instruction, x: u8, y: u8) -> u8 {
    let raised = |q: u8, zero_point: i32| widen(i, q).wrapping_sub(zero_point).wrapping_shl(20);
    let x = i.x_units.multiply(raised(x, i.x_units.zero_point));
    let y = i.y_units.multiply(raised(y, i.y_units.zero_point));
    into_range(i, i.out.multiply(x.wrapping_add(y)).saturating_add(i.out.zero_point))
}

/// Not by `clamp`, which panics where senseless scales turn the bounds round.
fn into_range(i: &Instruction, value: i32) -> u8 {
    value.max(i.low).min(i.high) as u8
}

fn widen(i: &Instruction, byte: u8) -> i32 {
    if i.signed {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

/// Copies first: the client may change its memory while this reads it.
fn load(place: &Place, shape: Shape) -> Result<Vec<u8>, JobStatus> {
    let bytes = place.slice.to_private().map_err(|_| JobStatus::BadMemory)?;
    match place.tiled {
        true if bytes.len() == shape.tiled_len() => Ok(plain(&bytes, shape)),
        false if bytes.len() == shape.plain_len() => Ok(bytes.to_vec()),
        _ => Err(JobStatus::Fault),
    }
}

fn store(place: &Place, value: &[u8], shape: Shape) -> Result<(), JobStatus> {
    let written =
        if place.tiled { place.slice.write(&tiled(value, shape)) } else { place.slice.write(value) };
    written.map_err(|_| JobStatus::BadMemory)
}

fn place(work: &Work, argument: u32) -> Result<&Place, JobStatus> {
    let place = work.places.get(argument as usize).ok_or(JobStatus::Fault)?;
    place.as_ref().map_err(|_| JobStatus::BadMemory)
}

fn constants(list: &[u8], at: u32, len: usize) -> Result<&[u8], JobStatus> {
    list.get(at as usize..).and_then(|rest| rest.get(..len)).ok_or(JobStatus::Fault)
}

/// An error if the driver wants the job stopped.
fn check(work: &Work) -> Result<(), JobStatus> {
    match work.cancel.load() {
        Ok(0) => Ok(()),
        Ok(_) => Err(JobStatus::Cancelled),
        Err(_) => Err(JobStatus::Fault),
    }
}
