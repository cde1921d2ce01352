//! The command stream: instructions of twenty 32-bit words, as the device reads them.
//!
//! Values lie in the engine's scratchpad, in the plain layout; constants lie in device memory. Quantisation is resolved:
//! the device gets fixed-point multipliers, never a float.

use crate::layout::Shape;
use nnhal::tensor::requant::Multiplier;

const WORDS: usize = 20;
pub const INSTRUCTION_BYTES: usize = 4 * WORDS;

/// To the scratchpad at `to` from argument `x`, and from the scratchpad at `x` to argument `to`.
pub const LOAD: u32 = 1;
pub const STORE: u32 = 2;
/// `x` plus `y`, element by element; `x_units` and `y_units` bring them to common units, `out` to those of the result.
pub const ADD: u32 = 3;
/// Each row of `x` by all `units` rows of the weights at `y`, plus the biases at `table`.
pub const FULLY_CONNECTED: u32 = 4;
/// `x`, brought into the range.
pub const CLAMP: u32 = 5;
/// For each byte of `x` its entry in the table of 256 at `table`.
pub const LOOKUP: u32 = 6;

/// How elements are read or written: zero point, and what brings them to the next units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    pub zero_point: i32,
    pub mantissa: i32,
    pub shift: i32,
}

impl Units {
    pub fn new(zero_point: i32, real: f64) -> Self {
        let Multiplier { mantissa, shift } = Multiplier::new(real);
        Units { zero_point, mantissa, shift }
    }

    pub fn multiply(self, x: i32) -> i32 {
        Multiplier { mantissa: self.mantissa, shift: self.shift }.apply(x)
    }
}

/// One instruction. Its code says which fields count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    pub code: u32,
    pub x: u32,
    pub y: u32,
    pub to: u32,
    /// Shape of `x`.
    pub rows: u32,
    pub channels: u32,
    pub units: u32,
    pub table: u32,
    pub x_units: Units,
    pub y_units: Units,
    pub out: Units,
    /// Smallest and largest element of the result, the fused activation included, and whether elements are signed.
    pub low: i32,
    pub high: i32,
    pub signed: bool,
}

impl Instruction {
    /// One that reads a value of this shape at `x`, less what else it needs.
    pub fn new(code: u32, x: u32, to: u32, Shape { rows, channels }: Shape) -> Self {
        Instruction { code, x, to, rows: rows as u32, channels: channels as u32, ..Default::default() }
    }

    pub fn to_bytes(self) -> Vec<u8> {
        let Instruction { code, x, y, to, rows, channels, units, table, .. } = self;
        let sizes = [code, x, y, to, rows, channels, units, table].map(|size| size as i32);
        let units = [self.x_units, self.y_units, self.out];
        let units = units.into_iter().flat_map(|of| [of.zero_point, of.mantissa, of.shift]);
        let range = [self.low, self.high, self.signed.into()];
        sizes.into_iter().chain(units).chain(range).flat_map(i32::to_le_bytes).collect()
    }

    /// What [`to_bytes`](Self::to_bytes) made. Whatever the bytes are, an engine checks where it reads and writes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = i32::from_le_bytes(*bytes);
        }
        let [code, x, y, to, rows, channels, units, table, ..] = words.map(|word| word as u32);
        let rest = &words[8..];
        let of = |i: usize| Units { zero_point: rest[i], mantissa: rest[i + 1], shift: rest[i + 2] };
        let (x_units, y_units, out) = (of(0), of(3), of(6));
        let (low, high, signed) = (rest[9], rest[10], rest[11] != 0);
        Instruction { code, x, y, to, rows, channels, units, table, x_units, y_units, out, low, high, signed }
    }
}
