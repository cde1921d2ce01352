//! One operator being mapped: what the mappings see of it, and how they emit operations.
//!
//! Nothing here knows any single operator; types and ranks that NNAPI does not take are refused by `verify`.

use super::error::Refusal;
use super::graph::{Graph, Operator, Quantisation, Tensor, TensorType};
use super::shape;
use crate::client::builder::{Builder, OperandIndex};
use crate::ops::OperationType;
use crate::tensor::{byte_size, ChannelQuant, OperandType, TensorInfo};
use std::borrow::Cow;
use std::collections::HashMap;

/// The named fields of a call's options: `options!(call, Gather(o) => (o.axis, o.batch_dims))`. With `or`, what the
/// fields are where the operator has no options.
macro_rules! options {
    ($call:expr, $($($variant:ident)|+ ($o:ident) => $fields:expr),+) => {
        $call.operator.options(|options| match options {
            $($(Options::$variant($o))|+ => Some($fields),)+
            _ => None,
        })?
    };
    ($call:expr, $($variant:ident)|+ ($o:ident) => $fields:expr, or $default:expr) => {
        if $call.operator.options.is_some() {
            options!($call, $($variant)|+ ($o) => $fields)
        } else {
            $default
        }
    };
}
pub(super) use options;

/// What an operator's mapping gives.
pub type Mapped = Result<(), Refusal>;

/// The model as mapped so far.
pub struct State<'a> {
    pub builder: Builder<'a>,
    /// The operand of each tensor that has one.
    pub operands: Vec<Option<OperandIndex>>,
    /// Whether each tensor is an output of the model.
    pub is_output: Vec<bool>,
    /// Tensors in floats, where they are quantised and that was wanted.
    floats: HashMap<usize, OperandIndex>,
    /// The operand of each state after the run, once an operator has written it.
    pub kept: Vec<Option<OperandIndex>>,
    /// Whether each tensor is a state that nobody keeps and that an operator has written.
    is_written_state: Vec<bool>,
    /// Whether weights of bytes stand beside inputs of floats, which are to be rounded as those were.
    pub rounds_inputs: bool,
    /// Whether an operator of the file makes floats of constant bytes: inputs beside these are to stay as they are.
    pub widens_weights: bool,
}

impl<'a> State<'a> {
    /// Nothing is mapped yet.
    pub fn new(graph: &Graph<'a>, builder: Builder<'a>) -> Self {
        let count = graph.tensors.len();
        State {
            builder,
            operands: vec![None; count],
            is_output: vec![false; count],
            floats: HashMap::new(),
            kept: vec![None; count],
            is_written_state: vec![false; count],
            rounds_inputs: false,
            widens_weights: false,
        }
    }
}

/// An operator being mapped.
pub struct Call<'c, 'a> {
    pub graph: &'c Graph<'a>,
    pub operator: &'c Operator,
    pub state: &'c mut State<'a>,
}

/// The domain that an operation computes in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The tensors' own.
    Own,
    /// Floats: quantised tensors are dequantised before and quantised after.
    Float,
}

impl<'c, 'a> Call<'c, 'a> {
    pub fn builder(&mut self) -> &mut Builder<'a> {
        &mut self.state.builder
    }

    pub fn has_input(&self, i: usize) -> bool {
        self.operator.inputs.get(i).is_some_and(Option::is_some)
    }

    fn input_index(&self, i: usize) -> Result<usize, Refusal> {
        self.operator.inputs.get(i).copied().flatten().ok_or_else(|| format!("input {i} is missing").into())
    }

    fn output_index(&self, i: usize) -> Result<usize, Refusal> {
        self.operator.outputs.get(i).copied().ok_or_else(|| format!("output {i} is missing").into())
    }

    /// The tensor of input `i`.
    pub fn tensor(&self, i: usize) -> Result<&'c Tensor<'a>, Refusal> {
        let graph = self.graph;
        Ok(&graph.tensors[self.input_index(i)?])
    }

    /// The tensor of output `i`.
    pub fn output_tensor(&self, i: usize) -> Result<&'c Tensor<'a>, Refusal> {
        let graph = self.graph;
        Ok(&graph.tensors[self.output_index(i)?])
    }

    /// The operand of input `i`.
    pub fn input(&mut self, i: usize) -> Result<OperandIndex, Refusal> {
        let (index, tensor) = (self.input_index(i)?, self.tensor(i)?);
        if let Some(operand) = self.state.operands[index] {
            return Ok(operand);
        }
        let info = info(tensor)?;
        let operand = match &tensor.data {
            Some(data) => {
                let data = bytes(tensor, &info, data)?;
                self.builder().constant(info, data)
            }
            // State that nobody keeps is zero before each run: NNAPI keeps none. What is too large is refused when the operation is
            // verified.
            None if tensor.variable => {
                let size = info.byte_size().unwrap_or(usize::MAX);
                self.builder().uniform(info, 0, size)
            }
            None => return Err(format!("input {i} is read before any operator writes it").into()),
        };
        self.state.operands[index] = Some(operand);
        Ok(operand)
    }

    /// The operand of output `i`, which this call writes.
    pub fn output(&mut self, i: usize) -> Result<OperandIndex, Refusal> {
        let (index, tensor) = (self.output_index(i)?, self.output_tensor(i)?);
        if self.state.operands[index].is_some() || tensor.data.is_some() {
            return Err(format!("output {i} is a constant, an input, or written already").into());
        }
        let info = info(tensor)?;
        let is_output = self.state.is_output[index];
        let builder = self.builder();
        let operand = if is_output { builder.output(info) } else { builder.temporary(info) };
        self.state.operands[index] = Some(operand);
        Ok(operand)
    }

    /// The operand for the state of input `i` after the run, which this call writes; `None` if nobody keeps it.
    pub fn kept_state(&mut self, i: usize) -> Result<Option<OperandIndex>, Refusal> {
        let index = self.input_index(i)?;
        if self.state.kept[index].is_some() || self.state.is_written_state[index] {
            return Err(format!("the state of input {i} is another operator's as well").into());
        }
        if !self.graph.states.contains(&index) {
            self.state.is_written_state[index] = true;
            return Ok(None);
        }
        let info = info(self.tensor(i)?)?;
        let operand = self.builder().output(info);
        self.state.kept[index] = Some(operand);
        Ok(Some(operand))
    }

    /// Makes a constant stand for output `i`; `false` where it cannot, because the model gives that output.
    pub fn bind_output(&mut self, i: usize, info: TensorInfo, bytes: Vec<u8>) -> Result<bool, Refusal> {
        let index = self.output_index(i)?;
        if self.state.is_output[index] || self.state.operands[index].is_some() {
            return Ok(false);
        }
        self.state.operands[index] = Some(self.builder().constant(info, bytes));
        Ok(true)
    }

    /// Has output `i` hold these bytes: as a constant, or as a copy of one where the model gives that output.
    pub fn give(&mut self, i: usize, bytes: Vec<u8>) -> Mapped {
        let info = info(self.output_tensor(i)?)?;
        if self.bind_output(i, info.clone(), bytes.clone())? {
            return Ok(());
        }
        let (constant, output) = (self.builder().constant(info, bytes), self.output(i)?);
        self.reshape(constant, output);
        Ok(())
    }

    /// Input `i` in floats, by a DEQUANTIZE if it is quantised.
    pub fn float_input(&mut self, i: usize) -> Result<OperandIndex, Refusal> {
        let (index, quantised) = (self.input_index(i)?, is_quantised(self.tensor(i)?));
        let operand = self.input(i)?;
        if !quantised {
            return Ok(operand);
        }
        if let Some(&float) = self.state.floats.get(&index) {
            return Ok(float);
        }
        let dims = self.builder().info(operand).dims.clone();
        let float = self.builder().temporary(TensorInfo::new(OperandType::TENSOR_FLOAT32, &dims));
        self.emit(OperationType::DEQUANTIZE, &[operand], &[float]);
        self.state.floats.insert(index, float);
        Ok(float)
    }

    pub fn emit(&mut self, ty: OperationType, inputs: &[OperandIndex], outputs: &[OperandIndex]) {
        self.builder().operation(ty, inputs, outputs);
    }

    /// Emits `ty` on the first `inputs` inputs and `extra` operands, with the one output.
    pub fn emit_in(
        &mut self,
        domain: Domain,
        ty: OperationType,
        inputs: usize,
        extra: &[OperandIndex],
    ) -> Mapped {
        let mut operands = Vec::with_capacity(inputs + extra.len());
        for i in 0..inputs {
            operands.push(match domain {
                Domain::Own => self.input(i)?,
                Domain::Float => self.float_input(i)?,
            });
        }
        operands.extend_from_slice(extra);
        self.emit_to_output(domain, ty, &operands)
    }

    /// Emits `ty` on `operands`, which are of `domain`, with the one output.
    pub fn emit_to_output(&mut self, domain: Domain, ty: OperationType, operands: &[OperandIndex]) -> Mapped {
        if domain == Domain::Own || !is_quantised(self.output_tensor(0)?) {
            let output = self.output(0)?;
            self.emit(ty, operands, &[output]);
            return Ok(());
        }
        let output = self.output(0)?;
        let dims = self.builder().info(output).dims.clone();
        let float = self.builder().temporary(TensorInfo::new(OperandType::TENSOR_FLOAT32, &dims));
        self.emit(ty, operands, &[float]);
        self.emit(OperationType::QUANTIZE, &[float], &[output]);
        Ok(())
    }

    /// Emits a RESHAPE of `from` to the dimensions that `to` has.
    pub fn reshape(&mut self, from: OperandIndex, to: OperandIndex) {
        let info = self.builder().info(from).clone();
        if info.ty == OperandType::TENSOR_BOOL8 {
            return self.reshape_truths(from, &info.dims, to);
        }
        let dims: Vec<i32> = self.builder().info(to).dims.iter().map(|&d| d as i32).collect();
        let shape = self.builder().ints(&[dims.len() as u32], &dims);
        self.emit(OperationType::RESHAPE, &[from, shape], &[to]);
    }

    /// NNAPI's RESHAPE takes no truth values: numbers stand for them on the way, 0 and any other.
    fn reshape_truths(&mut self, from: OperandIndex, dims: &[u32], to: OperandIndex) {
        let to_dims = self.builder().info(to).dims.clone();
        let number = |dims: &[u32]| TensorInfo::new(OperandType::TENSOR_INT32, dims);
        // One that is too large is refused when the operation is verified.
        let size = number(dims).byte_size().unwrap_or(usize::MAX);
        let choices = [1, 0].map(|byte| self.builder().uniform(number(dims), byte, size));
        let (numbers, reshaped) =
            (self.builder().temporary(number(dims)), self.builder().temporary(number(&to_dims)));
        self.emit(OperationType::SELECT, &[from, choices[0], choices[1]], &[numbers]);
        self.reshape(numbers, reshaped);
        let zero = self.builder().ints(&[1], &[0]);
        self.emit(OperationType::NOT_EQUAL, &[reshaped, zero], &[to]);
    }

    /// Has `result`, which this call made, be output `i`, by a RESHAPE where it has other dimensions or the model gives it.
    pub fn finish(&mut self, i: usize, result: OperandIndex) -> Mapped {
        let index = self.output_index(i)?;
        let info = info(self.output_tensor(i)?)?;
        if !self.state.is_output[index] && self.builder().info(result).dims == info.dims {
            self.state.operands[index] = Some(result);
            return Ok(());
        }
        let output = self.output(i)?;
        self.reshape(result, output);
        Ok(())
    }

    /// `data` with the dimensions `dims`, by a RESHAPE if it has others.
    pub fn reshaped(&mut self, data: OperandIndex, dims: &[u32]) -> OperandIndex {
        if self.builder().info(data).dims[..] == *dims {
            return data;
        }
        let shaped = self.temporary_like(data, dims);
        self.reshape(data, shaped);
        shaped
    }

    /// Emits `ty`, which gives `dims`, with the one output, and a RESHAPE if that has other dimensions.
    pub fn emit_reshaped(&mut self, ty: OperationType, operands: &[OperandIndex], dims: &[u32]) -> Mapped {
        let output = self.output(0)?;
        if self.builder().info(output).dims[..] == *dims {
            self.emit(ty, operands, &[output]);
        } else {
            let result = self.temporary_like(output, dims);
            self.emit(ty, operands, &[result]);
            self.reshape(result, output);
        }
        Ok(())
    }

    /// A temporary of type and quantisation of `like`, but other dimensions.
    pub fn temporary_like(&mut self, like: OperandIndex, dims: &[u32]) -> OperandIndex {
        let info = TensorInfo { dims: dims.into(), ..self.builder().info(like).clone() };
        self.builder().temporary(info)
    }

    /// The integers of input `i`, which must be a constant.
    pub fn const_ints(&self, i: usize) -> Result<Vec<i32>, Refusal> {
        let tensor = self.tensor(i)?;
        let data = tensor.data.as_deref();
        let data = data.ok_or_else(|| Refusal(format!("input {i} must be a constant")))?;
        let count = crate::tensor::element_count(&tensor.dims);
        let wide = |bytes: &[u8]| match bytes.try_into().map(i64::from_le_bytes).map(i32::try_from) {
            Ok(Ok(value)) => Ok(value),
            _ => Err(Refusal(format!("input {i} holds a value beyond 32 bits"))),
        };
        let values = match tensor.ty {
            TensorType::Int32 => {
                data.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            TensorType::Int64 => data.chunks_exact(8).map(wide).collect::<Result<Vec<_>, _>>()?,
            other => return Err(format!("input {i} is {other}, expected INT32 or INT64").into()),
        };
        if count != Some(values.len()) {
            return Err(format!("input {i} has {} values for {:?}", values.len(), tensor.dims).into());
        }
        Ok(values)
    }

    /// The only integer of input `i`, which must be a constant.
    pub fn const_int(&self, i: usize) -> Result<i32, Refusal> {
        match self.const_ints(i)?[..] {
            [value] => Ok(value),
            ref values => Err(format!("input {i} holds {} values, expected one", values.len()).into()),
        }
    }

    /// A refusal if output `i` has other dimensions than the operator is told. To NNAPI a scalar is a list of one.
    pub fn check_told(&self, i: usize, told: &[i32]) -> Mapped {
        let stated = dims(self.output_tensor(i)?)?;
        let told = if told.is_empty() { &[1] } else { told };
        let agree = |(&dim, &told): (&u32, &i32)| u32::try_from(told) == Ok(dim);
        if stated.len() == told.len() && stated.iter().zip(told).all(agree) {
            return Ok(());
        }
        Err(format!("it is told to make {told:?}, the model states {stated:?}").into())
    }

    /// Input `i` as an operand of integers; constants of 64 bits are narrowed.
    pub fn ints(&mut self, i: usize) -> Result<OperandIndex, Refusal> {
        let tensor = self.tensor(i)?;
        if tensor.data.is_none() || tensor.ty == TensorType::Int32 {
            return self.input(i);
        }
        let values = self.const_ints(i)?;
        Ok(self.builder().ints(&dims(tensor)?, &values))
    }

    /// The operand for a fused activation.
    pub fn activation(&mut self, code: i8) -> Result<OperandIndex, Refusal> {
        // NONE, RELU, RELU_N1_TO_1 and RELU6 have the same codes on both sides.
        match code {
            0..=3 => Ok(self.builder().int(code.into())),
            4 => Err("NNAPI cannot fuse TANH".into()),
            other => Err(format!("NNAPI has no activation {other}").into()),
        }
    }

    /// The operand for an implicit padding scheme.
    pub fn padding(&mut self, code: i8) -> Result<OperandIndex, Refusal> {
        match code {
            0 => Ok(self.builder().int(1)), // SAME
            1 => Ok(self.builder().int(2)), // VALID
            other => Err(format!("padding scheme {other} does not exist").into()),
        }
    }

    /// The axis `axis` of input `i`, counted from the front.
    pub fn axis(&self, axis: i32, rank: usize) -> Result<i32, Refusal> {
        crate::ops::axis_index(axis, rank).map(|axis| axis as i32).map_err(|e| Refusal(e.to_string()))
    }
}

/// Whether a tensor's integers stand for real numbers.
pub fn is_quantised(tensor: &Tensor) -> bool {
    matches!(tensor.ty, TensorType::Int8 | TensorType::Uint8 | TensorType::Int4)
        && tensor.quantisation != Quantisation::None
}

/// A tensor's dimensions in NNAPI, which has no tensors of rank 0.
pub fn dims(tensor: &Tensor) -> Result<Vec<u32>, Refusal> {
    if tensor.dims.contains(&0) || tensor.dims.iter().any(|&d| i32::try_from(d).is_err()) {
        return Err(format!("tensor \"{}\" has dimensions {:?}", tensor.shown(), tensor.dims).into());
    }
    Ok(if tensor.dims.is_empty() { vec![1] } else { tensor.dims.clone() })
}

/// What a tensor is in the model.
pub fn info(tensor: &Tensor) -> Result<TensorInfo, Refusal> {
    let dims = shape::held(dims(tensor)?)?;
    if tensor.sparse {
        return Err(format!("tensor \"{}\" is sparse", tensor.shown()).into());
    }
    let info = match tensor.ty {
        TensorType::Float32 => TensorInfo::new(OperandType::TENSOR_FLOAT32, &dims),
        TensorType::Float16 => TensorInfo::new(OperandType::TENSOR_FLOAT16, &dims),
        TensorType::Int32 => TensorInfo::new(OperandType::TENSOR_INT32, &dims),
        TensorType::Bool => TensorInfo::new(OperandType::TENSOR_BOOL8, &dims),
        TensorType::Int8 | TensorType::Uint8 => quantised_info(tensor, &dims)?,
        // Constants of 4 bits become such of 8.
        TensorType::Int4 if tensor.data.is_some() => quantised_info(tensor, &dims)?,
        other => return Err(format!("tensor \"{}\" is {other}, which NNAPI lacks", tensor.shown()).into()),
    };
    if byte_size(info.ty, &info.dims).is_none() {
        return Err(format!("tensor \"{}\" of {:?} is too large", tensor.shown(), tensor.dims).into());
    }
    Ok(info)
}

fn quantised_info(tensor: &Tensor, dims: &[u32]) -> Result<TensorInfo, Refusal> {
    let signed = tensor.ty != TensorType::Uint8;
    let ty = if signed { OperandType::TENSOR_QUANT8_ASYMM_SIGNED } else { OperandType::TENSOR_QUANT8_ASYMM };
    let refused = |why: &str| Refusal(format!("tensor \"{}\" {why}", tensor.shown()));
    let valid = |scale: f32| scale > 0.0 && scale.is_finite();
    match &tensor.quantisation {
        // Plain small integers: the scale that leaves them as they are.
        Quantisation::None => Ok(TensorInfo::quantised(ty, dims, 1.0, 0)),
        Quantisation::Tensor { scale, zero_point } => {
            let range = if signed { -128..=127 } else { 0..=255 };
            if !valid(*scale) || !range.contains(zero_point) {
                return Err(refused(&format!("has scale {scale} and zero point {zero_point}")));
            }
            Ok(TensorInfo::quantised(ty, dims, *scale, *zero_point))
        }
        Quantisation::Other(how) => Err(refused(&format!("is quantised {how}, which NNAPI lacks"))),
        Quantisation::Channel { .. } if !signed || tensor.data.is_none() => {
            Err(refused("is quantised per channel, but not a constant of INT8"))
        }
        Quantisation::Channel { scales, dim } => {
            if dims.get(*dim as usize).map(|&d| d as usize) != Some(scales.len())
                || !scales.iter().all(|&scale| valid(scale))
            {
                return Err(refused(&format!("has {} scales along dimension {dim}", scales.len())));
            }
            let channel_quant = Some(ChannelQuant { scales: scales[..].into(), dim: *dim });
            let ty = OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL;
            Ok(TensorInfo { channel_quant, ..TensorInfo::new(ty, dims) })
        }
    }
}

/// A constant's bytes in the model. A refusal if they are not as many as its type and dimensions say.
pub fn bytes<'a>(tensor: &Tensor, info: &TensorInfo, data: &Cow<'a, [u8]>) -> Result<Cow<'a, [u8]>, Refusal> {
    if tensor.ty != TensorType::Int4 {
        check_size(tensor, info, data)?;
        return Ok(data.clone());
    }
    let halves = data.iter().flat_map(|&pair| [(pair << 4) as i8 >> 4, pair as i8 >> 4]);
    let whole: Vec<u8> = halves.take(info.byte_size().unwrap_or(0)).map(|value| value as u8).collect();
    check_size(tensor, info, &whole)?;
    Ok(Cow::Owned(whole))
}

/// A refusal if a constant has not as many bytes as its type and dimensions say.
pub fn check_size(tensor: &Tensor, info: &TensorInfo, data: &[u8]) -> Result<(), Refusal> {
    match info.byte_size() {
        Some(size) if size == data.len() => Ok(()),
        _ => {
            Err(format!("constant \"{}\" of {:?} has {} bytes", tensor.shown(), tensor.dims, data.len())
                .into())
        }
    }
}
