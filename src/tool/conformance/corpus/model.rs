//! Models as a corpus file has them: names and order of the fields are the format's (docs/CORPUS.md).

use crate::tensor::OperandType;
use serde::{Deserialize, Serialize};

/// One conformance model.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Model {
    pub name: String,
    pub folder: String,
    pub spec: String,
    /// What tells it from the other models of its spec.
    #[serde(default)]
    pub variant: String,
    /// The lowest version of the interface as its source states it.
    #[serde(default)]
    pub min_version: String,
    /// NNAPI's feature level that the model is valid from.
    pub feature_level: u8,
    /// Lowest IDevice version that runs it; 0 for any.
    pub aidl_version: i32,
    pub relaxed: bool,
    pub expect_failure: bool,
    pub multinomial_tolerance: f64,
    pub f32_tolerance: String,
    pub quant8_atol: u32,
    /// Suites that run this model.
    pub kinds: Vec<String>,
    pub ops: Vec<String>,
    /// How it was made from the model `base`; empty for one that was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auto: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The main operands whose lifetimes are not those of `base`; only with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Vec<usize>>,
    pub main: Subgraph,
    #[serde(default)]
    pub referenced: Vec<Subgraph>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Subgraph {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    pub operands: Vec<Operand>,
    pub operations: Vec<Operation>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Operation {
    #[serde(rename = "type")]
    pub ty: String,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Lifetime {
    TemporaryVariable,
    SubgraphInput,
    SubgraphOutput,
    ConstantCopy,
    ConstantReference,
    NoValue,
    Subgraph,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Operand {
    #[serde(default)]
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub dims: Vec<u32>,
    pub lifetime: Lifetime,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scale: f64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub zero_point: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_quant: Option<ChannelQuant>,
    /// An output whose contents are not checked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignored: bool,
    #[serde(default)]
    pub consumers: u32,
    /// Offset and length in the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<(usize, usize)>,
    /// For a SUBGRAPH operand: index into `referenced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subgraph: Option<usize>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ChannelQuant {
    pub dim: u32,
    pub scales: Vec<f64>,
}

impl Operand {
    /// The operand's type; `None` for a type that the driver's interface does not have.
    pub fn ty(&self) -> Option<OperandType> {
        OperandType::from_name(&self.type_name)
    }
}

/// Whether a field has the value that the format leaves out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Model {
    /// A name for something that is not a model but is run by a suite as models are.
    pub fn without_graph(name: &str, kind: &str) -> Self {
        let none = Subgraph {
            name: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            operands: Vec::new(),
            operations: Vec::new(),
        };
        Model {
            name: name.into(),
            folder: String::new(),
            spec: kind.into(),
            variant: String::new(),
            min_version: String::new(),
            feature_level: 1,
            aidl_version: 0,
            relaxed: false,
            expect_failure: false,
            multinomial_tolerance: 0.0,
            f32_tolerance: String::new(),
            quant8_atol: 1,
            kinds: vec![kind.into()],
            ops: Vec::new(),
            auto: Vec::new(),
            base: None,
            moved: None,
            main: none,
            referenced: Vec::new(),
        }
    }

    /// The main subgraph, then those that it refers to.
    pub fn subgraphs(&self) -> impl Iterator<Item = &Subgraph> {
        std::iter::once(&self.main).chain(&self.referenced)
    }

    /// The operations that the model tests, each with the type of its first input: not those that were put before the
    /// tested one when the model was made from another.
    pub fn tested(&self) -> Vec<(&str, &str)> {
        let main = &self.main;
        let skip = if self.auto.is_empty() { 0 } else { main.operations.len().saturating_sub(1) };
        let tested = main.operations[skip..].iter().map(|operation| {
            let first = operation.inputs.first().map_or("none", |&i| main.operands[i].type_name.as_str());
            (operation.ty.as_str(), first)
        });
        let mut tested: Vec<_> = tested.collect();
        tested.sort();
        tested.dedup();
        tested
    }
}
