//! nnhal's kit for backends, over the sample NPU.

mod common;

use common::*;
use nnhal::backend::Backend;
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
