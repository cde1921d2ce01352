//! How much memory the daemon has at the most while it compiles: the weights, as packed, and little more. And while it looks
//! at a model that it does not take.

use crate::common::process::DaemonProcess;
use crate::common::{ashmem, memfd, operand, request, Connection};
use nnhal::aidl::*;

/// One layer with weights of some 64 MiB, which lie in memory that its client goes on to have.
struct Layer {
    name: &'static str,
    operation: OperationType,
    ty: OperandType,
    input: &'static [i32],
    weights: &'static [i32],
    output: &'static [i32],
}

const FLOAT: OperandType = OperandType::TENSOR_FLOAT32;
const SIGNED: OperandType = OperandType::TENSOR_QUANT8_ASYMM_SIGNED;

const LAYERS: [Layer; 4] = [
    Layer {
        name: "FULLY_CONNECTED, float",
        operation: OperationType::FULLY_CONNECTED,
        ty: FLOAT,
        input: &[1, 4096],
        weights: &[4096, 4096],
        output: &[1, 4096],
    },
    Layer {
        name: "FULLY_CONNECTED, 8-bit",
        operation: OperationType::FULLY_CONNECTED,
        ty: SIGNED,
        input: &[1, 8192],
        weights: &[8192, 8192],
        output: &[1, 8192],
    },
    Layer {
        name: "CONV_2D, float",
        operation: OperationType::CONV_2D,
        ty: FLOAT,
        input: &[1, 4, 4, 1344],
        weights: &[1344, 3, 3, 1344],
        output: &[1, 4, 4, 1344],
    },
    Layer {
        name: "CONV_2D, 8-bit",
        operation: OperationType::CONV_2D,
        ty: SIGNED,
        input: &[1, 4, 4, 2688],
        weights: &[2688, 3, 3, 2688],
        output: &[1, 4, 4, 2688],
    },
];

impl Layer {
    fn bytes(&self, dims: &[i32]) -> usize {
        let element = if self.ty == FLOAT { 4 } else { 1 };
        element * dims.iter().map(|&dim| dim as usize).product::<usize>()
    }

    fn model(&self) -> Model {
        use OperandLifeTime as L;
        let mut values: Vec<u8> = (0..self.bytes(self.weights)).map(|i| (i % 5) as u8).collect();
        let mut constant = |operand: Operand, bytes: &[u8]| {
            let (offset, length) = (values.len() as i64, bytes.len() as i64);
            values.extend(bytes);
            Operand { location: DataLocation { poolIndex: 0, offset, length, padding: 0 }, ..operand }
        };
        let scaled = |dims: &[i32], scale, lifetime| match self.ty {
            FLOAT => operand(FLOAT, dims, lifetime),
            ty => Operand { scale, ..operand(ty, dims, lifetime) },
        };
        let bias = match self.ty {
            FLOAT => operand(FLOAT, &self.weights[..1], L::CONSTANT_POOL),
            _ => Operand {
                scale: 0.5,
                ..operand(OperandType::TENSOR_INT32, &self.weights[..1], L::CONSTANT_POOL)
            },
        };
        let bias = constant(bias, &vec![0; 4 * self.weights[0] as usize]);
        // Padding SAME and two strides of 1 for a convolution, and no activation.
        let codes: &[i32] = if self.weights.len() == 4 { &[1, 1, 1, 0] } else { &[0] };
        let scalar =
            |code: &i32| constant(operand(OperandType::INT32, &[], L::CONSTANT_POOL), &code.to_le_bytes());
        let codes: Vec<Operand> = codes.iter().map(scalar).collect();
        let length = self.bytes(self.weights) as i64;
        let weights = Operand {
            location: DataLocation { poolIndex: 0, offset: 0, length, padding: 0 },
            ..scaled(self.weights, 0.5, L::CONSTANT_POOL)
        };
        let (input, output) =
            (scaled(self.input, 1.0, L::SUBGRAPH_INPUT), scaled(self.output, 1.0, L::SUBGRAPH_OUTPUT));
        let mut operands = vec![input, weights, bias];
        operands.extend(codes);
        operands.push(output);
        let last = operands.len() as i32 - 1;
        let operation =
            Operation { r#type: self.operation, inputs: (0..last).collect(), outputs: vec![last] };
        let main = Subgraph {
            operands,
            operations: vec![operation],
            inputIndexes: vec![0],
            outputIndexes: vec![last],
        };
        let memory = memfd(&values);
        Model { main, pools: vec![ashmem(&memory, values.len() as i64)], ..Default::default() }
    }
}

#[test]
fn a_compilation_takes_little_more_than_its_weights() {
    for layer in &LAYERS {
        let daemon = DaemonProcess::start(&["--threads", "2", "--data", "none"]);
        let connection = Connection::new(&daemon.socket());
        let model = layer.model();
        // Whatever is made once only is made before.
        connection.prepare(&crate::common::floor_model(&[1, 3]));
        let (before, private_before) = (daemon.resident_kib(), daemon.status_kib("RssAnon"));
        daemon.forget_peak();
        let prepared = connection.prepare(&model);
        let compiled = daemon.status_kib("VmHWM") - before;
        let (request, _output) = request(&vec![0; layer.bytes(layer.input)], layer.bytes(layer.output));
        prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
        let peak = daemon.status_kib("VmHWM") - before;
        let packed = daemon.status_kib("RssAnon") - private_before;
        let weights = layer.bytes(layer.weights) >> 10;
        println!(
            "{}: {weights} KiB of weights, {packed} KiB packed; at most {compiled} KiB in all when compiled, {peak} when executed: {:.2} times both",
            layer.name,
            peak as f64 / (weights + packed) as f64
        );
        assert!(packed * 10 <= weights * 11, "{}: packed weights take {packed} KiB", layer.name);
        assert!(peak * 10 <= (weights + packed) * 12, "{}: at most {peak} KiB", layer.name);
    }
}

#[test]
fn a_long_name_of_an_extension_is_not_had_once_for_each_operation() {
    /// Together they fit one call.
    const NAME: usize = 200_000;
    const OPERATIONS: usize = 20_000;
    const MOST_KIB: usize = 100 << 10;
    let mut model = crate::common::floor_model(&[1, 3]);
    let name = format!("com.{}", "x".repeat(NAME));
    model.extensionNameToPrefix = vec![ExtensionNameAndPrefix { name, prefix: 1 }];
    let unknown = Operation { r#type: OperationType(1 << 16), inputs: Vec::new(), outputs: Vec::new() };
    model.main.operations.extend((0..OPERATIONS).map(|_| unknown.clone()));
    let daemon = DaemonProcess::start(&["--threads", "2", "--data", "none"]);
    let connection = Connection::new(&daemon.socket());
    connection.prepare(&crate::common::floor_model(&[1, 3]));
    let before = daemon.resident_kib();
    daemon.forget_peak();
    let taken = connection.device.getSupportedOperations(&model).expect("a valid model");
    assert_eq!(taken.len(), 1 + OPERATIONS);
    assert!(taken[0] && !taken[1..].contains(&true), "only the first is known");
    let (launch, (_, prepared)) = connection.launch(&model);
    assert!(launch.is_ok() && prepared.is_none(), "it cannot be compiled");
    let peak = daemon.status_kib("VmHWM") - before;
    assert!(peak < MOST_KIB, "at most {peak} KiB");
}
