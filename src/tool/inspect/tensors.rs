//! A model's tensors as a compiled model has them: where each lies, and from which step to which.

use crate::aidl::{Operand, OperandLifeTime};
use crate::backend::{Description, KernelName, SubgraphDescription, ValuePlace};
use crate::tensor::OperandType;
use crate::tflite::Imported;
use serde::Serialize;
use std::ops::Range;

/// A tensor of the main subgraph.
pub struct Tensor {
    /// Its index among the model's operands.
    pub operand: usize,
    /// Type and dimensions.
    pub what: String,
    pub place: ValuePlace,
    /// The steps during which it lives, the first and the last among them.
    pub steps: Range<usize>,
    /// Whether it is another tensor's bytes in other dimensions.
    pub is_view: bool,
}

/// Where an operand lies, as JSON tells it.
#[derive(Serialize)]
pub struct Place {
    pub operand: usize,
    pub place: &'static str,
    /// Within the arena.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Place {
    pub fn new(operand: usize, place: &ValuePlace) -> Self {
        let (place, offset, bytes) = match place {
            ValuePlace::Constant(bytes) => ("constant", None, Some(*bytes)),
            ValuePlace::Packed(bytes) => ("packed", None, Some(*bytes)),
            ValuePlace::Arena(part) => ("arena", Some(part.start), Some(part.end - part.start)),
            ValuePlace::Client(part) => ("client", Some(part.start), Some(part.end - part.start)),
            ValuePlace::Own => ("own", None, None),
            ValuePlace::Nowhere => ("nowhere", None, None),
        };
        Place { operand, place, offset, bytes }
    }
}

/// Where it lies, in words.
pub fn words(place: &ValuePlace) -> String {
    let part = |part: &Range<u64>| format!("{}..{}, {} bytes", part.start, part.end, part.end - part.start);
    match place {
        ValuePlace::Constant(bytes) => format!("constant, {bytes} bytes"),
        ValuePlace::Packed(bytes) => format!("constant, {bytes} bytes, in its kernel's own form"),
        ValuePlace::Arena(range) => format!("arena {}", part(range)),
        ValuePlace::Client(range) => format!("client memory, otherwise arena {}", part(range)),
        ValuePlace::Own => "memory of its own: only a run knows its size".into(),
        ValuePlace::Nowhere => "nowhere: no run needs it".into(),
    }
}

/// An operand's type and dimensions.
pub fn shape(operand: &Operand) -> String {
    let code = operand.r#type.0;
    let ty = OperandType::from_code(code).map_or(format!("type {code}"), |ty| ty.name().into());
    match operand.dimensions.is_empty() {
        true => ty,
        false => {
            let dims: Vec<String> = operand.dimensions.iter().map(i32::to_string).collect();
            format!("{ty}[{}]", dims.join("x"))
        }
    }
}

/// All tensors that a run may touch, by operand.
pub fn tensors(imported: &Imported, description: &Description) -> Vec<Tensor> {
    let main = &imported.model.main;
    let Some(compiled) = description.subgraphs.first() else { return Vec::new() };
    let lives = Lives::new(imported, compiled);
    let operands = main.operands.iter().zip(&compiled.places).enumerate();
    let is_tensor = |operand: &Operand| {
        let is_scalar = OperandType::from_code(operand.r#type.0).is_some_and(OperandType::is_scalar);
        !is_scalar && operand.lifetime != OperandLifeTime::NO_VALUE
    };
    operands
        .filter(|(_, (operand, _))| is_tensor(operand))
        .map(|(i, (operand, place))| Tensor {
            operand: i,
            what: shape(operand),
            place: place.clone(),
            steps: lives.steps[i].clone(),
            is_view: lives.is_view[i],
        })
        .collect()
}

/// By operand: when it lives.
struct Lives {
    steps: Vec<Range<usize>>,
    is_view: Vec<bool>,
}

impl Lives {
    fn new(imported: &Imported, compiled: &SubgraphDescription) -> Self {
        let main = &imported.model.main;
        let count = compiled.steps.len();
        let mut lives =
            Lives { steps: vec![0..0; main.operands.len()], is_view: vec![false; main.operands.len()] };
        let indices = |list: &[i32]| -> Vec<usize> {
            let index = |&i: &i32| usize::try_from(i).ok().filter(|&i| i < main.operands.len());
            list.iter().filter_map(index).collect()
        };
        for (at, step) in compiled.steps.iter().enumerate() {
            for operation in step.operations.iter().filter_map(|&i| main.operations.get(i)) {
                indices(&operation.outputs).into_iter().for_each(|v| lives.steps[v] = at..at + 1);
                indices(&operation.inputs).into_iter().for_each(|v| lives.steps[v].end = at + 1);
            }
        }
        indices(&main.outputIndexes).into_iter().for_each(|v| lives.steps[v].end = count);
        // What lies in another's place keeps that, from when it is made until it is read last.
        let idle = compiled.steps.iter().filter(|step| step.kernel == KernelName::Nothing);
        let operations = idle.flat_map(|step| step.operations.iter().filter_map(|&i| main.operations.get(i)));
        let operations: Vec<_> =
            operations.map(|operation| (indices(&operation.inputs), indices(&operation.outputs))).collect();
        for (inputs, outputs) in operations.iter().rev() {
            let Some(&whole) = inputs.first() else { continue };
            for &piece in outputs.iter().filter(|&&piece| lies_in(&compiled.places, piece, whole)) {
                lives.put(piece, whole);
            }
        }
        for (inputs, outputs) in &operations {
            let Some(&whole) = outputs.first().filter(|&&whole| !lives.is_view[whole]) else { continue };
            for &piece in inputs.iter().filter(|&&piece| lies_in(&compiled.places, piece, whole)) {
                lives.put(piece, whole);
            }
        }
        lives
    }

    fn put(&mut self, piece: usize, whole: usize) {
        let (of_piece, of_whole) = (self.steps[piece].clone(), &mut self.steps[whole]);
        *of_whole = of_whole.start.min(of_piece.start)..of_whole.end.max(of_piece.end);
        self.is_view[piece] = true;
    }
}

fn lies_in(places: &[ValuePlace], piece: usize, whole: usize) -> bool {
    match (places.get(piece), places.get(whole)) {
        (Some(ValuePlace::Arena(piece)), Some(ValuePlace::Arena(whole))) => {
            whole.start <= piece.start && piece.end <= whole.end
        }
        _ => false,
    }
}
