//! The command stream: instructions of twenty 32-bit words, as the device reads them.
//!
//! Values lie in the engine's scratchpad, in the plain layout; constants lie in device memory. Quantisation is resolved:
//! the device gets fixed-point multipliers, never a float.

use crate::layout::Shape;
use nnhal::tensor::requant::Multiplier;

const WORDS: usize = 20;
pub const INSTRUCTION_BYTES: usize = 4 * WORDS;

/// To the scratchpad at `to` from argument `x`, and from the scratchpad at `x` to argument `to`.
pub const LOAD: i32 = 1;
pub const STORE: i32 = 2;
/// `x` plus `y`, element by element; `x_scale` and `y_scale` bring them to common units, `scale` to those of the result.
pub const ADD: i32 = 3;
/// Each row of `x` by all `units` rows of the weights at `y`, plus the biases at `table`.
pub const FULLY_CONNECTED: i32 = 4;
/// `x`, brought into the range.
pub const CLAMP: i32 = 5;
/// For each byte of `x` its entry in the table of 256 at `table`.
pub const LOOKUP: i32 = 6;

/// One instruction. Its code says which fields count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instruction {
    pub code: i32,
    pub x: i32,
    pub y: i32,
    pub to: i32,
    /// Shape of `x`.
    pub rows: i32,
    pub channels: i32,
    pub units: i32,
    pub table: i32,
    /// Zero points and scales of `x`, `y` and the result.
    pub x_zero: i32,
    pub y_zero: i32,
    pub zero: i32,
    pub x_scale: Multiplier,
    pub y_scale: Multiplier,
    pub scale: Multiplier,
    /// Smallest and largest element of the result, the fused activation included, and whether elements are signed: 1 or 0.
    pub low: i32,
    pub high: i32,
    pub signed: i32,
}

impl Instruction {
    /// One that reads a value of this shape at `x`, less what else it needs.
    pub fn new(code: i32, x: i32, to: i32, Shape { rows, channels }: Shape) -> Self {
        Instruction { code, x, to, rows: rows as i32, channels: channels as i32, ..Default::default() }
    }

    /// Its words, in their order in the stream.
    #[rustfmt::skip] // a table
    fn words(&mut self) -> [&mut i32; WORDS] {
        let Instruction { code, x, y, to, rows, channels, units, table, low, high, signed, .. } = self;
        let Instruction { x_zero, y_zero, zero, x_scale: a, y_scale: b, scale: c, .. } = self;
        [
            code, x, y, to, rows, channels, units, table, low, high, signed, x_zero, y_zero, zero,
            &mut a.mantissa, &mut a.shift, &mut b.mantissa, &mut b.shift, &mut c.mantissa, &mut c.shift,
        ]
    }

    pub fn to_bytes(mut self) -> Vec<u8> {
        self.words().into_iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What [`to_bytes`](Self::to_bytes) made. Whatever the bytes are, an engine checks where it reads and writes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut instruction = Instruction::default();
        for (word, bytes) in instruction.words().into_iter().zip(bytes.as_chunks().0) {
            *word = i32::from_le_bytes(*bytes);
        }
        instruction
    }
}
