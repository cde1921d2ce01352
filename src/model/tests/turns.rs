//! Tests that checking what is large comes by yield points, and stops there.

use super::*;
use crate::ops::testing::Counting;
use crate::ops::OpError;

/// Stops the work at its last yield point but so many.
struct Stops(std::sync::atomic::AtomicUsize);

impl crate::ops::Interrupt for Stops {
    fn check(&self) -> Result<(), OpError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .map_or(Err(OpError::Cancelled), |_| Ok(()))
    }
}

#[test]
fn how_long_a_model_takes_is_noticed_though_its_operations_name_the_same() {
    const OPERATIONS: i32 = 1000;
    const CHANNELS: i32 = 10_000;
    let scales = vec![0.5; CHANNELS as usize];
    let quant = aidl::SymmPerChannelQuantParams { scales, channelDim: 0 };
    let filter = aidl::Operand {
        extraParams: Some(aidl::OperandExtraParams::ChannelQuant(quant)),
        ..constant(T::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[CHANNELS], 0, CHANNELS.into())
    };
    let outputs: Vec<i32> = (1..=OPERATIONS).collect();
    let floats = outputs.iter().map(|_| operand(T::TENSOR_FLOAT32, &[CHANNELS], L::SUBGRAPH_OUTPUT));
    let operands = std::iter::once(filter).chain(floats).collect();
    let operations = outputs.iter().map(|&output| operation(O::DEQUANTIZE, &[0], &[output])).collect();
    let main = subgraph(operands, operations, (&[], &outputs));
    let model = aidl::Model { main, operandValues: vec![1; CHANNELS as usize], ..Default::default() };
    let decode = |yields: usize| Model::with_extensions(&model, &[], &Stops(yields.into())).map(drop);
    // A step for each scale, each time that it is named.
    assert!(matches!(decode(100), Err(ModelError::Interrupted(OpError::Cancelled))));
    assert!(decode(10_000).is_ok());
}

#[test]
fn an_operation_of_very_many_operands_is_not_supported() {
    let concatenation = |count: i32| {
        let inputs = (0..count).map(|_| operand(T::TENSOR_FLOAT32, &[1], L::SUBGRAPH_INPUT));
        let axis = constant(T::INT32, &[], 0, 4);
        let out = operand(T::TENSOR_FLOAT32, &[count], L::SUBGRAPH_OUTPUT);
        let operands = inputs.chain([axis, out]).collect();
        let arguments: Vec<i32> = (0..=count).collect();
        let operations = vec![operation(O::CONCATENATION, &arguments, &[count + 1])];
        let indices: Vec<i32> = (0..count).collect();
        let main = subgraph(operands, operations, (&indices, &[count + 1]));
        let model = aidl::Model { main, operandValues: vec![0; 4], ..Default::default() };
        Model::new(&model).unwrap().main.operations.remove(0).kind
    };
    assert!(matches!(concatenation(8190), OperationKind::Known { .. }));
    assert!(matches!(concatenation(8191), OperationKind::Unsupported(why) if why.contains("8193 operands")));
}

#[test]
fn what_is_looked_at_last_and_what_is_copied_is_work_too() {
    const OPERANDS: i32 = 20_000;
    const BYTES: i32 = 16 << 20;
    let yields = |model: &aidl::Model| {
        let interrupt = Counting::default();
        Model::with_extensions(model, &[], &interrupt).unwrap();
        interrupt.take()
    };
    // Each is one of two lists, and looked at when operations are in order.
    let infos = |lifetime| (0..OPERANDS).map(move |_| operand(T::TENSOR_FLOAT32, &[1], lifetime));
    let operations = (0..OPERANDS).map(|i| operation(O::FLOOR, &[i], &[OPERANDS + i])).collect();
    let (inputs, outputs): (Vec<_>, Vec<_>) = ((0..OPERANDS).collect(), (OPERANDS..2 * OPERANDS).collect());
    let operands = infos(L::SUBGRAPH_INPUT).chain(infos(L::SUBGRAPH_OUTPUT)).collect();
    let model =
        aidl::Model { main: subgraph(operands, operations, (&inputs, &outputs)), ..Default::default() };
    let decoded = ((2 * 128 + 512 + 2 * 64) * OPERANDS as usize) >> 16;
    let passed = yields(&model);
    assert!(passed > decoded + 48, "{passed} yield points, {decoded} without the end");
    // Its memory is counted, which is to look at all of it once more.
    let interrupt = Counting::default();
    CountedModel::new(Model::new(&model).unwrap(), &interrupt).unwrap();
    let passed = interrupt.take();
    assert!(passed >= (3 * 16 * OPERANDS as usize) >> 17, "{passed} yield points");
    // What is copied is so in parts.
    let values = constant(T::TENSOR_FLOAT32, &[BYTES / 4], 0, BYTES.into());
    let out = operand(T::TENSOR_FLOAT32, &[BYTES / 4], L::SUBGRAPH_OUTPUT);
    let main = subgraph(vec![values, out], vec![operation(O::FLOOR, &[0], &[1])], (&[], &[1]));
    let model = aidl::Model { main, operandValues: vec![0; BYTES as usize], ..Default::default() };
    assert!(yields(&model) >= (BYTES >> 20) as usize);
}

#[test]
fn a_request_of_very_many_arguments_is_checked_in_short_stretches() {
    const MANY: usize = 100_000;
    let infos = vec![TensorInfo::new(crate::tensor::OperandType::TENSOR_FLOAT32, &[1]); MANY];
    let argument = |i: i64| aidl::RequestArgument {
        location: aidl::DataLocation { poolIndex: 0, offset: 4 * i, length: 4, padding: 0 },
        ..Default::default()
    };
    let arguments: Vec<_> = (0..MANY as i64).rev().map(argument).collect();
    let tokens: Vec<_> = (0..MANY).map(|_| aidl::RequestMemoryPool::Token(1)).collect();
    for (yields, passes) in [(0, false), (40, false), (1000, true)] {
        let decoded = RequestPool::decode(&tokens, &Stops(yields.into())).map(|pools| pools.len());
        assert_eq!(decoded.is_ok(), passes, "{yields} yield points: {decoded:?}");
    }
    let pool = || RequestPool::Known { size: 4 * MANY, is_image: false };
    let check = |yields: usize| {
        let stops = Stops(yields.into());
        Request::new(&arguments, &[], &[pool()], &infos, &[], false, &stops).map(drop)
    };
    assert!(check(10_000).is_ok());
    for yields in [0, 100, 350] {
        assert!(matches!(check(yields), Err(RequestError::Interrupted(OpError::Cancelled))), "{yields}");
    }
}
