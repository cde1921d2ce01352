//! From a model to a command stream and constants, and from both to a saved model and back.
//!
//! Saved, a model is one blob that steers (the stream) and two that only hold values (weights; biases and tables). The
//! driver proves the first unchanged before it gives it back; of the others it only guarantees the length, so nothing
//! in them may decide where the device reads or writes.

use crate::layout::{tiled, Shape};
use crate::plan::{self, Kind, Step, SCRATCH_BYTES};
use crate::protocol::bytes_of;
use crate::stream::{self, Instruction, Units, INSTRUCTION_BYTES};
use nnhal::backend::{Artifact, BackendError, Control, Interface, Saved};
use nnhal::memory::{AlignedBuf, ClientSlice, Mapping};
use nnhal::model::{Lifetime, Model};
use nnhal::ops::Interrupt;
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
pub fn compile(model: &Model, control: &Control) -> Result<Program, BackendError> {
    let mut steps = Vec::new();
    for (i, step) in plan::steps(model).into_iter().enumerate() {
        steps.push(step.map_err(|why| BackendError::Unsupported(format!("operation {i}: {why}")))?);
    }
    let mut builder = Builder { model, at: Vec::new(), stream: Vec::new(), constants: Default::default() };
    builder.lay_out();
    let (inputs, outputs) = (&model.main.inputs, &model.main.outputs);
    for (argument, &operand) in inputs.iter().enumerate() {
        builder.emit(stream::LOAD, argument as u32, builder.at[operand], operand);
    }
    for step in steps {
        control.check()?; // the client's deadline, or its death
        builder.step(step)?;
    }
    for (argument, &operand) in (inputs.len()..).zip(outputs) {
        builder.emit(stream::STORE, builder.at[operand], argument as u32, operand);
    }
    let Builder { stream, constants, .. } = builder;
    Ok(Program { interface: Interface::of(model), stream, constants })
}

struct Builder<'a> {
    model: &'a Model,
    /// Where in the scratchpad each operand's value is.
    at: Vec<u32>,
    stream: Vec<u8>,
    constants: [Vec<u8>; 2],
}

impl Builder<'_> {
    /// Gives every value a place of its own. A real compiler reuses places; what it saves, it saves here.
    fn lay_out(&mut self) {
        let mut next = 0;
        for operand in &self.model.main.operands {
            self.at.push(next as u32);
            if plan::is_value(operand) {
                next += plan::padded(operand.info.byte_size().unwrap_or(0));
            }
        }
        debug_assert!(next <= SCRATCH_BYTES, "the plan has checked it");
    }

    /// Appends an instruction that moves an operand's value.
    fn emit(&mut self, code: u32, x: u32, to: u32, operand: usize) {
        self.stream.extend(Instruction::new(code, x, to, self.shape(operand)).to_bytes());
    }

    fn shape(&self, operand: usize) -> Shape {
        Shape::of(&self.model.main.operands[operand].info.dims)
    }

    /// Appends a constant; tells where it starts.
    fn keep(&mut self, kind: usize, bytes: &[u8]) -> u32 {
        let list = &mut self.constants[kind];
        let start = list.len();
        list.extend(bytes);
        list.resize(plan::padded(list.len()), 0);
        start as u32
    }

    fn constant(&self, operand: usize) -> Result<Arc<AlignedBuf>, BackendError> {
        let Lifetime::Constant(constant) = &self.model.main.operands[operand].lifetime else {
            return Err(BackendError::Failed(format!("operand {operand} is not a constant")));
        };
        // They may lie in the client's memory still, which may vanish: this copies.
        constant.bytes().map_err(|source| BackendError::Memory { what: "a constant".into(), source })
    }

    fn step(&mut self, Step { kind, x, to, activation }: Step) -> Result<(), BackendError> {
        let model = self.model;
        let info = |operand: usize| &model.main.operands[operand].info;
        let (input, out) = (info(x), info(to));
        let (low, high) = activation.quantised_range(out.ty, out.scale, out.zero_point);
        let signed = out.ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let plain = |code| {
            let instruction = Instruction::new(code, self.at[x], self.at[to], self.shape(x));
            Instruction { low, high, signed, ..instruction }
        };
        let instruction = match kind {
            Kind::Clamp => plain(stream::CLAMP),
            Kind::Lookup { table } => {
                let lookup = plain(stream::LOOKUP);
                Instruction { table: self.keep(TABLES, &self.constant(table)?), ..lookup }
            }
            // As NNAPI's reference: both are raised by 20 bits and brought to twice the larger scale before they are added.
            Kind::Add { y } => {
                let other = info(y);
                let twice_larger = 2.0 * f64::from(input.scale.max(other.scale));
                let raised = f64::from(1 << 20) * f64::from(out.scale);
                let units = |of: &TensorInfo| Units::new(of.zero_point, f64::from(of.scale) / twice_larger);
                Instruction {
                    y: self.at[y],
                    x_units: units(input),
                    y_units: units(other),
                    out: Units::new(out.zero_point, twice_larger / raised),
                    ..plain(stream::ADD)
                }
            }
            Kind::FullyConnected { weights, bias } => {
                let (filter, shape, layer) =
                    (info(weights), self.shape(weights), plain(stream::FULLY_CONNECTED));
                let real = f64::from(input.scale) * f64::from(filter.scale) / f64::from(out.scale);
                let weights = tiled(&self.constant(weights)?, shape);
                Instruction {
                    y: self.keep(WEIGHTS, &weights),
                    table: self.keep(TABLES, &self.constant(bias)?),
                    // Whatever the input's shape, its rows are as long as those of the weights.
                    rows: (self.shape(x).plain_len() / shape.channels) as u32,
                    channels: shape.channels as u32,
                    units: shape.rows as u32,
                    x_units: Units { zero_point: input.zero_point, ..Units::default() },
                    y_units: Units { zero_point: filter.zero_point, ..Units::default() },
                    out: Units::new(out.zero_point, real),
                    ..layer
                }
            }
        };
        self.stream.extend(instruction.to_bytes());
        Ok(())
    }
}

impl Program {
    /// The program as the driver keeps it: the stream in the model file, and each kind of constants in a data file.
    pub fn save(&self) -> Option<Artifact> {
        let mut words = Vec::new();
        for list in [&self.interface.inputs, &self.interface.outputs] {
            words.push(list.len() as u64);
            for info in list {
                let (scale, zero_point) = (u64::from(info.scale.to_bits()), info.zero_point as u64);
                words.extend([info.ty.code() as u64, scale, zero_point, info.dims.len() as u64]);
                words.extend(info.dims.iter().map(|&dim| u64::from(dim)));
            }
        }
        let model = [bytes_of(words), self.stream.clone()].concat();
        let part = |bytes: &Vec<u8>| Some(vec![(0, AlignedBuf::copy_of(bytes)?.into())]);
        let data = self.constants.iter().map(part).collect::<Option<_>>()?;
        Some(Artifact { models: vec![model], data })
    }

    /// What [`save`](Self::save) made. The model's bytes are what it gave, and yet nothing here panics over others.
    pub fn load(saved: &Saved) -> Result<Self, BackendError> {
        let invalid = || BackendError::Failed("this is not a model of this device".into());
        let ([model], [weights, tables]) = (&saved.models[..], &saved.data[..]) else {
            return Err(invalid());
        };
        let mut words = model.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let (inputs, outputs) = (infos(&mut words), infos(&mut words));
        let (inputs, outputs) = inputs.zip(outputs).ok_or_else(invalid)?;
        let stream = bytes_of(words);
        if !stream.len().is_multiple_of(INSTRUCTION_BYTES) {
            return Err(invalid());
        }
        // A private copy: the file may change while it is read, and afterwards.
        let copy = |file: &Arc<Mapping>| match ClientSlice::whole(file.clone()).to_private() {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(source) => Err(BackendError::Memory { what: "a data cache".into(), source }),
        };
        let interface = Interface { inputs, outputs, may_loop: false };
        Ok(Program { interface, stream, constants: [copy(weights)?, copy(tables)?] })
    }
}

/// What is known of a model's inputs or outputs, as [`Program::save`] wrote it.
fn infos(words: &mut impl Iterator<Item = u64>) -> Option<Vec<TensorInfo>> {
    let count = words.next()?;
    let mut info = || {
        let ty = OperandType::from_code(words.next()? as i32)?;
        let (scale, zero_point) = (f32::from_bits(words.next()? as u32), words.next()? as i32);
        let dims: Option<Vec<u32>> = (0..words.next()?).map(|_| u32::try_from(words.next()?).ok()).collect();
        Some(TensorInfo::quantised(ty, &dims?, scale, zero_point))
    };
    (0..count).map(|_| info()).collect()
}
