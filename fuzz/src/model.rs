//! A model as it comes from a client: parcelled, checked, asked about, compiled, saved, and run for a moment.
//!
//! An input begins with what a parcel of bytes cannot hold: pools, and whether the backend knows an extension.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::backend::{Backend, CompileOptions, Control, Extension, ExtensionOperandType};
use nnhal::memory::on_account_of;
use nnhal::model::Model;
use nnhal_fuzz::{backend, next, pools, run, soon};

fn extensions() -> Vec<Extension> {
    let sizes = [(0, true, 1), (1, true, 2), (2, true, 4), (3, false, 8), (4, true, 3)];
    let operand_types = sizes
        .map(|(code, is_tensor, byte_size)| ExtensionOperandType { code, is_tensor, byte_size })
        .to_vec();
    vec![Extension { name: "vendor.fuzz".into(), operand_types }]
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let (knows_extension, pools) = (next::<u8>(&mut input) & 1 == 1, pools(&mut input));
    let Ok(mut model) = binder::from_bytes::<nnhal::aidl::Model>(input.take_rest()) else { return };
    model.pools.extend(pools);
    let _account = on_account_of(1);
    let known = if knows_extension { extensions() } else { Vec::new() };
    let Ok(model) = Model::with_extensions(&model, &known, &soon()) else { return };
    let support = backend().support(&model, &soon());
    assert_eq!(support.len(), model.main.operations.len());
    // References lead to all that is run.
    let taken = support.iter().all(Result::is_ok);
    let private = model.to_private(&nnhal::ops::NeverInterrupted);
    let compiled = backend().compile(&model, &CompileOptions::default(), &soon());
    let Ok(executable) = compiled else { return };
    assert!(taken, "it compiles what it does not take");
    drop(private);
    drop(executable.artifact(&Control::default()));
    run(executable);
});
