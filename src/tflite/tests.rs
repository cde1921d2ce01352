//! The importer on the committed models, on damaged copies of them, and on small models made here.

use super::schema;
use super::*;
use crate::model::{Model, OperationKind};
use crate::ops::OperationType;
use crate::tensor::OperandType;
use std::path::{Path, PathBuf};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)).unwrap()
}

/// The operations of a model that the driver's own checks accept.
pub fn operations(imported: &Imported) -> Vec<OperationType> {
    let model = Model::new(&imported.model).unwrap();
    let codes = imported.model.main.operations.iter().map(|op| op.r#type.0);
    assert_eq!(model.main.operations.len(), imported.model.main.operations.len());
    codes.map(|code| OperationType::from_code(code).unwrap()).collect()
}

#[test]
fn the_digits_models_import() {
    for (name, ty, scale) in [
        ("digits_f32.tflite", OperandType::TENSOR_FLOAT32, 0.0),
        ("digits_int8.tflite", OperandType::TENSOR_QUANT8_ASYMM_SIGNED, 1.0 / 256.0),
    ] {
        let imported = import(&read(name)).unwrap();
        assert_eq!(imported.operators, 10, "{name}");
        let [input, output] = [&imported.inputs[0], &imported.outputs[0]];
        assert_eq!((input.info.ty, &input.dims[..]), (ty, &[1, 8, 8, 1][..]), "{name}");
        assert_eq!((output.info.ty, &output.dims[..]), (ty, &[1, 10][..]), "{name}");
        assert_eq!(output.info.scale, scale, "{name}");
        let operations = operations(&imported);
        let convolutions = operations.iter().filter(|&&ty| ty == OperationType::CONV_2D).count();
        // The int8 classifier has per-channel weights, and so becomes a fourth convolution.
        assert_eq!(convolutions, if ty == OperandType::TENSOR_FLOAT32 { 3 } else { 4 }, "{name}");
        assert_eq!(operations.last(), Some(&OperationType::SOFTMAX), "{name}");
    }
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn the_shared_models_import() {
    let dir = std::env::var_os("NNHAL_MODELS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/models"), PathBuf::from);
    let entries = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}; set NNHAL_MODELS to the models' directory", dir.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "tflite") {
            let imported = import(&std::fs::read(&path).unwrap()).unwrap();
            let operations = operations(&imported);
            assert!(operations.len() >= imported.operators, "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 0, "{} holds no model", dir.display());
}

#[test]
fn truncated_models_are_refused() {
    for name in ["digits_f32.tflite", "digits_int8.tflite"] {
        let bytes = read(name);
        // The tables lie behind the weights here, so that any shorter file lacks some.
        for len in (0..bytes.len() - 64).step_by(61) {
            assert!(import(&bytes[..len]).is_err(), "{name} cut to {len} bytes");
        }
    }
}

#[test]
fn damaged_models_never_panic() {
    let mut refused = 0;
    for name in ["digits_f32.tflite", "digits_int8.tflite"] {
        let bytes = read(name);
        let mut damaged = bytes.clone();
        let mut random = 1u64;
        for at in (0..bytes.len()).step_by(7) {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let flip = 1u8 << (random >> 61);
            let whole = (random >> 32) as u8;
            for value in [bytes[at] ^ flip, whole] {
                damaged[at] = value;
                refused += usize::from(import(&damaged).is_err());
            }
            damaged[at] = bytes[at];
        }
    }
    assert!(refused > 100, "only {refused} damaged files were refused");
}

#[test]
fn random_bytes_are_refused() {
    let mut random = 7u64;
    for len in [0, 1, 7, 8, 64, 1000, 100_000] {
        let mut bytes: Vec<u8> = (0..len)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 56) as u8
            })
            .collect();
        assert!(import(&bytes).is_err());
        if len >= 8 {
            bytes[4..8].copy_from_slice(b"TFL3");
            assert!(import(&bytes).is_err());
        }
    }
}

/// A tensor of a model made here; `data` makes it a constant.
pub fn tensor(ty: i8, shape: &[i32], data: Option<&[u8]>, quantisation: Option<(&[f32], i64)>) -> TestTensor {
    TestTensor {
        data: data.map(<[u8]>::to_vec),
        tensor: schema::Tensor {
            shape: Some(shape.to_vec()),
            type_: ty,
            name: Some("t".into()),
            quantization: quantisation.map(|(scale, zero_point)| {
                Box::new(schema::Quantization {
                    scale: Some(scale.to_vec()),
                    zero_point: Some(vec![zero_point; scale.len()]),
                    ..Default::default()
                })
            }),
            ..Default::default()
        },
    }
}

pub struct TestTensor {
    data: Option<Vec<u8>>,
    pub tensor: schema::Tensor,
}

pub const F32: i8 = 0;
pub const F16: i8 = 1;
pub const INT32: i8 = 2;
pub const INT64: i8 = 4;
pub const INT8: i8 = 9;
pub const INT4: i8 = 17;
pub const BOOL: i8 = 6;

/// A file with one operator per entry: code, inputs, outputs and options.
pub type TestOperator<'t> = (i32, &'t [i32], &'t [i32], Option<schema::Options>);

pub fn file(
    tensors: Vec<TestTensor>,
    inputs: &[i32],
    outputs: &[i32],
    operators: &[TestOperator],
) -> Vec<u8> {
    custom_file(tensors, inputs, outputs, operators, ("MyOp", &[]))
}

/// The same, with the name and the options of its custom operators.
pub fn custom_file(
    tensors: Vec<TestTensor>,
    inputs: &[i32],
    outputs: &[i32],
    operators: &[TestOperator],
    (custom_name, custom): (&str, &[u8]),
) -> Vec<u8> {
    let mut buffers = vec![schema::Buffer::default()];
    let tensors = tensors
        .into_iter()
        .map(|TestTensor { data, mut tensor }| {
            if let Some(data) = data {
                tensor.buffer = buffers.len() as u32;
                buffers.push(schema::Buffer { data: Some(data), ..Default::default() });
            }
            tensor
        })
        .collect();
    let codes = operators.iter().map(|(code, ..)| schema::OperatorCode {
        deprecated_builtin_code: (*code).min(127) as i8,
        builtin_code: *code,
        custom_code: (*code == names::CUSTOM).then(|| custom_name.into()),
        ..Default::default()
    });
    let graph = schema::SubGraph {
        tensors: Some(tensors),
        inputs: Some(inputs.to_vec()),
        outputs: Some(outputs.to_vec()),
        operators: Some(
            operators
                .iter()
                .enumerate()
                .map(|(i, (code, inputs, outputs, options))| schema::Operator {
                    opcode_index: i as u32,
                    inputs: Some(inputs.to_vec()),
                    outputs: Some(outputs.to_vec()),
                    options: options.clone(),
                    custom_options: (*code == names::CUSTOM).then(|| custom.to_vec()),
                })
                .collect(),
        ),
    };
    let model = schema::Model {
        version: 3,
        operator_codes: Some(codes.collect()),
        subgraphs: Some(vec![graph]),
        buffers: Some(buffers),
        ..Default::default()
    };
    bytes_of(model)
}

fn bytes_of(model: schema::Model) -> Vec<u8> {
    // The identifier goes between the root's offset and the rest (planus would put it in front of both).
    let mut bytes = planus::Builder::new().finish(model, None).to_vec();
    let root = bytes.splice(..4, []).collect::<Vec<u8>>();
    let root = u32::from_le_bytes(root.try_into().unwrap()) + 4;
    [&root.to_le_bytes()[..], b"TFL3", &bytes].concat()
}

pub fn refusal(bytes: &[u8]) -> String {
    match import(bytes) {
        Ok(_) => panic!("it was imported"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn operators_that_cannot_be_mapped_are_named() {
    let pair = || vec![tensor(F32, &[2], None, None), tensor(F32, &[2], None, None)];
    let one = |code, options| file(pair(), &[0], &[1], &[(code, &[0], &[1], options)]);
    assert_eq!(
        refusal(&one(names::CUSTOM, None)),
        "operator 0 (custom MyOp) cannot be mapped to NNAPI: NNAPI has nothing that does this; it makes the tensor \"t\""
    );
    assert!(refusal(&one(109, None)).contains("operator 0 (WHERE)"));
    assert!(
        refusal(&one(0, None)).contains("operator 0 (ADD) cannot be mapped to NNAPI: 1 inputs, expected 2")
    );
    assert!(refusal(&one(25, None)).contains("operator 0 (SOFTMAX)"), "options are missing");
    let wrong = schema::Options::Gather(Default::default());
    assert!(refusal(&one(25, Some(wrong))).contains("another operator's"));
}

#[test]
fn types_and_ranks_are_checked_by_the_operation_table() {
    let int64 = vec![tensor(INT64, &[2], None, None), tensor(INT64, &[2], None, None)];
    assert!(refusal(&file(int64, &[0], &[1], &[(8, &[0], &[1], None)])).contains("INT64"));
    let ints = vec![tensor(INT32, &[2], None, None), tensor(INT32, &[2], None, None)];
    let why = refusal(&file(ints, &[0], &[1], &[(8, &[0], &[1], None)]));
    assert!(why.starts_with("operator 0 (FLOOR) cannot be mapped to NNAPI: as FLOOR: input 0"), "{why}");
}

#[test]
fn graphs_that_do_not_hold_together_are_refused() {
    let pair = || vec![tensor(F32, &[2], None, None), tensor(F32, &[2], None, None)];
    fn floor<'t>(input: &'t [i32], output: &'t [i32]) -> TestOperator<'t> {
        (8, input, output, None)
    }
    for (inputs, outputs, operator) in [
        (&[0][..], &[1, 1][..], floor(&[0], &[1])),
        (&[0, 0], &[1], floor(&[0], &[1])),
        (&[0], &[1], floor(&[1], &[1])), // reads what it writes
        (&[0], &[1], floor(&[0], &[0])), // writes the input
        (&[7], &[1], floor(&[0], &[1])),
        (&[0], &[1], floor(&[0], &[-1])),
    ] {
        assert!(import(&file(pair(), inputs, outputs, &[operator])).is_err());
    }
    assert!(import(&file(pair(), &[0], &[1], &[floor(&[0], &[1])])).is_ok());
}

#[test]
fn inputs_and_constants_that_are_outputs_are_copied() {
    use OperationType::{FLOOR, NOT_EQUAL, RESHAPE, SELECT};
    let bytes = [0u8, 1];
    let constants = [(F32, &[0; 8][..], &[RESHAPE][..]), (BOOL, &bytes, &[SELECT, RESHAPE, NOT_EQUAL])];
    for (ty, constant, copy) in constants {
        let floats = || tensor(F32, &[2], None, None);
        let tensors = vec![floats(), floats(), tensor(ty, &[2], Some(constant), None)];
        let imported = import(&file(tensors, &[0], &[0, 1, 2], &[(8, &[0], &[1], None)])).unwrap();
        assert_eq!(operations(&imported), [&[FLOOR, RESHAPE], copy].concat());
        assert_eq!((&imported.operations[..], imported.outputs.len()), (&[const { 0..1 }][..], 3));
    }
}

#[test]
fn names_and_lists_are_counted_however_often_they_are_told() {
    let named = |length: usize, operators: usize| {
        let graph = schema::SubGraph {
            tensors: Some(vec![tensor(F32, &[2], None, None).tensor]),
            operators: Some(vec![schema::Operator::default(); operators]),
            ..Default::default()
        };
        let code = schema::OperatorCode {
            builtin_code: names::CUSTOM,
            custom_code: Some("x".repeat(length)),
            ..Default::default()
        };
        refusal(&bytes_of(schema::Model {
            version: 3,
            operator_codes: Some(vec![code]),
            subgraphs: Some(vec![graph]),
            ..Default::default()
        }))
    };
    let why = named(10_000, 1);
    assert!(why.contains("operator 0 (custom xxx") && why.len() < 1000, "{why}");
    let why = named(10_000, 100);
    assert!(why.contains("its lists overlap"), "{why}");
}

#[test]
fn what_nothing_reads_may_be_quantised_as_nnapi_cannot() {
    let odd = || tensor(INT8, &[2, 2], Some(&[0; 4]), Some((&[0.1, 0.2], 1)));
    let floats = |shape: &[i32]| tensor(F32, shape, None, None);
    let tensors = vec![floats(&[2]), floats(&[2]), odd()];
    let floor = (8, &[0][..], &[1][..], None);
    assert_eq!(operations(&import(&file(tensors, &[0], &[1], &[floor])).unwrap()), [OperationType::FLOOR]);
    let options = Some(schema::Options::FullyConnected(Default::default()));
    let tensors = vec![floats(&[1, 2]), odd(), floats(&[1, 2])];
    let why = refusal(&file(tensors, &[0], &[2], &[(9, &[0, 1], &[2], options)]));
    assert!(why.contains("operator 0 (FULLY_CONNECTED)") && why.contains("with a zero point"), "{why}");
}

#[test]
fn few_weights_of_16_bits_become_constants_of_32_and_many_the_drivers() {
    for (count, expected) in
        [(2, &[OperationType::ADD][..]), (600, &[OperationType::CAST, OperationType::ADD])]
    {
        let values: Vec<f32> = (0..count).map(|i| 1.5 - 2.0 * i as f32).collect();
        let halves: Vec<u8> = values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
        let dims = [count];
        let floats = || tensor(F32, &dims, None, None);
        let tensors = vec![floats(), tensor(F16, &dims, Some(&halves), None), floats(), floats()];
        let add = schema::Options::Add(Default::default());
        let bytes = file(tensors, &[0], &[3], &[(6, &[1], &[2], None), (0, &[0, 2], &[3], Some(add))]);
        let imported = import(&bytes).unwrap();
        assert_eq!(operations(&imported), expected);
        let model = Model::new(&imported.model).unwrap();
        let first = &model.main.operations[0];
        let weights = &model.main.operands[first.inputs[usize::from(expected.len() == 1)]];
        let crate::model::Lifetime::Constant(constant) = &weights.lifetime else { panic!("{weights:?}") };
        let wide = || values.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(constant.bytes().unwrap()[..], if expected.len() == 1 { wide() } else { halves });
    }
}

#[test]
fn sparse_constants_are_made_whole() {
    use schema::{DimensionMetadata, IndexVector, Int32Vector, Sparsity, Uint16Vector, Uint8Vector};
    let rows = [0u8, 2, 2, 3];
    let lists = |places: IndexVector| {
        let bounds = match &places {
            IndexVector::Int32(_) => {
                IndexVector::Int32(Box::new(Int32Vector { values: Some(rows.map(i32::from).into()) }))
            }
            IndexVector::Uint16(_) => {
                IndexVector::Uint16(Box::new(Uint16Vector { values: Some(rows.map(u16::from).into()) }))
            }
            IndexVector::Uint8(_) => IndexVector::Uint8(Box::new(Uint8Vector { values: Some(rows.into()) })),
        };
        (bounds, places)
    };
    let model = |places: IndexVector, dense_size: i32, stored: &[f32]| {
        let stored: Vec<u8> = stored.iter().flat_map(|x| x.to_le_bytes()).collect();
        let floats = || tensor(F32, &[3, 4], None, None);
        let mut weights = tensor(F32, &[3, 4], Some(&stored), None);
        let (bounds, places) = lists(places);
        let dense = DimensionMetadata { format: 0, dense_size, ..Default::default() };
        let sparse = DimensionMetadata {
            format: 1,
            array_segments: Some(bounds),
            array_indices: Some(places),
            ..Default::default()
        };
        weights.tensor.sparsity = Some(Box::new(Sparsity {
            traversal_order: Some(vec![0, 1]),
            dim_metadata: Some(vec![dense, sparse]),
            ..Default::default()
        }));
        let add = schema::Options::Add(Default::default());
        let operators = [(124, &[1][..], &[2][..], None), (0, &[0, 2], &[3], Some(add))];
        file(vec![floats(), weights, floats(), floats()], &[0], &[3], &operators)
    };
    let values = [5.0, 7.0, 9.0];
    for places in [
        IndexVector::Int32(Box::new(Int32Vector { values: Some(vec![0, 3, 2]) })),
        IndexVector::Uint16(Box::new(Uint16Vector { values: Some(vec![0, 3, 2]) })),
        IndexVector::Uint8(Box::new(Uint8Vector { values: Some(vec![0, 3, 2]) })),
    ] {
        let imported = import(&model(places.clone(), 3, &values)).unwrap();
        assert_eq!(operations(&imported), [OperationType::ADD]);
        let checked = Model::new(&imported.model).unwrap();
        let weights = &checked.main.operands[checked.main.operations[0].inputs[1]];
        let crate::model::Lifetime::Constant(constant) = &weights.lifetime else { panic!("{weights:?}") };
        let whole = [5.0f32, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0];
        let bytes: Vec<u8> = whole.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(constant.bytes().unwrap()[..], bytes);
        assert!(refusal(&model(places.clone(), -1, &values)).contains("negative"));
        assert!(refusal(&model(places, 3, &values[..2])).contains("fewer values"));
    }
}

#[test]
fn what_nnapi_lacks_is_rewritten() {
    let quantised = |scale: &'static [f32], zero| tensor(INT8, &[1, 4], None, Some((scale, zero)));
    // MUL whose output is finer than the product of its inputs.
    let tensors = vec![quantised(&[0.5], 0), quantised(&[0.5], 0), quantised(&[0.1], 3)];
    let mul = schema::Options::Mul(Default::default());
    let imported = import(&file(tensors, &[0, 1], &[2], &[(18, &[0, 1], &[2], Some(mul))])).unwrap();
    use OperationType::*;
    assert_eq!(operations(&imported), [DEQUANTIZE, DEQUANTIZE, MUL, QUANTIZE]);
    // SQUARED_DIFFERENCE.
    let tensors = vec![quantised(&[0.5], 0), quantised(&[0.5], 0), quantised(&[0.1], -128)];
    let imported = import(&file(tensors, &[0, 1], &[2], &[(99, &[0, 1], &[2], None)])).unwrap();
    let steps = [MUL, ADD, FLOOR, MUL, ADD, FLOOR];
    let expected = [&[DEQUANTIZE, DEQUANTIZE], &steps[..], &[SUB, MUL, MUL, QUANTIZE]].concat();
    assert_eq!(operations(&imported), expected);
    // A constant axis of 64 bits, negative, in a tensor of rank 0.
    let axis = (-1i64).to_le_bytes();
    let tensors = vec![
        tensor(F32, &[2, 3], None, None),
        tensor(INT64, &[], Some(&axis), None),
        tensor(F32, &[2, 1], None, None),
    ];
    let keep = schema::Options::Reducer(Box::new(schema::ReducerOptions { keep_dims: true }));
    let imported = import(&file(tensors, &[0], &[2], &[(40, &[0, 1], &[2], Some(keep))])).unwrap();
    assert_eq!(operations(&imported), [MEAN]);
    let model = Model::new(&imported.model).unwrap();
    assert!(matches!(model.main.operations[0].kind, OperationKind::Known { .. }));
}
