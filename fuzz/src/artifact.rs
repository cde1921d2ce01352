//! A compiled model as a cache file has it. The hash that guards it is not asked: these bytes are loaded as they are.
//!
//! An input: how many bytes of data there are, then the model bytes without the text that they begin with, which names this
//! machine's processor.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::backend::{Backend, CompileOptions, Control, Saved};
use nnhal::memory::{on_account_of, Mapping};
use nnhal_fuzz::{artifact_start, backend, next, run};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let length = next::<u32>(&mut input) & 0xffff;
    let just_in_time = length & 1 == 1;
    let Ok(data) = Mapping::anonymous(length as usize) else { return };
    let models = vec![[artifact_start(), input.take_rest()].concat()];
    let _account = on_account_of(1);
    let options = CompileOptions { just_in_time, ..CompileOptions::default() };
    let saved = Saved { models, data: vec![Arc::new(data)] };
    let Ok(executable) = backend().load(saved, &options, &Control::default()) else { return };
    let again = executable
        .artifact(&Control::default())
        .expect("there is memory")
        .expect("what was loaded can be saved");
    assert_eq!((again.models.len(), again.data.len()), (1, 1));
    run(executable);
});
