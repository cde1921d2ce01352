//! What the format says beyond the source: levels, tolerances, suites, and which model a variant was made from.

use crate::tool::conformance::corpus::{Model, Operand};

/// The ways in which examples are made of others, by what their names have more.
const MADE: [&str; 2] = ["all_inputs_as_internal", "all_tensors_as_inputs"];
/// Models of this family are judged more leniently.
const LENIENT: &str = "mobilenet";
/// The folder whose models only CTS runs.
const CTS_ONLY: &str = "V1_3_cts_only";
/// Operations that the suite of signed twins leaves alone.
const UNCOUPLED: [&str; 5] = ["HASHTABLE_LOOKUP", "LSH_PROJECTION", "PAD_V2", "CAST", "QUANTIZED_16BIT_LSTM"];

/// Adds to `model` what follows from it, and from those before it in its file.
pub fn complete(model: &mut Model, before: &[Model]) {
    // The versions of the AIDL interface had other names at first.
    let renamed = [("FL_5", "AIDL_V1"), ("FL_6", "AIDL_V2"), ("FL_7", "AIDL_V3")];
    if let Some((_, name)) = renamed.iter().find(|(name, _)| *name == model.min_version) {
        model.min_version = name.to_string();
    }
    let stated = level(&model.min_version);
    model.feature_level = stated.or_else(|| level(&model.folder)).unwrap_or(1);
    // Any AIDL driver runs what came before the second version.
    model.aidl_version = stated.filter(|&level| level > 5).map_or(0, |level| i32::from(level) - 4);
    let variant = model.name.strip_prefix(&model.spec).unwrap_or(&model.name);
    model.variant = variant.trim_start_matches('_').into();
    let half = |operand: &Operand| operand.type_name == "TENSOR_FLOAT16";
    let halves = model.relaxed || model.subgraphs().any(|graph| graph.operands.iter().any(half));
    model.f32_tolerance = if halves { "f16" } else { "f32" }.into();
    model.quant8_atol = if model.name.contains(LENIENT) { 3 } else { 1 };
    let mut ops: Vec<String> =
        model.subgraphs().flat_map(|graph| &graph.operations).map(|operation| operation.ty.clone()).collect();
    ops.sort();
    ops.dedup();
    model.ops = ops;
    origin(model, before);
    model.kinds = kinds(model).into_iter().map(String::from).collect();
}

/// NNAPI's feature level of a version, or of a folder named by one.
fn level(version: &str) -> Option<u8> {
    Some(match version.strip_suffix("_cts_only").unwrap_or(version) {
        "V1_0" => 1,
        "V1_1" => 2,
        "V1_2" => 3,
        "V1_3" => 4,
        "AIDL_V1" => 5,
        "AIDL_V2" => 6,
        "AIDL_V3" => 7,
        _ => return None,
    })
}

/// Finds the model that this one was made from by the names of both.
fn origin(model: &mut Model, before: &[Model]) {
    let made: Vec<&str> = MADE.into_iter().filter(|made| model.name.contains(&format!("_{made}"))).collect();
    let base = made.iter().fold(model.name.clone(), |name, made| name.replace(&format!("_{made}"), ""));
    let Some(base) = before.iter().find(|other| other.name == base).filter(|_| !made.is_empty()) else {
        return;
    };
    let lifetime = |name: &str| {
        base.main.operands.iter().find(|operand| operand.name == name).map(|operand| operand.lifetime)
    };
    let moved = |operand: &Operand| lifetime(&operand.name).is_some_and(|was| was != operand.lifetime);
    let operands = model.main.operands.iter().enumerate();
    model.moved = Some(operands.filter(|(_, operand)| moved(operand)).map(|(i, _)| i).collect());
    model.base = Some(base.name.clone());
    model.auto = made.into_iter().map(String::from).collect();
}

/// The suites that run it.
fn kinds(model: &Model) -> Vec<&'static str> {
    let all = |f: &dyn Fn(&str) -> bool| model.ops.iter().all(|operation| f(operation));
    let made = model.name.contains("inputs_as_internal") || model.name.contains("all_tensors_as_inputs");
    let cts_only = model.folder == CTS_ONLY;
    let looping = model.main.operations.first().is_some_and(|first| first.ty == "WHILE");
    let mut kinds = Vec::new();
    match (model.expect_failure, cts_only) {
        (false, true) => return vec!["cts"],
        (true, true) => return vec!["cts_expect_failure"],
        (true, false) if looping => kinds.push("infinite_loop"),
        (true, false) => kinds.push("cts_expect_failure"),
        (false, false) => {
            kinds.extend(["general", "memory_domain", "fenced", "deadline"]);
            if all(&|operation| !["RANK", "IF", "WHILE"].contains(&operation)) {
                kinds.push("dynamic_shape");
            }
            let unsigned = |operand: &Operand| operand.type_name == "TENSOR_QUANT8_ASYMM";
            let coupled =
                matches!(&model.main.operations[..], [only] if !UNCOUPLED.contains(&only.ty.as_str()));
            if coupled && model.main.operands.iter().any(unsigned) {
                kinds.push("quant_coupling");
            }
        }
    }
    if !made {
        kinds.push("validation");
    }
    kinds
}
