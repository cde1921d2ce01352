//! Request packets: FmqRequestDatum. The tag is in byte 0, the value from byte 4 on.

use super::{bool_at, datum, finish, u32_at, Cursor, Datum, IllFormed};

const PACKET_INFORMATION: u8 = 0;
const INPUT_OPERAND_INFORMATION: u8 = 1;
const INPUT_OPERAND_DIMENSION_VALUE: u8 = 2;
const OUTPUT_OPERAND_INFORMATION: u8 = 3;
const OUTPUT_OPERAND_DIMENSION_VALUE: u8 = 4;
const POOL_IDENTIFIER: u8 = 5;
const MEASURE_TIMING: u8 = 6;

const VALUE: usize = 4;

/// A request, well formed; whether it makes sense is for the model to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPacket {
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    /// The burst's names for the request's pools.
    pub slots: Vec<i32>,
    pub measure: bool,
}

/// Where an argument lies, and its dimensions if the request states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argument {
    pub has_no_value: bool,
    pub pool: u32,
    pub offset: u32,
    pub length: u32,
    pub dims: Vec<u32>,
}

impl RequestPacket {
    /// The packet's bytes, whole datums.
    pub fn encode(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let counts = [0, count(self.inputs.len()), count(self.outputs.len()), count(self.slots.len())];
        let mut datums = vec![datum(PACKET_INFORMATION, VALUE, &counts)];
        let sides = [
            (&self.inputs, INPUT_OPERAND_INFORMATION, INPUT_OPERAND_DIMENSION_VALUE),
            (&self.outputs, OUTPUT_OPERAND_INFORMATION, OUTPUT_OPERAND_DIMENSION_VALUE),
        ];
        for (arguments, information, dimension) in sides {
            for a in arguments {
                // The truth value is a byte: in the order of this machine it must come first.
                let mut operand =
                    datum(information, VALUE, &[0, a.pool, a.offset, a.length, count(a.dims.len())]);
                operand[VALUE] = a.has_no_value.into();
                datums.push(operand);
                datums.extend(a.dims.iter().map(|&dim| datum(dimension, VALUE, &[dim])));
            }
        }
        datums.extend(self.slots.iter().map(|&slot| datum(POOL_IDENTIFIER, VALUE, &[slot.cast_unsigned()])));
        datums.push(datum(MEASURE_TIMING, VALUE, &[self.measure.into()]));
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
        let [inputs, outputs, pools] = [4, 8, 12].map(|offset| u32_at(head, VALUE + offset));
        let packet = RequestPacket {
            inputs: arguments(&mut cursor, inputs, INPUT_OPERAND_INFORMATION, INPUT_OPERAND_DIMENSION_VALUE)?,
            outputs: arguments(
                &mut cursor,
                outputs,
                OUTPUT_OPERAND_INFORMATION,
                OUTPUT_OPERAND_DIMENSION_VALUE,
            )?,
            slots: cursor.many(pools, POOL_IDENTIFIER, |datum| u32_at(datum, VALUE).cast_signed())?,
            measure: match u32_at(cursor.next(MEASURE_TIMING)?, VALUE) {
                0 => false,
                1 => true,
                _ => return Err(IllFormed("it neither asks for timing nor does without")),
            },
        };
        cursor.end()?;
        Ok(packet)
    }
}

fn arguments(
    cursor: &mut Cursor,
    count: u32,
    information: u8,
    dimension: u8,
) -> Result<Vec<Argument>, IllFormed> {
    if usize::try_from(count).unwrap_or(usize::MAX) > cursor.left() {
        return Err(IllFormed("a count of more than the packet holds"));
    }
    (0..count)
        .map(|_| {
            let operand: &Datum = cursor.next(information)?;
            let number = |index: usize| u32_at(operand, VALUE + 4 * index);
            Ok(Argument {
                has_no_value: bool_at(operand, VALUE)?,
                pool: number(1),
                offset: number(2),
                length: number(3),
                dims: cursor.many(number(4), dimension, |datum| u32_at(datum, VALUE))?,
            })
        })
        .collect()
}
