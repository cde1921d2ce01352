//! nnhal's kit for backends, over the sample NPU.

mod common;

use common::*;
use nnhal::backend::{Backend, BackendError, CompileOptions, Control};
use nnhal::tensor::{OperandType, TensorInfo};
use nnhal::testing::{Kit, Sample};

#[test]
fn the_sample_keeps_to_every_rule() {
    let npu = npu();
    let input = layer_input(1);
    let output = layer_output(&input, true);
    // The extension's operation has no plain evaluation: its author says what is right.
    let extensions = npu.info().extensions;
    let lookup =
        Sample::new("LOOKUP", &layer_model(true), &extensions, vec![input], vec![output]).expect("a model");
    let device = npu.clone();
    let kit = Kit::new(npu).sample(lookup).losing(move || kill(device.device_process()));
    let report = kit.check().passed();
    println!("{report}");
    for name in ["ADD", "RELU", "RESHAPE", "FULLY_CONNECTED", "CHAIN"] {
        for ty in ["TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED"] {
            assert!(report.taken.contains(&format!("{name} {ty}")), "{report}");
        }
    }
    assert!(report.taken.contains(&"LOOKUP".into()) && report.untried.is_empty(), "{report}");
    let float = |(name, why): &(String, String)| name == "ADD TENSOR_FLOAT32" && why.contains("in 8 bits");
    assert!(report.refused.iter().any(float), "{report}");
}

#[test]
fn the_device_has_so_much_memory_and_takes_back_what_is_dropped() {
    const MIB: usize = 1 << 20;
    let npu = npu();
    let operand = TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM, &[1024, 1024], 0.5, 0);
    assert!(npu.allocate(&operand).expect("no error").is_none(), "there is no device before the first model");
    let input = vec![layer_input(1)];
    let sample = Sample::plain("layer", &layer_model(false), input).expect("a sample");
    drop(npu.compile(&sample.model, &CompileOptions::default(), &Control::default()).expect("compiled"));
    for _ in 0..3 {
        let mut buffers = Vec::new();
        let full = loop {
            match npu.allocate(&operand) {
                Ok(buffer) => buffers.push(buffer.expect("a buffer of the device's")),
                Err(why) => break why,
            }
        };
        assert!(matches!(full, BackendError::OutOfDeviceMemory(bytes) if bytes == MIB as u64), "{full}");
        assert_eq!(buffers.len(), 64, "MiB");
        buffers.pop();
        assert!(npu.allocate(&operand).is_ok(), "one was given back");
    }
}
