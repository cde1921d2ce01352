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

/// Whether these hints ask for [`JUST_IN_TIME`].
pub fn just_in_time(
    hints: &[aidl::TokenValuePair],
    extensions: &[aidl::ExtensionNameAndPrefix],
) -> Result<bool, ModelError> {
    let extensions = Extensions::new(extensions, &[])?;
    let is_ours = |hint: &&aidl::TokenValuePair| {
        extensions.of_type(hint.token) == Some(EXTENSION) && hint.token & 0xffff == i32::from(JUST_IN_TIME)
    };
    let hint = hints.iter().find(is_ours);
    Ok(match hint.map(|hint| &hint.value[..]) {
        None | Some([0]) => false,
        Some([1]) => true,
        Some(value) => {
            log::debug!("the hint to compile just in time has {} bytes, expected a 0 or a 1", value.len());
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_counts_under_its_extensions_prefix_only() {
        let table = |name: &str, prefix| vec![aidl::ExtensionNameAndPrefix { name: name.into(), prefix }];
        let asks = |token, value: &[u8], table: &[aidl::ExtensionNameAndPrefix]| {
            just_in_time(&[aidl::TokenValuePair { token, value: value.to_vec() }], table).unwrap()
        };
        let ours = table(EXTENSION, 5);
        assert!(asks(0x5_0001, &[1], &ours));
        assert!(asks(0x7fff_0001, &[1], &table(EXTENSION, 0x7fff)));
        for value in [&[0][..], &[], &[2], &[1, 0]] {
            assert!(!asks(0x5_0001, value, &ours), "{value:?}");
        }
        for token in [1, 0x5_0002, 0x5_0000, 0x6_0001, -1, i32::MIN | 0x5_0001] {
            assert!(!asks(token, &[1], &ours), "{token:#x}");
        }
        assert!(!asks(0x5_0001, &[1], &table("somebody.elses", 5)));
        assert!(!asks(0x5_0001, &[1], &[]));
        assert!(just_in_time(&[], &table("NoPeriod", 1)).is_err());
    }
}
