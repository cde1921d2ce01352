//! Hints of compilations: those of this driver's own extension, as the interface has none yet.
//!
//! The extension is called [`EXTENSION`] and has no types. A hint's token is the prefix that the client's table gives the
//! extension, in the high 16 bits, and the hint's number in the low ones. What is unknown, or has another value than it
//! should, is ignored: a hint must never fail a compilation.

use super::extensions::Extensions;
use super::ModelError;
use crate::aidl;

/// The extension that hints belong to.
pub const EXTENSION: &str = "vendor.nnhal.hints";

/// Leaves all of a compilation that can wait to the first execution: a client that prepares many models, and may run
/// few, pays for those that it runs. The value is one byte, 0 or 1. What is given to be cached is saved after the first
/// execution; until then, there is nothing to prepare it from.
pub const JUST_IN_TIME: u16 = 1;

/// Permits that where weights of a CONV_2D or FULLY_CONNECTED of floats are dequantised from constants of signed bytes without a zero
/// point, each row of inputs (those of an output pixel, in a convolution) is rounded to bytes too, with a scale and a zero
/// point of its own, and bytes are multiplied: what TensorFlow Lite's interpreter does with such weights ("dynamic range
/// quantisation"). An input is then off by up to a 510th of the difference between its row's greatest and least number, 0 among them.
/// The value is one byte, 0 or 1. A client that keeps the compiled model in files should give those of either value tokens of
/// their own.
pub const DYNAMIC_RANGE: u16 = 2;

/// Which of the hints are given as a 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub just_in_time: bool,
    pub dynamic_range: bool,
}

impl Hints {
    pub fn of(
        hints: &[aidl::TokenValuePair],
        extensions: &[aidl::ExtensionNameAndPrefix],
    ) -> Result<Self, ModelError> {
        let extensions = Extensions::new(extensions, &[])?;
        let is_set = |number: u16| {
            let is_it = |hint: &&aidl::TokenValuePair| {
                extensions.of_type(hint.token) == Some(EXTENSION) && hint.token & 0xffff == i32::from(number)
            };
            match hints.iter().find(is_it).map(|hint| &hint.value[..]) {
                None | Some([0]) => false,
                Some([1]) => true,
                Some(value) => {
                    log::debug!("hint {number} has {} bytes, expected one, a 0 or a 1", value.len());
                    false
                }
            }
        };
        Ok(Hints { just_in_time: is_set(JUST_IN_TIME), dynamic_range: is_set(DYNAMIC_RANGE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_counts_under_its_extensions_prefix_only() {
        let table = |name: &str, prefix| vec![aidl::ExtensionNameAndPrefix { name: name.into(), prefix }];
        let asks = |token, value: &[u8], table: &[aidl::ExtensionNameAndPrefix]| {
            Hints::of(&[aidl::TokenValuePair { token, value: value.to_vec() }], table).unwrap()
        };
        let asks_that = |token, value: &[u8], table: &[aidl::ExtensionNameAndPrefix]| {
            let hints = asks(token, value, table);
            assert!(!hints.dynamic_range);
            hints.just_in_time
        };
        let ours = table(EXTENSION, 5);
        assert!(asks_that(0x5_0001, &[1], &ours));
        assert!(asks_that(0x7fff_0001, &[1], &table(EXTENSION, 0x7fff)));
        for value in [&[0][..], &[], &[2], &[1, 0]] {
            assert!(!asks_that(0x5_0001, value, &ours), "{value:?}");
        }
        for token in [1, 0x5_0003, 0x5_0000, 0x6_0001, -1, i32::MIN | 0x5_0001] {
            assert!(!asks_that(token, &[1], &ours), "{token:#x}");
        }
        assert!(!asks_that(0x5_0001, &[1], &table("somebody.elses", 5)));
        assert!(!asks_that(0x5_0001, &[1], &[]));
        let other = Hints { dynamic_range: true, ..Hints::default() };
        assert_eq!(asks(0x5_0002, &[1], &ours), other);
        assert!(Hints::of(&[], &table("NoPeriod", 1)).is_err());
    }
}
