//! The order of fields, and the tags of unions. Parcelables that hold binders are in `calls`.

use binder::ParcelFileDescriptor;
use nnhal::aidl::*;

use crate::wire::{pin, Wire};

fn w() -> Wire {
    Wire::default()
}

fn fd() -> ParcelFileDescriptor {
    std::fs::File::open("/dev/null").expect("open").into()
}

fn location() -> (DataLocation, Wire) {
    let location = DataLocation { poolIndex: 11, offset: 12 << 32, length: 13 << 32, padding: 14 << 32 };
    (location, w().parcelable(w().i(11).l(12 << 32).l(13 << 32).l(14 << 32)))
}

fn performance(n: u8) -> (PerformanceInfo, Wire) {
    let (time, power) = (f32::from(n), f32::from(n) + 0.5);
    (PerformanceInfo { execTime: time, powerUsage: power }, w().parcelable(w().f(time).f(power)))
}

fn timing(n: i64) -> (Timing, Wire) {
    (Timing { timeOnDeviceNs: n, timeInDriverNs: n + 1 }, w().parcelable(w().l(n).l(n + 1)))
}

fn hint() -> (TokenValuePair, Wire) {
    (
        TokenValuePair { token: 21, value: vec![1, 2, 3, 4, 5] },
        w().parcelable(w().i(21).bytes(&[1, 2, 3, 4, 5])),
    )
}

fn prefix() -> (ExtensionNameAndPrefix, Wire) {
    (ExtensionNameAndPrefix { name: "a.b".into(), prefix: 0xfffe }, w().parcelable(w().s("a.b").i(0xfffe)))
}

fn operand() -> (Operand, Wire) {
    let (at, at_wire) = location();
    let operand = Operand {
        r#type: OperandType::TENSOR_QUANT8_ASYMM,
        dimensions: vec![31, 32],
        scale: 0.25,
        zeroPoint: 33,
        lifetime: OperandLifeTime::SUBGRAPH_INPUT,
        location: at,
        extraParams: Some(OperandExtraParams::Extension(vec![34])),
    };
    let fields = w().i(5).ints(&[31, 32]).f(0.25).i(33).i(1).then(at_wire);
    (operand, w().parcelable(fields.union(1, w().bytes(&[34]))))
}

fn operation() -> (Operation, Wire) {
    let operation = Operation { r#type: OperationType::DIV, inputs: vec![41], outputs: vec![42, 43] };
    (operation, w().parcelable(w().i(30).ints(&[41]).ints(&[42, 43])))
}

fn subgraph(index: i32) -> (Subgraph, Wire) {
    let ((operand, o), (operation, p)) = (operand(), operation());
    let subgraph = Subgraph {
        operands: vec![operand],
        operations: vec![operation],
        inputIndexes: vec![index],
        outputIndexes: vec![index + 1, index + 2],
    };
    (subgraph, w().parcelable(w().array([o]).array([p]).ints(&[index]).ints(&[index + 1, index + 2])))
}

fn ashmem() -> (Ashmem, Wire) {
    (Ashmem { fd: Some(fd()), size: 51 << 32 }, w().parcelable(w().fd().l(51 << 32)))
}

fn handle() -> (NativeHandle, Wire) {
    (
        NativeHandle { fds: vec![fd()], ints: vec![61, 62] },
        w().parcelable(w().array([w().fd()]).ints(&[61, 62])),
    )
}

fn description() -> (HardwareBufferDescription, Wire) {
    let description = HardwareBufferDescription {
        width: 71,
        height: 72,
        layers: 73,
        format: PixelFormat::BLOB,
        usage: BufferUsage::FRONT_BUFFER,
        stride: 74,
    };
    (description, w().parcelable(w().i(71).i(72).i(73).i(33).l(1 << 32).i(74)))
}

fn pool() -> (Memory, Wire) {
    let (ashmem, wire) = ashmem();
    (Memory::Ashmem(ashmem), w().union(0, wire))
}

fn argument(hasNoValue: bool) -> (RequestArgument, Wire) {
    let (location, wire) = location();
    let fields = w().i(hasNoValue.into()).then(wire).ints(&[81]);
    (RequestArgument { hasNoValue, location, dimensions: vec![81] }, w().parcelable(fields))
}

fn shape() -> (OutputShape, Wire) {
    (OutputShape { dimensions: vec![91, 92], isSufficient: true }, w().parcelable(w().ints(&[91, 92]).i(1)))
}

/// Takes what the functions above give.
#[track_caller]
fn pin_pair<T: binder::Serialize + binder::Deserialize>((value, wire): (T, Wire)) {
    pin(&value, wire);
}

#[test]
fn leaves() {
    pin_pair(location());
    pin_pair(performance(7));
    pin_pair(timing(-1));
    pin_pair(hint());
    pin_pair(prefix());
    pin_pair(operand());
    pin_pair(operation());
    pin_pair(argument(true));
    pin_pair(shape());
    pin(&BufferDesc { dimensions: vec![1, 2] }, w().parcelable(w().ints(&[1, 2])));
    let role = BufferRole { modelIndex: 1, ioIndex: 2, probability: 0.5 };
    pin(&role, w().parcelable(w().i(1).i(2).f(0.5)));
    let files = NumberOfCacheFiles { numModelCache: 1, numDataCache: 2 };
    pin(&files, w().parcelable(w().i(1).i(2)));
    let params = SymmPerChannelQuantParams { scales: vec![0.5, 0.25], channelDim: 3 };
    pin(&params, w().parcelable(w().i(2).f(0.5).f(0.25).i(3)));
    let info = ExtensionOperandTypeInformation { r#type: 0xfffe, isTensor: true, byteSize: 4 };
    let info_wire = w().parcelable(w().i(0xfffe).i(1).i(4));
    pin(&info, info_wire.clone());
    let extension = Extension { name: "a.b".into(), operandTypes: vec![info] };
    pin(&extension, w().parcelable(w().s("a.b").array([info_wire])));
}

#[test]
fn absent_extra_params_are_a_null() {
    let (value, _) = operand();
    let (_, at) = location();
    let fields = w().i(5).ints(&[31, 32]).f(0.25).i(33).i(1).then(at).i(0);
    pin(&Operand { extraParams: None, ..value }, w().parcelable(fields));
}

#[test]
fn defaults() {
    let operand = Operand::default();
    assert_eq!(
        (operand.r#type, operand.lifetime),
        (OperandType::FLOAT32, OperandLifeTime::TEMPORARY_VARIABLE)
    );
    assert_eq!(Operation::default().r#type, OperationType::ADD);
    assert_eq!(OperandPerformance::default().r#type, OperandType::FLOAT32);
    let buffer = HardwareBufferDescription::default();
    assert_eq!((buffer.format, buffer.usage), (PixelFormat::UNSPECIFIED, BufferUsage::CPU_READ_NEVER));
}

#[test]
fn capabilities() {
    let [(p1, w1), (p2, w2), (p3, w3), (p4, w4), (p5, w5)] = [1, 2, 3, 4, 5].map(performance);
    let capabilities = Capabilities {
        relaxedFloat32toFloat16PerformanceScalar: p1,
        relaxedFloat32toFloat16PerformanceTensor: p2,
        operandPerformance: vec![OperandPerformance { r#type: OperandType::BOOL, info: p3 }],
        ifPerformance: p4,
        whilePerformance: p5,
    };
    let operand = w().parcelable(w().i(6).then(w3));
    pin(&capabilities, w().parcelable(w1.then(w2).array([operand]).then(w4).then(w5)));
}

#[test]
fn memory() {
    pin_pair(ashmem());
    pin_pair(handle());
    pin_pair(description());
    pin_pair(pool());
    let file = || MappableFile { length: 1 << 32, prot: 3, fd: Some(fd()), offset: 2 << 32 };
    let file_wire = w().parcelable(w().l(1 << 32).i(3).fd().l(2 << 32));
    pin(&file(), file_wire.clone());
    pin(&Memory::MappableFile(file()), w().union(1, file_wire));
    let ((description, d), (handle, h)) = (description(), handle());
    let buffer = HardwareBuffer { description, handle };
    pin(&Memory::HardwareBuffer(buffer), w().union(2, w().parcelable(d.then(h))));
    let (memory, wire) = pool();
    pin(&RequestMemoryPool::Pool(memory), w().union(0, wire));
    pin(&RequestMemoryPool::Token(5), w().union(1, w().i(5)));
}

#[test]
fn models() {
    let ((main, main_wire), (other, other_wire)) = (subgraph(101), subgraph(111));
    let ((pool, pool_wire), (prefix, prefix_wire)) = (pool(), prefix());
    let model = Model {
        main,
        referenced: vec![other],
        operandValues: vec![1, 2, 3],
        pools: vec![pool],
        relaxComputationFloat32toFloat16: true,
        extensionNameToPrefix: vec![prefix],
    };
    let fields = main_wire.array([other_wire]).bytes(&[1, 2, 3]).array([pool_wire]).i(1);
    pin(&model, w().parcelable(fields.array([prefix_wire])));
    let params = SymmPerChannelQuantParams { scales: vec![], channelDim: 9 };
    pin(&OperandExtraParams::ChannelQuant(params), w().union(0, w().parcelable(w().i(0).i(9))));
}

#[test]
fn configurations() {
    let ((hint, hint_wire), (prefix, prefix_wire)) = (hint(), prefix());
    let prepare = PrepareModelConfig {
        preference: ExecutionPreference::SUSTAINED_SPEED,
        priority: Priority::MEDIUM,
        deadlineNs: 3 << 32,
        modelCache: vec![fd()],
        dataCache: vec![fd(), fd()],
        cacheToken: std::array::from_fn(|i| i as u8),
        compilationHints: vec![hint.clone()],
        extensionNameToPrefix: vec![prefix.clone()],
    };
    let token: Vec<u8> = (0..32).collect();
    let fields = w().i(2).i(1).l(3 << 32).array([w().fd()]).array([w().fd(), w().fd()]).bytes(&token);
    pin(&prepare, w().parcelable(fields.array([hint_wire.clone()]).array([prefix_wire.clone()])));
    let execute = ExecutionConfig {
        measureTiming: true,
        loopTimeoutDurationNs: 4 << 32,
        executionHints: vec![hint],
        extensionNameToPrefix: vec![prefix],
    };
    let fields = w().i(1).l(4 << 32).array([hint_wire]).array([prefix_wire]);
    pin(&execute, w().parcelable(fields));
}

#[test]
fn executions() {
    let [(input, input_wire), (output, output_wire)] = [false, true].map(argument);
    let request = Request {
        inputs: vec![input],
        outputs: vec![output.clone(), output],
        pools: vec![RequestMemoryPool::Token(5)],
    };
    let outputs = w().array([output_wire.clone(), output_wire]);
    let fields = w().array([input_wire]).then(outputs).array([w().union(1, w().i(5))]);
    pin(&request, w().parcelable(fields));
    let ((shape, shape_wire), (timing, timing_wire)) = (shape(), timing(1 << 32));
    let result = ExecutionResult { outputSufficientSize: true, outputShapes: vec![shape], timing };
    pin(&result, w().parcelable(w().i(1).array([shape_wire]).then(timing_wire)));
}
