//! A graph as plain lists of tensors and operators: the main subgraph of a file, or what a runtime tells of one.
//!
//! Every index of a file is checked here; what tensors and operators mean is not looked at.

use super::error::{beginning, ImportError, Refusal};
use super::names;
use super::schema::{self, Options};
use super::sparse::{Level, Sparsity};
use planus::ReadAsRoot;
use std::borrow::Cow;

/// Schema version of all .tflite files.
const VERSION: u32 = 3;
const IDENTIFIER: &[u8] = b"TFL3";

/// A graph. Every index in it is one of its tensors, which its maker ensures.
#[derive(Clone, Default)]
pub struct Graph<'a> {
    /// The values, in the order of their indices.
    pub tensors: Vec<Tensor<'a>>,
    /// What computes them, in the order of execution.
    pub operators: Vec<Operator>,
    /// Tensors that are given.
    pub inputs: Vec<usize>,
    /// Tensors that are wanted.
    pub outputs: Vec<usize>,
    /// Variable tensors that the caller keeps between runs. The imported model has each as an input and as an output,
    /// after those above. Other variable tensors are zero before each run.
    pub states: Vec<usize>,
}

/// A value of a graph.
#[derive(Clone)]
pub struct Tensor<'a> {
    /// For messages.
    pub name: &'a str,
    /// The type of its elements.
    pub ty: TensorType,
    /// Empty for a scalar.
    pub dims: Vec<u32>,
    /// A constant's bytes: the file's, or such as were found out.
    pub data: Option<Cow<'a, [u8]>>,
    /// How its integers stand for real numbers.
    pub quantisation: Quantisation,
    /// State that an operator keeps between runs; zero before the first.
    pub variable: bool,
    /// Whether its constant is stored as a sparse one, and is not here: those of files are made whole.
    pub sparse: bool,
}

impl Tensor<'_> {
    /// Whether it has no elements: nothing is to be known of it then, and no operand stands for it.
    pub(super) fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// Its name for messages: one may be as long as its file.
    pub(super) fn shown(&self) -> &str {
        beginning(self.name)
    }

    /// A scalar of this type that nothing writes.
    pub(super) fn of(ty: TensorType) -> Self {
        Tensor {
            name: "",
            ty,
            dims: Vec::new(),
            data: None,
            quantisation: Quantisation::None,
            variable: false,
            sparse: false,
        }
    }
}

/// How integers stand for real numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantisation {
    /// They do not.
    None,
    /// Real value = (q - zero_point) * scale.
    Tensor { scale: f32, zero_point: i32 },
    /// Real value = q * scale of the index along `dim`.
    Channel { scales: Vec<f32>, dim: u32 },
    /// In a way that NNAPI lacks, which this names.
    Other(&'static str),
}

/// Type of a tensor's elements, with the format's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    Float32,
    Float16,
    Int32,
    Uint8,
    Int64,
    Bool,
    Int8,
    /// Two to a byte, the lower half first.
    Int4,
    Other(i8),
}

/// A step of a graph.
#[derive(Clone)]
pub struct Operator {
    /// As the file format calls it.
    pub name: String,
    /// `None` for an optional input that is left out.
    pub inputs: Vec<Option<usize>>,
    /// Tensors that it writes.
    pub outputs: Vec<usize>,
    /// The options that come with its name.
    pub options: Option<Options>,
    /// Those of a custom operator, as its makers write them; else none.
    pub custom: Vec<u8>,
}

impl Operator {
    /// Whether it runs others of its file's graphs.
    pub(super) fn runs_graphs(&self) -> bool {
        matches!(self.name.as_str(), "IF" | "WHILE")
    }

    /// The options' fields, picked by `pick`.
    pub(super) fn options<T>(&self, pick: impl FnOnce(&Options) -> Option<T>) -> Result<T, Refusal> {
        self.options
            .as_ref()
            .and_then(pick)
            .ok_or_else(|| "its options are missing, or another operator's".into())
    }
}

impl TensorType {
    /// The type that has this code in the file format.
    pub fn from_code(code: i8) -> Self {
        match code {
            0 => TensorType::Float32,
            1 => TensorType::Float16,
            2 => TensorType::Int32,
            3 => TensorType::Uint8,
            4 => TensorType::Int64,
            6 => TensorType::Bool,
            9 => TensorType::Int8,
            17 => TensorType::Int4,
            other => TensorType::Other(other),
        }
    }

    /// Bytes of an element; `None` where there may be two in a byte, or nothing is known of them.
    fn element_size(self) -> Option<usize> {
        match self {
            TensorType::Bool | TensorType::Int8 | TensorType::Uint8 => Some(1),
            TensorType::Float16 => Some(2),
            TensorType::Float32 | TensorType::Int32 => Some(4),
            TensorType::Int64 => Some(8),
            TensorType::Int4 | TensorType::Other(_) => None,
        }
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 19] = [
            "FLOAT32",
            "FLOAT16",
            "INT32",
            "UINT8",
            "INT64",
            "STRING",
            "BOOL",
            "INT16",
            "COMPLEX64",
            "INT8",
            "FLOAT64",
            "COMPLEX128",
            "UINT64",
            "RESOURCE",
            "VARIANT",
            "UINT32",
            "UINT16",
            "INT4",
            "BFLOAT16",
        ];
        let code = match *self {
            TensorType::Float32 => 0,
            TensorType::Float16 => 1,
            TensorType::Int32 => 2,
            TensorType::Uint8 => 3,
            TensorType::Int64 => 4,
            TensorType::Bool => 6,
            TensorType::Int8 => 9,
            TensorType::Int4 => 17,
            TensorType::Other(code) => code,
        };
        match usize::try_from(code).ok().and_then(|i| NAMES.get(i)) {
            Some(name) => f.write_str(name),
            None => write!(f, "type {code}"),
        }
    }
}

/// Bytes of all sparse constants of a model, whole.
const MOST_WHOLE: usize = 1 << 29;

impl<'a> Graph<'a> {
    /// Reads a file's subgraphs, of which the first is the main one. The others only if an operator of that runs them.
    pub fn read(bytes: &'a [u8]) -> Result<Vec<Self>, ImportError> {
        if bytes.get(4..8) != Some(IDENTIFIER) {
            return damaged("it does not start as one");
        }
        let model = schema::ModelRef::read_as_root(bytes)?;
        if model.version()? != VERSION {
            return damaged(format!("schema version {}, expected {VERSION}", model.version()?));
        }
        let count = model.subgraphs()?.map_or(0, |list| list.len());
        let budget = bytes.len().saturating_mul(4);
        let mut reader = Reader { bytes, model, budget, whole: MOST_WHOLE };
        let mut graphs = vec![reader.graph(0)?];
        if graphs[0].operators.iter().any(Operator::runs_graphs) {
            for index in 1..count {
                graphs.push(reader.graph(index).map_err(|e| within(&format!("subgraph {index}"), e))?);
            }
        }
        Ok(graphs)
    }
}

/// A number that is not negative.
fn number(number: i32) -> Result<usize, ImportError> {
    usize::try_from(number).or_else(|_| damaged(format!("{number} is negative")))
}

fn damaged<T>(why: impl Into<String>) -> Result<T, ImportError> {
    Err(ImportError::Damaged(why.into()))
}

struct Reader<'a> {
    bytes: &'a [u8],
    model: schema::ModelRef<'a>,
    /// List entries, and bytes of names and options, that may still be read. An honest file has fewer than bytes; one whose
    /// lists overlap could have any number.
    budget: usize,
    /// Bytes that sparse constants may still have when they are whole.
    whole: usize,
}

impl<'a> Reader<'a> {
    fn graph(&mut self, index: usize) -> Result<Graph<'a>, ImportError> {
        let subgraph = match self.model.subgraphs()?.and_then(|list| list.get(index)) {
            Some(subgraph) => subgraph?,
            None => return damaged("it has no subgraph"),
        };
        let mut tensors = Vec::new();
        if let Some(list) = subgraph.tensors()? {
            self.spend(list.len())?;
            for (i, tensor) in list.iter().enumerate() {
                tensors.push(self.tensor(tensor?).map_err(|e| within(&format!("tensor {i}"), e))?);
            }
        }
        let mut operators = Vec::new();
        if let Some(list) = subgraph.operators()? {
            self.spend(list.len())?;
            for (i, operator) in list.iter().enumerate() {
                let read = self.operator(operator?, tensors.len());
                operators.push(read.map_err(|e| within(&format!("operator {i}"), e))?);
            }
        }
        let inputs = self.list(subgraph.inputs()?, |i| tensor_index(i, tensors.len()))?;
        let outputs = self.list(subgraph.outputs()?, |i| tensor_index(i, tensors.len()))?;
        Ok(Graph { inputs, outputs, states: Vec::new(), tensors, operators })
    }

    /// A list's entries as `read` takes them, counted against the budget.
    fn list<T: planus::VectorRead<'a>, U>(
        &mut self,
        list: Option<planus::Vector<'a, T>>,
        read: impl Fn(T) -> Result<U, ImportError>,
    ) -> Result<Vec<U>, ImportError> {
        let Some(list) = list else { return Ok(Vec::new()) };
        self.spend(list.len())?;
        let mut entries = Vec::with_capacity(list.len());
        for entry in list.iter() {
            entries.push(read(entry)?);
        }
        Ok(entries)
    }

    /// Counts so many entries against the budget.
    fn spend(&mut self, entries: usize) -> Result<(), ImportError> {
        match self.budget.checked_sub(entries) {
            Some(rest) => self.budget = rest,
            None => return damaged("its lists overlap"),
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: schema::TensorRef<'a>) -> Result<Tensor<'a>, ImportError> {
        let dim = |d| u32::try_from(d).or_else(|_| damaged(format!("dimension {d} is negative")));
        let dims = self.list(tensor.shape()?, dim)?;
        let quantisation = self.quantisation(tensor.quantization()?)?;
        let ty = TensorType::from_code(tensor.type_()?);
        let mut data = self.buffer(tensor.buffer()?)?.map(Cow::Borrowed);
        if let (Some(sparsity), Some(stored)) = (tensor.sparsity()?, &data) {
            let Some(element) = ty.element_size() else {
                return damaged(format!("a sparse constant is {ty}"));
            };
            let whole =
                self.sparsity(sparsity)?.whole(&dims, element, stored, self.whole).or_else(damaged)?;
            self.whole -= whole.len();
            data = Some(Cow::Owned(whole));
        }
        Ok(Tensor {
            // A name is for people: one that is not UTF-8 must not keep the model from running.
            name: tensor.name().ok().flatten().unwrap_or_default(),
            ty,
            dims,
            data,
            quantisation,
            variable: tensor.is_variable()?,
            sparse: false,
        })
    }

    /// Where the values of a constant lie that is stored as a sparse one.
    fn sparsity(&mut self, sparsity: schema::SparsityRef<'a>) -> Result<Sparsity, ImportError> {
        let mut levels = Vec::new();
        if let Some(list) = sparsity.dim_metadata()? {
            self.spend(list.len())?;
            for level in list.iter() {
                let level = level?;
                levels.push(match level.format()? {
                    0 => Level::Dense(number(level.dense_size()?)?),
                    1 => Level::Sparse {
                        bounds: self.numbers(level.array_segments()?)?,
                        places: self.numbers(level.array_indices()?)?,
                    },
                    other => return damaged(format!("sparse dimensions of format {other}")),
                });
            }
        }
        let order = self.list(sparsity.traversal_order()?, number)?;
        let blocks = self.list(sparsity.block_map()?, number)?;
        Ok(Sparsity { order, blocks, levels })
    }

    fn numbers(&mut self, list: Option<schema::IndexVectorRef<'a>>) -> Result<Vec<usize>, ImportError> {
        use schema::IndexVectorRef::*;
        match list {
            None => Ok(Vec::new()),
            Some(Int32(list)) => self.list(list.values()?, number),
            Some(Uint16(list)) => self.list(list.values()?, |n| Ok(usize::from(n))),
            Some(Uint8(list)) => {
                let list = list.values()?.unwrap_or_default();
                self.spend(list.len())?;
                Ok(list.iter().map(|&n| n.into()).collect())
            }
        }
    }

    /// The bytes of buffer `index`; `None` for an empty one.
    fn buffer(&self, index: u32) -> Result<Option<&'a [u8]>, ImportError> {
        if index == 0 {
            return Ok(None);
        }
        let Some(buffer) = self.model.buffers()?.and_then(|list| list.get(index as usize)) else {
            return damaged(format!("buffer {index} does not exist"));
        };
        let buffer = buffer?;
        // In files above 2 GB, buffers lie behind the rest, at an offset from the file's start.
        if buffer.offset()? > 1 {
            let (start, size) = (usize::try_from(buffer.offset()?), usize::try_from(buffer.size()?));
            let range =
                start.ok().zip(size.ok()).and_then(|(start, size)| Some(start..start.checked_add(size)?));
            return match range.and_then(|range| self.bytes.get(range)) {
                Some(bytes) => Ok(Some(bytes)),
                None => damaged(format!("buffer {index} lies outside of the file")),
            };
        }
        Ok(buffer.data()?.filter(|data| !data.is_empty()))
    }

    fn quantisation(
        &mut self,
        quantisation: Option<schema::QuantizationRef<'a>>,
    ) -> Result<Quantisation, ImportError> {
        let Some(quantisation) = quantisation else { return Ok(Quantisation::None) };
        let scales = self.list(quantisation.scale()?, Ok)?;
        let zero_points = self.list(quantisation.zero_point()?, Ok)?;
        match scales[..] {
            [] => Ok(Quantisation::None),
            [scale] => {
                let zero_point = zero_points.first().copied().unwrap_or(0);
                match i32::try_from(zero_point) {
                    Ok(zero_point) => Ok(Quantisation::Tensor { scale, zero_point }),
                    Err(_) => damaged(format!("zero point {zero_point}")),
                }
            }
            _ if zero_points.iter().any(|&zero_point| zero_point != 0) => {
                Ok(Quantisation::Other("per channel with a zero point"))
            }
            _ => match u32::try_from(quantisation.quantized_dimension()?) {
                Ok(dim) => Ok(Quantisation::Channel { scales, dim }),
                Err(_) => damaged("the quantised dimension is negative"),
            },
        }
    }

    fn operator(
        &mut self,
        operator: schema::OperatorRef<'a>,
        tensors: usize,
    ) -> Result<Operator, ImportError> {
        let index = operator.opcode_index()?;
        let Some(code) = self.model.operator_codes()?.and_then(|list| list.get(index as usize)) else {
            return damaged(format!("operator code {index} does not exist"));
        };
        let code = code?;
        // Codes once were a byte; files carry both, and the one not in use is smaller.
        let builtin = code.builtin_code()?.max(i32::from(code.deprecated_builtin_code()?));
        let name = match code.custom_code()? {
            Some(custom) if builtin == names::CUSTOM => {
                self.spend(custom.len())?;
                format!("custom {custom}")
            }
            _ => names::name(builtin),
        };
        let input = |i| if i == -1 { Ok(None) } else { tensor_index(i, tensors).map(Some) };
        let inputs = self.list(operator.inputs()?, input)?;
        let outputs = self.list(operator.outputs()?, |i| tensor_index(i, tensors))?;
        // Options that are not read count as none: no operator that is mapped has them.
        let options = match operator.options() {
            Err(planus::Error { error_kind: planus::errors::ErrorKind::UnknownUnionTag { .. }, .. }) => None,
            options => options?.map(Options::try_from).transpose()?,
        };
        let custom = operator.custom_options()?.unwrap_or_default();
        self.spend(custom.len())?;
        let custom = custom.to_vec();
        Ok(Operator { name, inputs, outputs, options, custom })
    }
}

fn tensor_index(index: i32, tensors: usize) -> Result<usize, ImportError> {
    match usize::try_from(index).ok().filter(|&i| i < tensors) {
        Some(i) => Ok(i),
        None => damaged(format!("tensor {index} does not exist; the file has {tensors}")),
    }
}

fn within(place: &str, error: ImportError) -> ImportError {
    match error {
        ImportError::Damaged(why) => ImportError::Damaged(format!("{place}: {why}")),
        other => other,
    }
}
