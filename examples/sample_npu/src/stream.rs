//! The command stream: instructions of sixteen 32-bit words, as the device reads them.
//!
//! Values lie in the engine's scratchpad, in the plain layout; constants lie in device memory. Quantisation is resolved:
//! the device gets fixed-point multipliers, never a float.

use nnhal::tensor::requant::Multiplier;

pub const INSTRUCTION_BYTES: usize = 64;

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
    pub fn to_bytes(self) -> [u8; INSTRUCTION_BYTES] {
        let Instruction { code, x, y, to, rows, channels, units, table, x_units, y_units, out, .. } = self;
        // A zero point has 9 bits and a shift 6: they share a word, as do the bounds.
        let pair =
            |units: Units| [(units.zero_point << 8 | (units.shift + 64)) as u32, units.mantissa as u32];
        let ([x0, x1], [y0, y1], [o0, o1]) = (pair(x_units), pair(y_units), pair(out));
        let range = (self.low << 16 | (self.high & 0xffff)) as u32;
        let sizes = [code, x, y, to, rows, channels, units, table];
        let rest = [x0, x1, y0, y1, o0, o1, range, self.signed.into()];
        let mut bytes = [0; INSTRUCTION_BYTES];
        let words = sizes.into_iter().chain(rest);
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) made. Whatever the bytes are, an engine checks where it reads and writes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0u32; INSTRUCTION_BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [code, x, y, to, rows, channels, units, table, x0, x1, y0, y1, o0, o1, range, signed] = words;
        let pair = |word: u32, mantissa: u32| Units {
            zero_point: word as i32 >> 8,
            mantissa: mantissa as i32,
            shift: (word & 0xff) as i32 - 64,
        };
        let (x_units, y_units, out) = (pair(x0, x1), pair(y0, y1), pair(o0, o1));
        let (low, high) = (range as i32 >> 16, i32::from(range as i16));
        let signed = signed != 0;
        Instruction { code, x, y, to, rows, channels, units, table, x_units, y_units, out, low, high, signed }
    }
}
