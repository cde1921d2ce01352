//! A .tflite file, and the model that is made of it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(imported) = nnhal::tflite::import(bytes) else { return };
    let _ = nnhal::model::Model::new(&imported.model);
});
