//! One valid model of each kind, and each rule broken alone.

use super::*;
use crate::aidl::{self, OperandLifeTime as L, OperandType as T, OperationType as O};
use crate::ops::evaluate::MOST_DIMS;
use crate::ops::NeverInterrupted;
use smallvec::smallvec;

mod turns;

fn operand(ty: T, dims: &[i32], lifetime: L) -> aidl::Operand {
    aidl::Operand { r#type: ty, dimensions: dims.to_vec(), lifetime, ..Default::default() }
}

fn constant(ty: T, dims: &[i32], offset: i64, length: i64) -> aidl::Operand {
    let location = aidl::DataLocation { offset, length, ..Default::default() };
    aidl::Operand { location, ..operand(ty, dims, L::CONSTANT_COPY) }
}

fn operation(ty: O, inputs: &[i32], outputs: &[i32]) -> aidl::Operation {
    aidl::Operation { r#type: ty, inputs: inputs.to_vec(), outputs: outputs.to_vec() }
}

fn subgraph(
    operands: Vec<aidl::Operand>,
    operations: Vec<aidl::Operation>,
    io: (&[i32], &[i32]),
) -> aidl::Subgraph {
    aidl::Subgraph { operands, operations, inputIndexes: io.0.to_vec(), outputIndexes: io.1.to_vec() }
}

/// 0 -FLOOR-> 1 -FLOOR-> 2, all [2, 3].
fn chain() -> aidl::Subgraph {
    let tensor = |lifetime| operand(T::TENSOR_FLOAT32, &[2, 3], lifetime);
    subgraph(
        vec![tensor(L::SUBGRAPH_INPUT), tensor(L::TEMPORARY_VARIABLE), tensor(L::SUBGRAPH_OUTPUT)],
        vec![operation(O::FLOOR, &[0], &[1]), operation(O::FLOOR, &[1], &[2])],
        (&[0], &[2]),
    )
}

fn model() -> aidl::Model {
    aidl::Model { main: chain(), ..Default::default() }
}

fn to_subgraph(index: i64) -> aidl::Operand {
    let location = aidl::DataLocation { offset: index, ..Default::default() };
    aidl::Operand { location, ..operand(T::SUBGRAPH, &[], L::SUBGRAPH) }
}

/// IF between two copies of the chain.
fn branching() -> aidl::Model {
    let tensor = |lifetime| operand(T::TENSOR_FLOAT32, &[2, 3], lifetime);
    let condition = operand(T::TENSOR_BOOL8, &[1], L::SUBGRAPH_INPUT);
    let operands = vec![
        condition,
        to_subgraph(0),
        to_subgraph(1),
        tensor(L::SUBGRAPH_INPUT),
        tensor(L::SUBGRAPH_OUTPUT),
    ];
    let main = subgraph(operands, vec![operation(O::IF, &[0, 1, 2, 3], &[4])], (&[0, 3], &[4]));
    aidl::Model { main, referenced: vec![chain(), chain()], ..Default::default() }
}

/// What is wrong with a model that must not be accepted.
fn refusal(model: &aidl::Model) -> String {
    match Model::new(model) {
        Ok(_) => panic!("accepted: {:?}", model.main),
        Err(ModelError::Invalid(why)) => why,
        Err(other) => panic!("not INVALID: {other}"),
    }
}

#[test]
fn valid_models_are_decoded() {
    let decoded = Model::new(&model()).unwrap();
    assert_eq!((decoded.main.inputs, decoded.main.outputs), (vec![0], vec![2]));
    assert!(Model::new(&branching()).is_ok());
}

#[test]
fn errors_name_the_place() {
    let mut model = model();
    model.main.operations[1].inputs = vec![9];
    let why = refusal(&model);
    assert!(why.contains("main subgraph, operation 1 (FLOOR), operand 9"), "{why}");
}

#[test]
fn each_rule_of_the_graph_is_kept() {
    type Break = fn(&mut aidl::Subgraph);
    let breaks: &[(&str, Break)] = &[
        ("no operations", |g| g.operations.clear()),
        ("input not listed", |g| g.inputIndexes.clear()),
        ("input listed twice", |g| g.inputIndexes.push(0)),
        ("output index out of range", |g| g.outputIndexes = vec![3]),
        ("negative index", |g| g.outputIndexes = vec![-1]),
        ("a temporary listed as output", |g| g.outputIndexes = vec![1]),
        ("reads before written", |g| g.operations.reverse()),
        ("written twice", |g| g.operations.push(operation(O::FLOOR, &[0], &[2]))),
        ("writes an input", |g| g.operations.push(operation(O::FLOOR, &[1], &[0]))),
        ("never written", |g| drop(g.operations.pop())),
        ("one input too many", |g| g.operations[0].inputs.push(0)),
        ("no output", |g| g.operations[0].outputs.clear()),
        ("operation type -1", |g| g.operations[0].r#type = O(-1)),
        ("one more than the last operation type", |g| {
            g.operations[0].r#type = O(ops::OperationType::ALL.len() as i32);
        }),
        ("extension without a name", |g| g.operations[0].r#type = O(0x1_0001)),
        ("wrong type for the operation", |g| g.operands[1].r#type = T::TENSOR_BOOL8),
    ];
    for (what, change) in breaks {
        let mut model = model();
        change(&mut model.main);
        assert!(matches!(Model::new(&model), Err(ModelError::Invalid(_))), "{what}");
    }
}

#[test]
fn each_rule_of_an_operand_is_kept() {
    type Break = fn(&mut aidl::Operand);
    let breaks: &[(&str, Break)] = &[
        ("type -1", |o| o.r#type = T(-1)),
        ("type 16", |o| o.r#type = T(16)),
        ("negative dimension", |o| o.dimensions[0] = -2),
        ("too many bytes", |o| o.dimensions = vec![i32::MAX, i32::MAX]),
        ("scale on floats", |o| o.scale = 1.0),
        ("zero point on floats", |o| o.zeroPoint = 1),
        ("NaN scale", |o| (o.r#type, o.scale) = (T::TENSOR_QUANT8_ASYMM, f32::NAN)),
        ("zero scale", |o| o.r#type = T::TENSOR_QUANT8_ASYMM),
        ("zero point 256", |o| {
            (o.r#type, o.scale, o.zeroPoint) = (T::TENSOR_QUANT8_ASYMM, 1.0, 256);
        }),
        ("per channel without scales", |o| o.r#type = T::TENSOR_QUANT8_SYMM_PER_CHANNEL),
        ("scales without per channel", |o| {
            o.extraParams = Some(aidl::OperandExtraParams::ChannelQuant(Default::default()));
        }),
        ("extension parameters", |o| o.extraParams = Some(aidl::OperandExtraParams::Extension(vec![]))),
        ("padding", |o| o.location.padding = 1),
        ("a location on a temporary", |o| o.location.length = 24),
        ("lifetime 7", |o| o.lifetime = L(7)),
        ("lifetime -1", |o| o.lifetime = L(-1)),
        ("a scalar with dimensions", |o| o.r#type = T::FLOAT32),
        ("constant outside of the values", |o| *o = constant(T::TENSOR_FLOAT32, &[2, 3], 1, 24)),
        ("constant at a negative offset", |o| *o = constant(T::TENSOR_FLOAT32, &[2, 3], -1, 24)),
        ("constant of huge length", |o| *o = constant(T::TENSOR_FLOAT32, &[2, 3], i64::MAX, i64::MAX)),
        ("constant of another size", |o| *o = constant(T::TENSOR_FLOAT32, &[2, 3], 0, 20)),
        ("constant of unknown size", |o| *o = constant(T::TENSOR_FLOAT32, &[0, 3], 0, 0)),
        ("constant in no pool", |o| {
            *o = constant(T::TENSOR_FLOAT32, &[2, 3], 0, 24);
            o.lifetime = L::CONSTANT_POOL;
        }),
        ("subgraph type without the lifetime", |o| *o = operand(T::SUBGRAPH, &[], L::TEMPORARY_VARIABLE)),
        ("subgraph type without a value", |o| *o = operand(T::SUBGRAPH, &[], L::NO_VALUE)),
        ("subgraph that does not exist", |o| *o = to_subgraph(0)),
    ];
    for (what, change) in breaks {
        let mut model = model();
        model.operandValues = vec![0; 24];
        change(&mut model.main.operands[1]);
        assert!(matches!(Model::new(&model), Err(ModelError::Invalid(_))), "{what}");
    }
}

#[test]
fn more_dimensions_than_a_tensor_may_have_are_refused_unprinted() {
    let mut model = model();
    for ty in [T::TENSOR_FLOAT32, T::FLOAT32] {
        model.main.operands[1] = operand(ty, &[1; MOST_DIMS + 1], L::TEMPORARY_VARIABLE);
        let refused = Model::new(&model).unwrap_err();
        assert!(matches!(refused, ModelError::TooLarge(_)), "{refused}");
        assert!(refused.to_string().contains("operand 1, rank 256 is above 255"), "{refused}");
    }
    let any = TensorInfo::new(crate::tensor::OperandType::TENSOR_FLOAT32, &[]);
    let check = |rank| {
        let location = aidl::DataLocation { length: 4, ..Default::default() };
        let given = aidl::RequestArgument { location, dimensions: vec![1; rank], ..Default::default() };
        let pools = [RequestPool::Known { size: 4, is_image: false }];
        Request::new(&[given], &[], &pools, std::slice::from_ref(&any), &[], false, &NeverInterrupted)
    };
    check(MOST_DIMS).unwrap();
    let refused = check(MOST_DIMS + 1).unwrap_err();
    assert!(matches!(&refused, RequestError::Invalid(why) if why.len() < 100), "{refused}");
}

#[test]
fn scales_are_no_part_of_a_message() {
    let channels = 1000;
    let of_scale = |scale, lifetime| {
        let quant = aidl::SymmPerChannelQuantParams { scales: vec![scale; channels], channelDim: 0 };
        let params = Some(aidl::OperandExtraParams::ChannelQuant(quant));
        let ty = T::TENSOR_QUANT8_SYMM_PER_CHANNEL;
        aidl::Operand { extraParams: params, ..operand(ty, &[channels as i32], lifetime) }
    };
    let mut model = branching();
    model.main.operands[3] = of_scale(0.5, L::SUBGRAPH_INPUT);
    let why = refusal(&model);
    assert!(why.contains("operand 3 does not fit input of the then branch 0") && why.len() < 300, "{why}");
}

#[test]
fn control_flow_must_fit_its_subgraphs() {
    type Break = fn(&mut aidl::Model);
    let breaks: &[(&str, Break)] = &[
        ("condition of two", |m| m.main.operands[0].dimensions = vec![2]),
        ("condition of unknown size", |m| m.main.operands[0].dimensions = vec![]),
        ("no subgraph for a branch", |m| m.main.operations[0].inputs[1] = 3),
        ("one input too few", |m| m.main.operations[0].inputs.truncate(3)),
        ("an outer operand of another shape", |m| m.main.operands[3].dimensions = vec![3, 2]),
        ("a branch of another type", |m| {
            m.referenced[1].operands.iter_mut().for_each(|o| o.r#type = T::TENSOR_FLOAT16);
        }),
        ("a subgraph that refers to itself", |m| m.referenced = vec![branching().main, chain()]),
        ("two that refer to each other", |m| m.referenced = vec![branching().main, branching().main]),
    ];
    for (what, change) in breaks {
        let mut model = branching();
        change(&mut model);
        assert!(matches!(Model::new(&model), Err(ModelError::Invalid(_))), "{what}");
    }
}

#[test]
fn deep_nesting_is_too_large_not_fatal() {
    let mut model = branching();
    // Each level's branches are the next level; the last is plain.
    model.referenced = (0..10_000)
        .map(|i| {
            let mut graph = branching().main;
            graph.operands[1] = to_subgraph(i + 1);
            graph.operands[2] = to_subgraph(i + 1);
            graph
        })
        .collect();
    model.referenced.push(chain());
    assert!(matches!(Model::new(&model), Err(ModelError::TooLarge(_))));
}

#[test]
fn extensions_are_valid_but_unsupported() {
    let mut model = model();
    model.main.operations[1].r#type = O(0x3_0001);
    model.extensionNameToPrefix =
        vec![aidl::ExtensionNameAndPrefix { name: "com.example.test".into(), prefix: 3 }];
    let decoded = Model::new(&model).unwrap();
    assert!(
        matches!(&decoded.main.operations[1].kind, OperationKind::Unsupported(why) if why.contains("com.example.test"))
    );
    // Each of very many operations may be of one whose name is very long.
    model.extensionNameToPrefix[0].name = format!("com.{}", "x".repeat(100_000));
    let decoded = Model::new(&model).unwrap();
    assert!(
        matches!(&decoded.main.operations[1].kind, OperationKind::Unsupported(why) if why.contains("com.xxx") && why.len() < 200)
    );
    model.extensionNameToPrefix[0].name = "Nonsense".into();
    refusal(&model);
    model.extensionNameToPrefix[0].name = "\u{e4}".repeat(100_000);
    assert!(refusal(&model).len() < 500, "it shows where a name is wrong");
    model.extensionNameToPrefix[0].name = "com.example.test".into();
    model.extensionNameToPrefix.push(model.extensionNameToPrefix[0].clone());
    refusal(&model);
}

#[test]
fn no_operation_of_the_table_takes_a_type_of_an_unknown_extension() {
    let mut model = branching();
    model.extensionNameToPrefix =
        vec![aidl::ExtensionNameAndPrefix { name: "com.example.test".into(), prefix: 3 }];
    let of_extension = |lifetime| operand(T(0x3_0007), &[], lifetime);
    let both = || vec![of_extension(L::SUBGRAPH_INPUT), of_extension(L::SUBGRAPH_OUTPUT)];
    let alone = || subgraph(both(), vec![operation(O(0x3_0001), &[0], &[1])], (&[0], &[1]));
    model.referenced = vec![alone(), alone()];
    (model.main.operands[3], model.main.operands[4]) =
        (of_extension(L::SUBGRAPH_INPUT), of_extension(L::SUBGRAPH_OUTPUT));
    // It may pass through control flow, which is then another driver's to run.
    let decoded = Model::new(&model).unwrap();
    assert!(
        matches!(&decoded.main.operations[0].kind, OperationKind::Unsupported(why) if why.contains("operand 3"))
    );
    let given = std::mem::replace(&mut model.main.operands[3], operand(T::UINT32, &[], L::SUBGRAPH_INPUT));
    assert!(refusal(&model).contains("operand 3 does not fit input of the then branch 0"));
    model.main.operands[3].r#type = T(0x3_0008);
    assert!(refusal(&model).contains("operand 3 does not fit input of the then branch 0"));
    model.main.operands[3] = given;
    let condition = std::mem::replace(&mut model.main.operands[0], of_extension(L::SUBGRAPH_INPUT));
    refusal(&model);
    model.main.operands[0] = condition;
    let branch = std::mem::replace(&mut model.main.operations[0], operation(O::FLOOR, &[3], &[4]));
    assert!(refusal(&model).contains("operand 3 is of an extension's type, which FLOOR does not take"));
    model.main.operations[0] = branch;
    model.main.operations[0].r#type = O(0x3_0002);
    assert!(Model::new(&model).is_ok(), "an operation of an extension may take it");
}

#[test]
fn requests_must_fit_the_model() {
    let info = TensorInfo::new(crate::tensor::OperandType::TENSOR_FLOAT32, &[2, 3]);
    let memfd = |size: u64| {
        let fd = nix::sys::memfd::memfd_create(c"request", nix::sys::memfd::MFdFlags::empty()).unwrap();
        std::fs::File::from(fd.try_clone().unwrap()).set_len(size).unwrap();
        let memory = aidl::Ashmem { fd: Some(binder::ParcelFileDescriptor::new(fd)), size: size as i64 };
        aidl::RequestMemoryPool::Pool(aidl::Memory::Ashmem(memory))
    };
    let argument = |pool, offset, length| aidl::RequestArgument {
        location: aidl::DataLocation { poolIndex: pool, offset, length, padding: 0 },
        ..Default::default()
    };
    let request = || aidl::Request {
        inputs: vec![argument(0, 0, 24)],
        outputs: vec![argument(0, 24, 24)],
        pools: vec![memfd(48)],
    };
    let unknown = TensorInfo { dims: smallvec![0, 3], ..info.clone() };
    let check = |r: &aidl::Request, output: &TensorInfo, fenced| {
        let pools = RequestPool::decode(&r.pools, &NeverInterrupted)?;
        let (inputs, outputs) = (std::slice::from_ref(&info), std::slice::from_ref(output));
        Request::new(&r.inputs, &r.outputs, &pools, inputs, outputs, fenced, &NeverInterrupted)
    };
    assert!(check(&request(), &info, false).is_ok());
    assert_eq!(check(&request(), &unknown, false).unwrap().outputs[0].as_ref().unwrap().dims[..], [0, 3]);
    assert!(check(&request(), &unknown, true).is_err(), "a fenced output must be fully specified");
    type Break = fn(&mut aidl::Request);
    let breaks: &[(&str, Break)] = &[
        ("no input", |r| r.inputs.clear()),
        ("no output", |r| r.outputs.clear()),
        ("pool that does not exist", |r| r.inputs[0].location.poolIndex = 1),
        ("negative pool", |r| r.inputs[0].location.poolIndex = -1),
        ("outside of the pool", |r| r.outputs[0].location.offset = 25),
        ("negative offset", |r| r.outputs[0].location.offset = -1),
        ("overflowing offset", |r| r.outputs[0].location.offset = i64::MAX),
        ("padding outside of the pool", |r| r.outputs[0].location.padding = 1),
        ("negative padding", |r| r.outputs[0].location.padding = -1),
        ("no length", |r| r.inputs[0].location.length = 0),
        ("another length", |r| r.inputs[0].location.length = 20),
        ("other dimensions", |r| r.inputs[0].dimensions = vec![3, 2]),
        ("another rank", |r| r.inputs[0].dimensions = vec![6]),
        ("negative dimension", |r| r.inputs[0].dimensions = vec![-2, 3]),
        ("overlapping output", |r| r.outputs[0].location.offset = 20),
        ("no value, but a location", |r| r.inputs[0].hasNoValue = true),
        ("token 0", |r| r.pools[0] = aidl::RequestMemoryPool::Token(0)),
        ("part of a device buffer", |r| r.pools[0] = aidl::RequestMemoryPool::Token(5)),
    ];
    for (what, change) in breaks {
        let mut request = request();
        change(&mut request);
        assert!(matches!(check(&request, &info, false), Err(RequestError::Invalid(_))), "{what}");
    }
}

#[test]
fn an_image_is_one_argument_whole() {
    let info = TensorInfo::new(crate::tensor::OperandType::TENSOR_FLOAT32, &[2, 3]);
    let unknown = TensorInfo { dims: smallvec![0, 3], ..info.clone() };
    let image = |size| RequestPool::Known { size, is_image: true };
    let argument = |(offset, length, padding), dimensions: &[i32]| aidl::RequestArgument {
        location: aidl::DataLocation { poolIndex: 0, offset, length, padding },
        dimensions: dimensions.to_vec(),
        ..Default::default()
    };
    let check = |argument: aidl::RequestArgument, size, info: &TensorInfo| {
        let (arguments, infos) = (std::slice::from_ref(&argument), std::slice::from_ref(info));
        let as_input = Request::new(arguments, &[], &[image(size)], infos, &[], false, &NeverInterrupted);
        let as_output = Request::new(&[], arguments, &[image(size)], &[], infos, false, &NeverInterrupted);
        assert_eq!(as_input.is_ok(), as_output.is_ok());
        as_output.map(|request| request.outputs[0].as_ref().map(|a| (a.offset, a.length)))
    };
    for (dims, info) in [(&[][..], &info), (&[2, 3], &info), (&[2, 3], &unknown), (&[2, 0], &unknown)] {
        assert_eq!(check(argument((0, 0, 0), dims), 24, info).unwrap(), Some((0, 24)));
    }
    for place in [(1, 0, 0), (0, 24, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (i64::MAX, i64::MAX, i64::MAX)] {
        assert!(check(argument(place, &[]), 24, &info).is_err(), "{place:?}");
    }
    let why = |result: Result<_, RequestError>| result.unwrap_err().to_string();
    for size in [0, 4, 12, 23, 25, 48, u32::MAX as usize] {
        let expected = format!("output 0: {size} bytes for a TENSOR_FLOAT32 of [2, 3], which has 24");
        let refused = why(check(argument((0, 0, 0), &[]), size, &info));
        assert!(refused == expected || size == 0, "{refused}");
    }
    assert!(why(check(argument((0, 0, 0), &[]), 24, &unknown)).contains("must be known"));
    let huge = TensorInfo { dims: smallvec![u32::MAX; 5], ..info };
    assert!(why(check(argument((0, 0, 0), &[]), 24, &huge)).contains("which has too many"));
}
