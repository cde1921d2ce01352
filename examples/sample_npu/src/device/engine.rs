//! An engine: a scratchpad, and the instructions that work on it.
//!
//! It computes as NNAPI's reference does, to the last bit: a client may check.

use crate::layout::{plain, tiled, Shape, LANES};
use crate::plan::SCRATCH_BYTES;
use crate::protocol::{JobStatus, BAD_MEMORY, CANCELLED, FAULT};
use crate::stream::{self, Instruction};
use nnhal::memory::{AlignedBuf, ClientSlice, SharedU64};

/// Multiplications between two checks whether the driver wants the job stopped: well under a millisecond's.
const CHECK_EVERY: usize = 1 << 16;

/// A job, read.
pub struct Work {
    pub stream: Vec<Instruction>,
    pub weights: AlignedBuf,
    pub tables: AlignedBuf,
    pub arguments: Vec<Argument>,
    pub cancel: SharedU64,
}

/// Where an argument is, and in which layout.
pub struct Argument {
    pub slice: ClientSlice,
    pub tiled: bool,
}

/// Runs a job to its end, with a scratchpad for its values.
pub fn run(work: &Work) -> Result<(), JobStatus> {
    let mut scratch = vec![0; SCRATCH_BYTES];
    for i in &work.stream {
        check(work)?;
        let shape = Shape { rows: i.rows as usize, channels: i.channels as usize };
        let value = |at: i32| part(&scratch, at, shape.plain_len());
        let result: Vec<u8> = match i.code {
            stream::LOAD => load(argument(work, i.x)?, shape)?,
            stream::STORE => {
                store(argument(work, i.to)?, value(i.x)?, shape)?;
                continue;
            }
            stream::ADD => value(i.x)?.iter().zip(value(i.y)?).map(|(&x, &y)| add(i, x, y)).collect(),
            stream::FULLY_CONNECTED => fully_connected(work, i, value(i.x)?, shape)?,
            stream::CLAMP => value(i.x)?.iter().map(|&x| into_range(i, widen(i, x))).collect(),
            stream::LOOKUP => {
                let table = part(&work.tables, i.table, 256)?;
                value(i.x)?.iter().map(|&x| table[usize::from(x)]).collect()
            }
            _ => return Err(FAULT),
        };
        let to = scratch.get_mut(i.to as usize..).and_then(|rest| rest.get_mut(..result.len()));
        to.ok_or(FAULT)?.copy_from_slice(&result);
    }
    Ok(())
}

fn part(list: &[u8], at: i32, len: usize) -> Result<&[u8], JobStatus> {
    list.get(at as usize..).and_then(|rest| rest.get(..len)).ok_or(FAULT)
}

fn fully_connected(work: &Work, i: &Instruction, input: &[u8], shape: Shape) -> Result<Vec<u8>, JobStatus> {
    let weights_shape = Shape { rows: i.units as usize, channels: shape.channels };
    let weights = part(&work.weights, i.y, weights_shape.tiled_len())?;
    let biases = part(&work.tables, i.table, weights_shape.rows.saturating_mul(4))?;
    let (mut output, mut unchecked) = (Vec::new(), 0);
    for x in input.chunks_exact(shape.channels.max(1)) {
        for (unit, bias) in biases.as_chunks().0.iter().enumerate() {
            let mut sum = i32::from_le_bytes(*bias);
            for (block, lanes) in x.chunks(LANES).enumerate() {
                for (&x, &w) in lanes.iter().zip(&weights[weights_shape.tile(unit, block)..]) {
                    let (x, w) = (widen(i, x) - i.x_zero, widen(i, w) - i.y_zero);
                    sum = sum.wrapping_add(x * w);
                }
            }
            output.push(into_range(i, i.scale.apply(sum).saturating_add(i.zero)));
            unchecked += shape.channels;
            if unchecked >= CHECK_EVERY {
                unchecked = 0;
                check(work)?;
            }
        }
    }
    Ok(output)
}

fn add(i: &Instruction, x: u8, y: u8) -> u8 {
    let raised = |q: u8, zero_point: i32| widen(i, q).wrapping_sub(zero_point).wrapping_shl(20);
    let (x, y) = (i.x_scale.apply(raised(x, i.x_zero)), i.y_scale.apply(raised(y, i.y_zero)));
    into_range(i, i.scale.apply(x.wrapping_add(y)).saturating_add(i.zero))
}

/// Not by `clamp`, which panics where senseless scales turn the bounds round.
fn into_range(i: &Instruction, value: i32) -> u8 {
    value.max(i.low).min(i.high) as u8
}

fn widen(i: &Instruction, byte: u8) -> i32 {
    match i.signed != 0 {
        true => i32::from(byte as i8),
        false => i32::from(byte),
    }
}

/// Copies first: the client may change its memory while this reads it.
fn load(argument: &Argument, shape: Shape) -> Result<Vec<u8>, JobStatus> {
    let bytes = argument.slice.to_private().map_err(|_| BAD_MEMORY)?;
    match argument.tiled {
        true if bytes.len() == shape.tiled_len() => Ok(plain(&bytes, shape)),
        false if bytes.len() == shape.plain_len() => Ok(bytes.to_vec()),
        _ => Err(FAULT),
    }
}

fn store(argument: &Argument, value: &[u8], shape: Shape) -> Result<(), JobStatus> {
    let bytes = if argument.tiled { tiled(value, shape) } else { value.to_vec() };
    argument.slice.write(&bytes).map_err(|_| BAD_MEMORY)
}

fn argument(work: &Work, index: i32) -> Result<&Argument, JobStatus> {
    work.arguments.get(index as usize).ok_or(FAULT)
}

/// An error if the driver wants the job stopped.
fn check(work: &Work) -> Result<(), JobStatus> {
    match work.cancel.load() {
        Ok(0) => Ok(()),
        _ => Err(CANCELLED),
    }
}
