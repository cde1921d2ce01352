//! Requests for corpus models: inputs in one region of shared memory, outputs in another.

use super::hal_model::Case;
use super::outcome::Step;
use crate::aidl;
use crate::client::shared::Shared;
use std::io;

/// How arguments are laid out in their region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Starts at multiples of 64, padded to multiples of 64.
    Padded,
    /// Starts at multiples of 4, not padded.
    Packed,
}

impl Layout {
    fn alignment(self) -> usize {
        match self {
            Layout::Padded => 64,
            Layout::Packed => 4,
        }
    }
}

/// A region whose contents only show that nothing was written to it.
const UNWRITTEN: u8 = 0xa5;

const INPUTS: i32 = 0;
const OUTPUTS: i32 = 1;

/// A request and its memory.
pub struct TestRequest {
    pub request: aidl::Request,
    outputs: Shared,
    outputs_size: usize,
    /// Offset and length of each output.
    places: Vec<(usize, usize)>,
}

impl TestRequest {
    pub fn new(case: &Case, layout: Layout) -> Step<Self> {
        let mut bytes = Vec::new();
        let mut inputs = Vec::new();
        for operand in case.inputs() {
            inputs.push(match case.data(operand) {
                None => aidl::RequestArgument { hasNoValue: true, ..Default::default() },
                Some(data) => {
                    let argument = reserve(&mut bytes, INPUTS, data.len(), layout);
                    let start = argument.location.offset as usize;
                    bytes[start..start + data.len()].copy_from_slice(data);
                    argument
                }
            });
        }
        let inputs_region = Shared::new(bytes.len().max(layout.alignment()) as u64)?;
        inputs_region.write(0, &bytes)?;

        let mut bytes = Vec::new();
        let lengths = case.outputs().map(|operand| case.data(operand).map_or(0, <[u8]>::len));
        // A result without a byte has a place all the same.
        let outputs: Vec<_> =
            lengths.map(|length| reserve(&mut bytes, OUTPUTS, length.max(1), layout)).collect();
        let place = |a: &aidl::RequestArgument| (a.location.offset as usize, a.location.length as usize);
        let places = outputs.iter().map(place).collect();
        let outputs_region = Shared::new(bytes.len().max(layout.alignment()) as u64)?;
        let pools = vec![
            aidl::RequestMemoryPool::Pool(inputs_region.memory()?),
            aidl::RequestMemoryPool::Pool(outputs_region.memory()?),
        ];
        Ok(TestRequest {
            request: aidl::Request { inputs, outputs, pools },
            outputs: outputs_region,
            outputs_size: bytes.len(),
            places,
        })
    }

    /// Overwrites all outputs, so that results of an earlier execution do not pass for this one's.
    pub fn reset_outputs(&self) -> io::Result<()> {
        self.outputs.write(0, &vec![UNWRITTEN; self.outputs_size])
    }

    /// The bytes at an output's place.
    pub fn output(&self, index: usize) -> io::Result<Vec<u8>> {
        let (offset, length) = self.places[index];
        let mut bytes = vec![0; length];
        self.outputs.read(offset as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes a byte off the first output; false if it has none to spare.
    pub fn shorten_first_output(&mut self) -> bool {
        match self.request.outputs.first_mut() {
            Some(argument) if argument.location.length > 1 => {
                argument.location.length -= 1;
                argument.location.padding += 1;
                true
            }
            _ => false,
        }
    }
}

/// Makes room for an argument at the end of a region.
fn reserve(region: &mut Vec<u8>, pool: i32, length: usize, layout: Layout) -> aidl::RequestArgument {
    let offset = region.len().next_multiple_of(layout.alignment());
    let end = match layout {
        Layout::Padded => (offset + length).next_multiple_of(layout.alignment()),
        Layout::Packed => offset + length,
    };
    region.resize(end, 0);
    aidl::RequestArgument {
        hasNoValue: false,
        location: aidl::DataLocation {
            poolIndex: pool,
            offset: offset as i64,
            length: length as i64,
            padding: (end - offset - length) as i64,
        },
        dimensions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_arguments_fill_their_lines() {
        let mut region = Vec::new();
        let first = reserve(&mut region, INPUTS, 65, Layout::Padded).location;
        let second = reserve(&mut region, INPUTS, 1, Layout::Padded).location;
        assert_eq!((first.offset, first.length, first.padding), (0, 65, 63));
        assert_eq!((second.offset, second.length, second.padding), (128, 1, 63));
        assert_eq!(region.len(), 192);
    }

    #[test]
    fn packed_arguments_have_no_padding() {
        let mut region = Vec::new();
        let first = reserve(&mut region, OUTPUTS, 5, Layout::Packed).location;
        let second = reserve(&mut region, OUTPUTS, 4, Layout::Packed).location;
        assert_eq!((first.offset, first.length, first.padding), (0, 5, 0));
        assert_eq!((second.offset, second.length, second.padding), (8, 4, 0));
        assert_eq!(region.len(), 12);
    }
}
