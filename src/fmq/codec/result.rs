//! Result packets: FmqResultDatum. The tag is in byte 0; as one of the values has 64 bits, all begin at byte 8.

use super::{bool_at, datum, finish, u32_at, u64_at, Cursor, Datum, IllFormed};

const PACKET_INFORMATION: u8 = 0;
const OPERAND_INFORMATION: u8 = 1;
const OPERAND_DIMENSION_VALUE: u8 = 2;
const EXECUTION_TIMING: u8 = 3;

const VALUE: usize = 8;

/// Nothing was measured.
pub const NO_TIMING: (u64, u64) = (u64::MAX, u64::MAX);

/// HAL 1.0's GENERAL_FAILURE.
const GENERAL_FAILURE: i32 = 2;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultPacket {
    /// An ErrorStatus of HAL 1.0, which knows 0 to 4 only.
    pub status: i32,
    pub shapes: Vec<OutputShape>,
    /// On the device and in the driver, in microseconds.
    pub timing: (u64, u64),
}

/// What became of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputShape {
    pub sufficient: bool,
    pub dims: Vec<u32>,
}

impl ResultPacket {
    /// Says `status` and nothing else.
    pub fn bare(status: i32) -> Self {
        ResultPacket { status, shapes: Vec::new(), timing: NO_TIMING }
    }

    /// The shortest packet there is: the request could not be dealt with.
    pub fn failure() -> Self {
        Self::bare(GENERAL_FAILURE)
    }

    /// The packet's bytes, whole datums.
    pub fn encode(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let head = [0, self.status.cast_unsigned(), count(self.shapes.len())];
        let mut datums = vec![datum(PACKET_INFORMATION, VALUE, &head)];
        for shape in &self.shapes {
            let mut operand = datum(OPERAND_INFORMATION, VALUE, &[0, count(shape.dims.len())]);
            operand[VALUE] = shape.sufficient.into();
            datums.push(operand);
            datums.extend(shape.dims.iter().map(|&dim| datum(OPERAND_DIMENSION_VALUE, VALUE, &[dim])));
        }
        let mut timing = datum(EXECUTION_TIMING, VALUE, &[]);
        timing[VALUE..VALUE + 8].copy_from_slice(&self.timing.0.to_ne_bytes());
        timing[VALUE + 8..VALUE + 16].copy_from_slice(&self.timing.1.to_ne_bytes());
        datums.push(timing);
        finish(datums, VALUE)
    }

    /// Reads a packet that is all of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, IllFormed> {
        let mut cursor = Cursor::new(bytes)?;
        let size = cursor.left();
        let head = cursor.next(PACKET_INFORMATION)?;
        if usize::try_from(u32_at(head, VALUE)) != Ok(size) {
            return Err(IllFormed("its size is not what it says"));
        }
        let (status, count) = (u32_at(head, VALUE + 4).cast_signed(), u32_at(head, VALUE + 8));
        if usize::try_from(count).unwrap_or(usize::MAX) > cursor.left() {
            return Err(IllFormed("a count of more than the packet holds"));
        }
        let mut shape = || {
            let operand: &Datum = cursor.next(OPERAND_INFORMATION)?;
            let dims = cursor
                .many(u32_at(operand, VALUE + 4), OPERAND_DIMENSION_VALUE, |datum| u32_at(datum, VALUE))?;
            Ok(OutputShape { sufficient: bool_at(operand, VALUE)?, dims })
        };
        let shapes = (0..count).map(|_| shape()).collect::<Result<_, _>>()?;
        let timing = cursor.next(EXECUTION_TIMING)?;
        let timing = (u64_at(timing, VALUE), u64_at(timing, VALUE + 8));
        cursor.end()?;
        Ok(ResultPacket { status, shapes, timing })
    }
}
