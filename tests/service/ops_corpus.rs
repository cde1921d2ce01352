//! Every corpus model without control flow, operation by operation through the plain evaluations: no binder, no
//! backend, no fusion. `NNT_OPS=NAME,...` keeps the models made of these operations (and ADD) only;
//! `NNT_FILTER=TEXT` those whose name holds the text. The corpus is at `NNHAL_VTS` or ../shared/vts; tests/ignored.sh runs
//! these tests.
use nnhal::memory::AlignedBuf;
use nnhal::ops::{evaluate::evaluate, signature, Arg, NeverInterrupted, OperationType};
use nnhal::tensor::{ChannelQuant, OperandType, TensorInfo};
use nnhal::tool::conformance::{compare, corpus};
use std::collections::BTreeMap;
use std::path::PathBuf;

struct Value {
    info: TensorInfo,
    data: Option<AlignedBuf>,
}

fn corpus_dir() -> PathBuf {
    let dir = std::env::var_os("NNHAL_VTS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/vts"), PathBuf::from);
    assert!(dir.is_dir(), "no corpus at {}; set NNHAL_VTS to its directory", dir.display());
    dir
}

/// Of models that give these their last axis the corpus states the level of those that leave the axis out, which came
/// with level 3.
const STATED_TOO_EARLY: [&str; 3] = ["L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", "SOFTMAX"];

/// The table's feature levels against the corpus, which states from which level on each model is valid.
#[test]
#[ignore = "needs the conformance corpus: tests/ignored.sh corpus"]
fn no_call_is_of_a_later_feature_level_than_its_model() {
    let mut late = BTreeMap::<String, String>::new();
    let mut calls = 0;
    for path in corpus::find_files(&corpus_dir()).unwrap() {
        let file = corpus::CorpusFile::read(&path).unwrap();
        for model in file.models.iter().filter(|model| !model.expect_failure) {
            for graph in std::iter::once(&model.main).chain(&model.referenced) {
                for op in &graph.operations {
                    let level = feature_level(&file, graph, op)
                        .unwrap_or_else(|why| panic!("{}: {}: {why}", model.name, op.ty));
                    calls += 1;
                    let axis = STATED_TOO_EARLY.contains(&op.ty.as_str()) && level == 3;
                    if level > model.feature_level && !axis {
                        let levels = format!("{level}, but {} at {}", model.name, model.feature_level);
                        late.insert(op.ty.clone(), levels);
                    }
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
    assert!(calls > 0, "the corpus has no operation");
}

fn feature_level(
    file: &corpus::CorpusFile,
    graph: &corpus::Subgraph,
    op: &corpus::Operation,
) -> Result<u8, String> {
    let operation = operation(&op.ty).ok_or("missing operation")?;
    let infos: Vec<TensorInfo> = graph.operands.iter().map(|operand| value(file, operand).info).collect();
    let operands = |indices: &[usize]| -> Vec<signature::Operand> {
        let operand = |&i: &usize| match graph.operands[i].lifetime {
            corpus::Lifetime::NoValue => signature::Operand::Omitted(Some(&infos[i])),
            _ => signature::Operand::Present(&infos[i]),
        };
        indices.iter().map(operand).collect()
    };
    Ok(signature::find(operation.signatures, &operands(&op.inputs), &operands(&op.outputs))?.feature_level)
}

#[test]
#[ignore = "needs the conformance corpus: tests/ignored.sh corpus"]
fn plain_evaluations_pass_the_corpus() {
    let only: Option<Vec<String>> =
        std::env::var("NNT_OPS").ok().map(|s| s.split(',').map(Into::into).collect());
    let filter = std::env::var("NNT_FILTER").unwrap_or_default();
    let (mut passed, mut failures, mut missing) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    for path in corpus::find_files(&corpus_dir()).unwrap() {
        let file = corpus::CorpusFile::read(&path).unwrap();
        for model in &file.models {
            let wanted = only.as_ref().is_none_or(|only| {
                model.ops.iter().all(|op| op == "ADD" || only.contains(op))
                    && model.ops.iter().any(|op| only.contains(op))
            });
            let control_flow = model.ops.iter().any(|op| op == "IF" || op == "WHILE");
            if !wanted || !model.name.contains(&filter) || control_flow {
                continue;
            }
            let absent: Vec<_> = model.ops.iter().filter(|op| operation(op).is_none()).collect();
            if !absent.is_empty() {
                absent.into_iter().for_each(|op| *missing.entry(op.clone()).or_default() += 1);
                continue;
            }
            match (run(&file, model), model.expect_failure) {
                (Ok(()), false) | (Err(_), true) => passed += 1,
                (Ok(()), true) => failures.push(format!("{}: ran, but must fail", model.name)),
                (Err(why), false) => failures.push(format!("{}: {why}", model.name)),
            }
        }
    }
    println!("{passed} passed, {} failed; operations missing: {missing:?}", failures.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(passed > 0 || only.is_some(), "the corpus has no model that could be run");
}

fn operation(name: &str) -> Option<&'static nnhal::ops::Operation> {
    OperationType::from_name(name)?.operation()
}

fn run(file: &corpus::CorpusFile, model: &corpus::Model) -> Result<(), String> {
    let graph = &model.main;
    let mut values: Vec<Value> = graph.operands.iter().map(|operand| value(file, operand)).collect();
    for op in &graph.operations {
        let operation = operation(&op.ty).ok_or("missing operation")?;
        let outputs: Vec<TensorInfo> = op.outputs.iter().map(|&o| values[o].info.clone()).collect();
        let args: Vec<Option<Arg>> = op
            .inputs
            .iter()
            .map(|&i| values[i].data.as_ref().map(|data| Arg { info: &values[i].info, data: Some(data) }))
            .collect();
        let results =
            evaluate(operation, &args, &outputs, &NeverInterrupted).map_err(|e| format!("{}: {e}", op.ty))?;
        for (&o, result) in op.outputs.iter().zip(results) {
            values[o].info.dims = result.dims;
            values[o].data = Some(result.data);
        }
    }
    for &o in &graph.outputs {
        let operand = &graph.operands[o];
        if values[o].info.dims[..] != operand.dims {
            return Err(format!(
                "output {} has dimensions {:?}, expected {:?}",
                operand.name, values[o].info.dims, operand.dims
            ));
        }
        let actual = values[o].data.as_deref().ok_or("an output was not computed")?;
        let expected = file.data(operand).unwrap_or_default();
        if model.multinomial_tolerance > 0.0 {
            let logits = &graph.operands[graph.inputs[0]];
            compare::multinomial(model, logits, file.data(logits).unwrap_or_default(), actual)?;
        } else if !operand.ignored {
            compare::output(model, operand, expected, actual)
                .map_err(|e| format!("output {}: {e}", operand.name))?;
        }
    }
    Ok(())
}

fn value(file: &corpus::CorpusFile, operand: &corpus::Operand) -> Value {
    let info = TensorInfo {
        ty: operand.ty().unwrap_or(OperandType::SUBGRAPH),
        dims: operand.dims[..].into(),
        scale: operand.scale as f32,
        zero_point: operand.zero_point,
        channel_quant: operand.channel_quant.as_ref().map(|quant| ChannelQuant {
            scales: quant.scales.iter().map(|&s| s as f32).collect(),
            dim: quant.dim,
        }),
    };
    use corpus::Lifetime::*;
    let given = matches!(operand.lifetime, SubgraphInput | ConstantCopy | ConstantReference);
    let data = if given { file.data(operand).map(|bytes| AlignedBuf::copy_of(bytes).unwrap()) } else { None };
    Value { info, data }
}
