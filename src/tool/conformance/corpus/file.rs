//! Corpus files: read, made, and made of others. They are trusted less than code but are not hostile: a damaged one gives
//! an error that names it.

use super::model::{Model, Operand};
use crate::tensor::OperandType;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::Serializer;
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"NNTCORP1";

/// A corpus file, read.
pub struct CorpusFile {
    pub path: PathBuf,
    pub models: Vec<Model>,
    blob: Vec<u8>,
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

/// JSON whose numbers are as Python writes them, which most corpora are made with: the same bytes for the same models.
struct Numbers(CompactFormatter);

impl Formatter for Numbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        match value.abs() {
            // JSON's own writer takes an exponent from a tenth of that on only.
            small if small > 0.0 && small < 1e-4 => {
                let text = format!("{value:e}");
                let (digits, exponent) = text.split_once("e-").unwrap_or((&text, "0"));
                write!(writer, "{digits}e-{exponent:0>2}")
            }
            _ => self.0.write_f64(writer, value),
        }
    }
}

fn encode(models: &[Model], blob: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = Vec::new();
    for model in models {
        let mut line = Serializer::with_formatter(&mut json, Numbers(CompactFormatter));
        model.serialize(&mut line).map_err(|why| why.to_string())?;
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
    fn small_numbers_have_an_exponent_of_two_digits() {
        let written = |value: f64| {
            let mut json = Vec::new();
            value.serialize(&mut Serializer::with_formatter(&mut json, Numbers(CompactFormatter))).unwrap();
            String::from_utf8(json).unwrap()
        };
        for (value, expected) in [
            (0.0, "0.0"),
            (0.5, "0.5"),
            (1e-4, "0.0001"),
            (3.0517578125e-5, "3.0517578125e-05"),
            (-1e-12, "-1e-12"),
            (f64::from(0.025f32), "0.02500000037252903"),
        ] {
            assert_eq!(written(value), expected);
        }
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
