//! Small models with the results that are expected of them.
//!
//! Floats hold small whole numbers, so that sums are exact in whatever order a device adds.

use crate::aidl;
use crate::memory::AlignedBuf;
use crate::model::{Extension, Lifetime, Model, Operation, OperationKind};
use crate::ops::{evaluate::evaluate, Arg, NeverInterrupted};
use std::collections::HashMap;

/// A model, inputs, and the outputs that they must give.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub model: Model,
    /// One value per input and output of the model.
    pub inputs: Vec<Vec<u8>>,
    pub outputs: Vec<Vec<u8>>,
}

impl Sample {
    /// A sample with outputs that its author knows: for operations of an extension. The error says what is wrong with the
    /// model.
    pub fn new(
        name: &str,
        model: &aidl::Model,
        extensions: &[Extension],
        inputs: Vec<Vec<u8>>,
        outputs: Vec<Vec<u8>>,
    ) -> Result<Self, String> {
        let model = Model::with_extensions(model, extensions, &NeverInterrupted)
            .map_err(|why| format!("{name}: {why}"))?;
        let model = model.to_private(&NeverInterrupted).map_err(|why| format!("{name}: {why}"))?;
        let lens = |list: &[usize]| {
            list.iter().map(|&i| model.main.operands[i].info.byte_size().unwrap_or(0)).collect::<Vec<_>>()
        };
        let given = |list: &[Vec<u8>]| list.iter().map(Vec::len).collect::<Vec<_>>();
        if (given(&inputs), given(&outputs)) != (lens(&model.main.inputs), lens(&model.main.outputs)) {
            return Err(format!("{name}: its values are not of the sizes that the model's operands have"));
        }
        Ok(Sample { name: name.into(), model, inputs, outputs })
    }

    /// A sample whose outputs are those of the plain evaluation.
    pub fn plain(name: &str, model: &aidl::Model, inputs: Vec<Vec<u8>>) -> Result<Self, String> {
        let checked = Model::new(model).map_err(|why| format!("{name}: {why}"))?;
        let outputs = outputs(&checked, &inputs).map_err(|why| format!("{name}: {why}"))?;
        Sample::new(name, model, &[], inputs, outputs)
    }
}

/// Evaluates the main subgraph, operation after operation.
fn outputs(model: &Model, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let main = &model.main;
    let mut values: HashMap<usize, AlignedBuf> = HashMap::new();
    let mut keep = |index: usize, bytes: &[u8]| {
        let copy = AlignedBuf::copy_of(bytes).ok_or("no memory")?;
        values.insert(index, copy);
        Ok::<_, String>(())
    };
    for (&index, bytes) in main.inputs.iter().zip(inputs) {
        keep(index, bytes)?;
    }
    for (index, operand) in main.operands.iter().enumerate() {
        if let Lifetime::Constant(constant) = &operand.lifetime {
            keep(index, &constant.bytes().map_err(|why| why.to_string())?)?;
        }
    }
    for Operation { kind, inputs, outputs } in &main.operations {
        let OperationKind::Known { operation, .. } = kind else {
            return Err(format!("{kind:?} has no plain evaluation"));
        };
        let arg = |index: &usize| {
            let data = values.get(index).map(|bytes| &bytes[..]);
            data.map(|data| Arg { info: &main.operands[*index].info, data: Some(data) })
        };
        let args: Vec<_> = inputs.iter().map(arg).collect();
        let infos: Vec<_> = outputs.iter().map(|&index| main.operands[index].info.clone()).collect();
        let computed =
            evaluate(operation, &args, &infos, &NeverInterrupted).map_err(|why| why.to_string())?;
        drop(args);
        values.extend(outputs.iter().copied().zip(computed.into_iter().map(|computed| computed.data)));
    }
    let output = |index: &usize| values.get(index).map(|bytes| bytes.to_vec());
    let outputs: Option<Vec<_>> = main.outputs.iter().map(output).collect();
    outputs.ok_or_else(|| "an output is not computed".into())
}

/// The samples that [`check_backend`](super::check_backend) tries: common operations in four types.
pub fn standard_samples() -> Vec<Sample> {
    use aidl::OperandType as T;
    let types = [T::TENSOR_FLOAT32, T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED];
    let of_type = |ty| {
        [add(ty, "ADD", 0), add(ty, "ADD+RELU", 1), mul(ty), relu(ty), reshape(ty), layer(ty), chain(ty)]
    };
    let made = types.into_iter().flat_map(of_type);
    made.map(|sample| sample.unwrap_or_else(|why| unreachable!("a standard sample is wrong: {why}")))
        .collect()
}

type Made = Result<Sample, String>;

/// A model being made of values of one type, and its inputs.
struct Maker {
    ty: aidl::OperandType,
    model: aidl::Model,
    inputs: Vec<Vec<u8>>,
}

impl Maker {
    fn new(ty: aidl::OperandType) -> Self {
        Maker { ty, model: aidl::Model::default(), inputs: Vec::new() }
    }

    fn is_float(&self) -> bool {
        matches!(self.ty, aidl::OperandType::TENSOR_FLOAT32 | aidl::OperandType::TENSOR_FLOAT16)
    }

    fn operand(&mut self, ty: aidl::OperandType, dims: &[i32], lifetime: aidl::OperandLifeTime) -> i32 {
        let operand = aidl::Operand { r#type: ty, dimensions: dims.to_vec(), lifetime, ..Default::default() };
        self.model.main.operands.push(operand);
        self.model.main.operands.len() as i32 - 1
    }

    /// A value of the model's type, with units that fit its quantisation.
    fn value(&mut self, dims: &[i32], lifetime: aidl::OperandLifeTime, scale: f32, zero: i32) -> i32 {
        let index = self.operand(self.ty, dims, lifetime);
        if !self.is_float() {
            let signed = self.ty == aidl::OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
            let operand = &mut self.model.main.operands[index as usize];
            (operand.scale, operand.zeroPoint) = (scale, if signed { zero - 128 } else { zero });
        }
        index
    }

    fn input(&mut self, dims: &[i32], scale: f32, zero: i32) -> i32 {
        let index = self.value(dims, aidl::OperandLifeTime::SUBGRAPH_INPUT, scale, zero);
        self.model.main.inputIndexes.push(index);
        self.inputs.push(self.bytes(dims, index as usize + 1));
        index
    }

    fn output(&mut self, dims: &[i32], scale: f32, zero: i32) -> i32 {
        let index = self.value(dims, aidl::OperandLifeTime::SUBGRAPH_OUTPUT, scale, zero);
        self.model.main.outputIndexes.push(index);
        index
    }

    /// Gives an operand the next bytes of the operand values.
    fn fill(&mut self, index: i32, bytes: &[u8]) -> i32 {
        let values = &mut self.model.operandValues;
        values.resize(values.len().next_multiple_of(4), 0);
        let (offset, length) = (values.len() as i64, bytes.len() as i64);
        values.extend(bytes);
        self.model.main.operands[index as usize].location =
            aidl::DataLocation { poolIndex: 0, offset, length, padding: 0 };
        index
    }

    fn int(&mut self, value: i32) -> i32 {
        let index = self.operand(aidl::OperandType::INT32, &[], aidl::OperandLifeTime::CONSTANT_COPY);
        self.fill(index, &value.to_le_bytes())
    }

    fn ints(&mut self, values: &[i32]) -> i32 {
        let (ty, dims) = (aidl::OperandType::TENSOR_INT32, [values.len() as i32]);
        let index = self.operand(ty, &dims, aidl::OperandLifeTime::CONSTANT_COPY);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.fill(index, &bytes)
    }

    /// Small whole numbers as floats; as 8 bits, all there are.
    fn bytes(&self, dims: &[i32], seed: usize) -> Vec<u8> {
        let count: i32 = dims.iter().product();
        let small = |i: usize| ((i * 5 + seed * 3) % 7) as f32 - 3.0;
        let each = 0..count as usize;
        match self.ty {
            aidl::OperandType::TENSOR_FLOAT32 => each.flat_map(|i| small(i).to_le_bytes()).collect(),
            aidl::OperandType::TENSOR_FLOAT16 => {
                each.flat_map(|i| half::f16::from_f32(small(i)).to_le_bytes()).collect()
            }
            _ => each.map(|i| (i * 37 + seed * 91) as u8).collect(),
        }
    }

    fn operation(&mut self, ty: aidl::OperationType, inputs: &[i32], output: i32) {
        let (inputs, outputs) = (inputs.to_vec(), vec![output]);
        self.model.main.operations.push(aidl::Operation { r#type: ty, inputs, outputs });
    }

    /// A fully connected layer of 5 units on `x`, which has 18 elements in a row.
    fn layer(&mut self, x: i32, to: i32) {
        let constant = aidl::OperandLifeTime::CONSTANT_COPY;
        let (weights, bytes) = (self.value(&[5, 18], constant, 0.25, 120), self.bytes(&[5, 18], 4));
        self.fill(weights, &bytes);
        let bias = if self.is_float() {
            let (bias, bytes) = (self.value(&[5], constant, 0.0, 0), self.bytes(&[5], 2));
            self.fill(bias, &bytes)
        } else {
            let bias = self.ints(&[-900, -1, 0, 77, 5000]);
            self.model.main.operands[bias as usize].scale = 0.5 * 0.25; // that of the input times that of the weights
            bias
        };
        let none = self.int(0);
        self.operation(aidl::OperationType::FULLY_CONNECTED, &[x, weights, bias, none], to);
    }

    fn sample(self, name: &str) -> Made {
        let ty = crate::tensor::OperandType::from_code(self.ty.0).map_or("?", |ty| ty.name());
        Sample::plain(&format!("{name} {ty}"), &self.model, self.inputs)
    }
}

fn add(ty: aidl::OperandType, name: &str, activation: i32) -> Made {
    let mut maker = Maker::new(ty);
    let (a, b) = (maker.input(&[2, 3, 17], 0.5, 100), maker.input(&[2, 3, 17], 0.2, 30));
    let (activation, to) = (maker.int(activation), maker.output(&[2, 3, 17], 0.7, 128));
    maker.operation(aidl::OperationType::ADD, &[a, b, activation], to);
    maker.sample(name)
}

fn mul(ty: aidl::OperandType) -> Made {
    let mut maker = Maker::new(ty);
    let (a, b) = (maker.input(&[4, 5], 0.5, 100), maker.input(&[4, 5], 0.2, 30));
    let (none, to) = (maker.int(0), maker.output(&[4, 5], 0.9, 128));
    maker.operation(aidl::OperationType::MUL, &[a, b, none], to);
    maker.sample("MUL")
}

fn relu(ty: aidl::OperandType) -> Made {
    let mut maker = Maker::new(ty);
    let (x, to) = (maker.input(&[3, 16], 0.5, 100), maker.output(&[3, 16], 0.5, 100));
    maker.operation(aidl::OperationType::RELU, &[x], to);
    maker.sample("RELU")
}

fn reshape(ty: aidl::OperandType) -> Made {
    let mut maker = Maker::new(ty);
    let (x, to) = (maker.input(&[3, 10], 0.5, 100), maker.output(&[2, 15], 0.5, 100));
    let shape = maker.ints(&[2, 15]);
    maker.operation(aidl::OperationType::RESHAPE, &[x, shape], to);
    maker.sample("RESHAPE")
}

fn layer(ty: aidl::OperandType) -> Made {
    let mut maker = Maker::new(ty);
    let (x, to) = (maker.input(&[3, 18], 0.5, 100), maker.output(&[3, 5], 20.0, 128));
    maker.layer(x, to);
    maker.sample("FULLY_CONNECTED")
}

/// A layer, clamped, reshaped, and added to a second input.
fn chain(ty: aidl::OperandType) -> Made {
    let mut maker = Maker::new(ty);
    let temporary = aidl::OperandLifeTime::TEMPORARY_VARIABLE;
    let (x, y) = (maker.input(&[4, 18], 0.5, 100), maker.input(&[2, 10], 3.0, 3));
    let sums = maker.value(&[4, 5], temporary, 20.0, 128);
    let clamped = maker.value(&[4, 5], temporary, 20.0, 128);
    let reshaped = maker.value(&[2, 10], temporary, 20.0, 128);
    let to = maker.output(&[2, 10], 15.0, 60);
    maker.layer(x, sums);
    maker.operation(aidl::OperationType::RELU, &[sums], clamped);
    let (shape, none) = (maker.ints(&[2, 10]), maker.int(0));
    maker.operation(aidl::OperationType::RESHAPE, &[clamped, shape], reshaped);
    maker.operation(aidl::OperationType::ADD, &[reshaped, y, none], to);
    maker.sample("CHAIN")
}
