//! From a model to a command stream and constants, and from both to a saved model and back.
//!
//! Saved, a model is one blob that steers (the stream) and two that only hold values (weights; biases and tables). The
//! driver proves the first unchanged before it gives it back; of the others it only guarantees the length, so nothing
//! in them may decide where the device reads or writes.

use crate::layout::{tiled, Shape};
use crate::plan::{self, Kind, Step};
use crate::stream::{self, Instruction};
use crate::Result;
use nnhal::backend::{Artifact, BackendError, Control, Interface, Saved};
use nnhal::memory::{AlignedBuf, ClientSlice, Mapping};
use nnhal::model::{Lifetime, Model, Operand};
use nnhal::ops::Interrupt;
use nnhal::tensor::requant::Multiplier;
use nnhal::tensor::{OperandType, TensorInfo};
use std::sync::Arc;

/// Kinds of constants, each with a data file of its own.
pub const WEIGHTS: usize = 0;
pub const TABLES: usize = 1;

/// A compiled model, in host memory.
pub struct Program {
    pub interface: Interface,
    pub stream: Vec<u8>,
    pub constants: [Vec<u8>; 2],
}

/// Compiles a model of which every operation is supported.
pub fn compile(model: &Model, control: &Control) -> Result<Program> {
    let mut builder =
        Builder { model, at: lay_out(model), stream: Vec::new(), constants: Default::default() };
    let (inputs, outputs) = (&model.main.inputs, &model.main.outputs);
    for (argument, &operand) in inputs.iter().enumerate() {
        builder.emit(stream::LOAD, argument as i32, builder.at[operand], operand);
    }
    for (i, step) in plan::steps(model).into_iter().enumerate() {
        control.check()?; // the client's deadline, or its death
        builder.step(step.map_err(|why| BackendError::Unsupported(format!("operation {i}: {why}")))?)?;
    }
    for (argument, &operand) in (inputs.len()..).zip(outputs) {
        builder.emit(stream::STORE, builder.at[operand], argument as i32, operand);
    }
    let Builder { stream, constants, .. } = builder;
    Ok(Program { interface: Interface::of(model), stream, constants })
}

/// Gives every value a place of its own in the scratchpad: where each operand's starts. A real compiler reuses places; what
/// it saves, it saves here.
fn lay_out(model: &Model) -> Vec<i32> {
    let mut next = 0;
    let start_of = |operand: &Operand| {
        let start = next;
        if plan::is_value(operand) {
            next += plan::padded(operand.info.byte_size().unwrap_or(0));
        }
        start as i32
    };
    model.main.operands.iter().map(start_of).collect()
}

struct Builder<'a> {
    model: &'a Model,
    /// Where in the scratchpad each operand's value is.
    at: Vec<i32>,
    stream: Vec<u8>,
    constants: [Vec<u8>; 2],
}

impl Builder<'_> {
    /// Appends an instruction that moves an operand's value.
    fn emit(&mut self, code: i32, x: i32, to: i32, operand: usize) {
        self.stream.extend(Instruction::new(code, x, to, self.shape(operand)).to_bytes());
    }

    fn shape(&self, operand: usize) -> Shape {
        Shape::of(&self.model.main.operands[operand].info.dims)
    }

    /// Appends a constant, or what the device has in its place; tells where it starts.
    fn append(&mut self, kind: usize, operand: usize, layout: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<i32> {
        let Lifetime::Constant(constant) = &self.model.main.operands[operand].lifetime else {
            return Err(BackendError::Failed(format!("operand {operand} is not a constant")));
        };
        // It may lie in the client's memory still, which may vanish: this copies.
        let bytes = constant.bytes().map_err(BackendError::memory("a constant"))?;
        let list = &mut self.constants[kind];
        let start = list.len();
        list.extend(layout(&bytes));
        list.resize(plan::padded(list.len()), 0);
        Ok(start as i32)
    }

    fn step(&mut self, Step { kind, x, to, activation }: Step) -> Result<()> {
        let model = self.model;
        let info = |operand: usize| &model.main.operands[operand].info;
        let (input, out) = (info(x), info(to));
        let (low, high) = activation.quantised_range(out.ty, out.scale, out.zero_point);
        let signed = (out.ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED).into();
        let moved = Instruction::new(stream::CLAMP, self.at[x], self.at[to], self.shape(x));
        let (x_zero, zero) = (input.zero_point, out.zero_point);
        let mut i = Instruction { low, high, signed, x_zero, zero, ..moved };
        match kind {
            Kind::Clamp => {}
            Kind::Lookup { table } => {
                i.code = stream::LOOKUP;
                i.table = self.append(TABLES, table, <[u8]>::to_vec)?;
            }
            // As NNAPI's reference: both are raised by 20 bits and brought to twice the larger scale before they are added.
            Kind::Add { y } => {
                let other = info(y);
                let twice_larger = 2.0 * f64::from(input.scale.max(other.scale));
                let raised = f64::from(1 << 20) * f64::from(out.scale);
                let scale = |of: &TensorInfo| Multiplier::new(f64::from(of.scale) / twice_larger);
                (i.code, i.y, i.y_zero) = (stream::ADD, self.at[y], other.zero_point);
                (i.x_scale, i.y_scale) = (scale(input), scale(other));
                i.scale = Multiplier::new(twice_larger / raised);
            }
            Kind::FullyConnected { weights, bias } => {
                let (filter, shape) = (info(weights), self.shape(weights));
                let real = f64::from(input.scale) * f64::from(filter.scale) / f64::from(out.scale);
                i.code = stream::FULLY_CONNECTED;
                i.y = self.append(WEIGHTS, weights, |bytes| tiled(bytes, shape))?;
                i.table = self.append(TABLES, bias, <[u8]>::to_vec)?;
                // Whatever the input's shape, its rows are as long as those of the weights.
                i.rows = (self.shape(x).plain_len() / shape.channels) as i32;
                (i.channels, i.units) = (shape.channels as i32, shape.rows as i32);
                i.y_zero = filter.zero_point;
                i.scale = Multiplier::new(real); // nothing is rescaled before the sum
            }
        }
        self.stream.extend(i.to_bytes());
        Ok(())
    }
}

impl Program {
    /// The program as the driver keeps it: interface and stream in the model file, and each kind of constants in a data file.
    pub fn save(&self) -> Option<Artifact> {
        let part = |bytes: &Vec<u8>| Some(vec![(0, AlignedBuf::copy_of(bytes)?.into())]);
        let data = self.constants.iter().map(part).collect::<Option<_>>()?;
        Some(Artifact { models: vec![[self.interface.to_bytes(), self.stream.clone()].concat()], data })
    }

    /// What [`save`](Self::save) made. The model's bytes are what it gave, and yet nothing here panics over others.
    pub fn load(saved: &Saved) -> Result<Self> {
        let invalid = || BackendError::Failed("this is not a model of this device".into());
        let ([model], [weights, tables]) = (&saved.models[..], &saved.data[..]) else {
            return Err(invalid());
        };
        let (interface, stream) = Interface::from_start(model).ok_or_else(invalid)?;
        // A private copy: the file may change while it is read, and afterwards.
        let copy = |file: &Arc<Mapping>| {
            let bytes = ClientSlice::whole(file.clone()).to_private();
            bytes.map(|bytes| bytes.to_vec()).map_err(BackendError::memory("a data cache"))
        };
        Ok(Program { interface, stream: stream.to_vec(), constants: [copy(weights)?, copy(tables)?] })
    }
}
