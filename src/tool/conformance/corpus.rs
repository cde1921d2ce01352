//! Reader of corpus files (`.nnt`): conformance models with their inputs and expected outputs.
//!
//! A file is a 64-byte header, one JSON object per line and model, and a blob of operand bytes. Files are trusted less
//! than code but are not hostile: a damaged one gives an error that names it.

use crate::tensor::OperandType;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"NNTCORP1";

/// A corpus file, read.
pub struct CorpusFile {
    pub path: PathBuf,
    pub models: Vec<Model>,
    blob: Vec<u8>,
}

/// One conformance model. Names and order of the fields are the format's.
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
    pub multinomial_tolerance: f32,
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

/// Why a corpus could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    #[error("{0}: not a corpus file: {1}")]
    Format(PathBuf, String),
    #[error("{0}: no .nnt file in it; give the directory of a conformance corpus")]
    Empty(PathBuf),
}

impl CorpusFile {
    pub fn read(path: &Path) -> Result<Self, CorpusError> {
        let bytes = std::fs::read(path).map_err(|e| CorpusError::Io(path.into(), e))?;
        parse(&bytes)
            .map(|(models, blob)| CorpusFile { path: path.into(), models, blob })
            .map_err(|why| CorpusError::Format(path.into(), why))
    }

    /// A file of models that have none.
    pub fn without_bytes(models: Vec<Model>) -> Self {
        CorpusFile { path: PathBuf::new(), models, blob: Vec::new() }
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        encode(&self.models, &self.blob)
    }

    /// The operand's bytes; `None` where it has none.
    pub fn data(&self, operand: &Operand) -> Option<&[u8]> {
        let (offset, len) = operand.data?;
        self.blob.get(offset..offset.checked_add(len)?)
    }

    /// A file of this one model, with no more than its bytes.
    pub fn only(&self, model: &Model) -> Self {
        let mut model = model.clone();
        let mut blob = Blob::default();
        for operand in
            model.main.operands.iter_mut().chain(model.referenced.iter_mut().flat_map(|g| &mut g.operands))
        {
            operand.data = self.data(operand).map(|bytes| blob.add(bytes));
        }
        CorpusFile { path: self.path.clone(), models: vec![model], blob: blob.bytes }
    }

    /// A file of one model: `model` with its TENSOR_QUANT8_ASYMM operands made TENSOR_QUANT8_ASYMM_SIGNED, their values
    /// and zero points shifted by 128.
    pub fn signed_twin(&self, model: &Model) -> Self {
        let mut twin = model.clone();
        let mut blob = Vec::new();
        for graph in std::iter::once(&mut twin.main).chain(&mut twin.referenced) {
            for operand in &mut graph.operands {
                let unsigned = operand.ty() == Some(OperandType::TENSOR_QUANT8_ASYMM);
                let mut bytes = self.data(operand).map(<[u8]>::to_vec);
                if unsigned {
                    operand.type_name = OperandType::TENSOR_QUANT8_ASYMM_SIGNED.name().into();
                    operand.zero_point -= 128;
                    // Flipping the top bit takes 128 off.
                    bytes.iter_mut().flatten().for_each(|byte| *byte ^= 0x80);
                }
                operand.data = bytes.map(|bytes| {
                    blob.extend_from_slice(&bytes);
                    (blob.len() - bytes.len(), bytes.len())
                });
            }
        }
        CorpusFile { path: self.path.clone(), models: vec![twin], blob }
    }
}

/// Operand bytes in the making: each piece is there once, at a multiple of 16.
#[derive(Default)]
pub struct Blob {
    bytes: Vec<u8>,
    places: std::collections::HashMap<Vec<u8>, usize>,
}

impl Blob {
    /// Where these bytes are, from now on.
    pub fn add(&mut self, piece: &[u8]) -> (usize, usize) {
        let next = self.bytes.len();
        let at = *self.places.entry(piece.to_vec()).or_insert(next);
        if at == next {
            self.bytes.extend_from_slice(piece);
            self.bytes.resize(self.bytes.len().next_multiple_of(PIECE), 0);
        }
        (at, piece.len())
    }
}

/// Pieces of the blob start at multiples of this, sections of the file at multiples of the other.
const PIECE: usize = 16;
const SECTION: usize = 64;

/// A corpus file's bytes.
pub fn to_bytes(models: &[Model], blob: Blob) -> Result<Vec<u8>, String> {
    encode(models, &blob.bytes)
}

fn encode(models: &[Model], blob: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = Vec::new();
    for model in models {
        serde_json::to_writer(&mut json, model).map_err(|why| why.to_string())?;
        json.push(b'\n');
    }
    let count = u32::try_from(models.len()).map_err(|why| why.to_string())?;
    let blob_at = (SECTION + json.len()).next_multiple_of(SECTION);
    let mut file = MAGIC.to_vec();
    file.extend(1u32.to_le_bytes());
    file.extend(count.to_le_bytes());
    for word in [SECTION, json.len(), blob_at, blob.len()] {
        file.extend((word as u64).to_le_bytes());
    }
    file.resize(SECTION, 0);
    file.append(&mut json);
    file.resize(blob_at, 0);
    file.extend_from_slice(blob);
    Ok(file)
}

fn parse(bytes: &[u8]) -> Result<(Vec<Model>, Vec<u8>), String> {
    let word = |at: usize| -> Result<usize, String> {
        let bytes: [u8; 8] =
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).ok_or("the header is cut off")?;
        usize::try_from(u64::from_le_bytes(bytes)).map_err(|e| e.to_string())
    };
    if bytes.get(..8) != Some(MAGIC) {
        return Err("it does not start with NNTCORP1".into());
    }
    let section = |at: usize| -> Result<&[u8], String> {
        let (offset, len) = (word(at)?, word(at + 8)?);
        let end = offset.checked_add(len).ok_or("a section overflows")?;
        bytes.get(offset..end).ok_or_else(|| "a section lies outside of the file".into())
    };
    let json = std::str::from_utf8(section(16)?).map_err(|e| e.to_string())?;
    let blob = section(32)?;
    let models = json
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| parse_model(line, blob.len()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((models, blob.to_vec()))
}

/// Parses a model and checks every index in it, so that users may index freely.
fn parse_model(line: &str, blob_len: usize) -> Result<Model, String> {
    let model: Model = serde_json::from_str(line).map_err(|e| e.to_string())?;
    for graph in std::iter::once(&model.main).chain(&model.referenced) {
        let known = |i: &usize| *i < graph.operands.len();
        let listed = graph.operations.iter().all(|op| op.inputs.iter().chain(&op.outputs).all(known));
        if !listed || !graph.inputs.iter().chain(&graph.outputs).all(known) {
            return Err(format!("{}: an operand index is out of range", model.name));
        }
        for operand in &graph.operands {
            let inside = |(at, len): (usize, usize)| at.checked_add(len).is_some_and(|end| end <= blob_len);
            if !operand.data.is_none_or(inside)
                || operand.subgraph.is_some_and(|i| i >= model.referenced.len())
            {
                return Err(format!("{}: operand {} points outside of the file", model.name, operand.name));
            }
        }
    }
    Ok(model)
}

/// All corpus files under `dir`, sorted; `dir` may also be one file.
pub fn find_files(dir: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|e| CorpusError::Io(path.clone(), e))?;
            for entry in entries {
                pending.push(entry.map_err(|e| CorpusError::Io(path.clone(), e))?.path());
            }
        } else if path.extension().is_some_and(|e| e == "nnt") {
            files.push(path);
        } else if path == dir {
            let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "no such directory or .nnt file");
            return Err(CorpusError::Io(path, missing));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CorpusError::Empty(dir.into()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_refused() {
        assert!(parse(b"").is_err());
        assert!(parse(b"NNTCORP1").is_err());
        let mut header = b"NNTCORP1".to_vec();
        header.resize(64, 0);
        assert!(parse(&header).is_ok_and(|(models, _)| models.is_empty()));
        header[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        header[24] = 2;
        assert!(parse(&header).is_err());
    }

    #[test]
    fn signed_twins_mean_the_same_values() {
        let operand = |ty: &str, at: usize, zero_point: i32| {
            format!(
                r#"{{"type": "{ty}", "dims": [2], "lifetime": "SUBGRAPH_INPUT", "scale": 0.5,
                    "zero_point": {zero_point}, "data": [{at}, 2]}}"#
            )
        };
        let line = format!(
            r#"{{"name": "m", "folder": "f", "spec": "s", "aidl_version": 0, "feature_level": 1, "relaxed": false,
                "expect_failure": false, "multinomial_tolerance": 0, "f32_tolerance": "f32", "quant8_atol": 1,
                "kinds": [], "ops": [], "main": {{"inputs": [0, 1], "outputs": [], "operations": [],
                "operands": [{}, {}]}}}}"#,
            operand("TENSOR_QUANT8_ASYMM", 0, 100),
            operand("TENSOR_BOOL8", 0, 0)
        );
        let model = parse_model(&line, 2).expect("it is well-formed");
        let file = CorpusFile { path: PathBuf::new(), models: vec![], blob: vec![0, 255] };
        let twin = file.signed_twin(&model);
        let [first, second] = &twin.models[0].main.operands[..] else { panic!("two operands") };
        assert_eq!(first.ty(), Some(OperandType::TENSOR_QUANT8_ASYMM_SIGNED));
        assert_eq!(first.zero_point, -28);
        assert_eq!(twin.data(first), Some(&[0x80, 0x7f][..]));
        assert_eq!(second.ty(), Some(OperandType::TENSOR_BOOL8));
        assert_eq!(twin.data(second), Some(&[0, 255][..]));
    }
}
