//! An .npy file, by the tool's reader: its file alone, as the rest of the tool is much to compile.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Where the reader looks for it.
mod tensor {
    pub use nnhal::tensor::{element_count, OperandType};
}

#[allow(dead_code, reason = "the tool writes such files, too")]
#[path = "../../src/tool/run/npy.rs"]
mod reader;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = reader::parse(bytes) {
        let count = tensor::element_count(&array.shape).expect("it was counted");
        assert!(array.data.len() >= count || array.data.is_empty());
    }
});
