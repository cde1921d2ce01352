//! From a model to a command stream and constants, and from both to a saved model and back.
//!
//! Saved, a model is one blob that steers (the stream) and two that only hold values (weights; biases and tables). The
//! driver proves the first unchanged before it gives it back; of the others it only guarantees the length, so nothing
//! in them may decide where the device reads or writes.

use crate::layout::{tiled, Shape};
use crate::plan::{self, Step, SCRATCH_BYTES};
use crate::protocol::word_of;
use crate::stream::{self, Instruction, Units, INSTRUCTION_BYTES};
use nnhal::backend::{Artifact, BackendError, Control, Interface, Saved};
use nnhal::memory::{AlignedBuf, ClientSlice, Mapping};
use nnhal::model::{Lifetime, Model};
use nnhal::ops::Interrupt;
use nnhal::tensor::requant::Activation;
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
        let (x, to) = (argument as u32, builder.at[operand]);
        builder.emit(Instruction { x, to, ..builder.instruction(stream::LOAD, operand) });
    }
    for step in steps {
        control.check()?; // the client's deadline, or its death
        builder.step(step)?;
    }
    for (i, &operand) in outputs.iter().enumerate() {
        let (x, to) = (builder.at[operand], (inputs.len() + i) as u32);
        builder.emit(Instruction { x, to, ..builder.instruction(stream::STORE, operand) });
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

    fn info(&self, operand: usize) -> &TensorInfo {
        &self.model.main.operands[operand].info
    }

    fn shape(&self, operand: usize) -> Shape {
        Shape::of(&self.info(operand).dims)
    }

    /// An instruction that reads `x`, less what else it needs.
    fn instruction(&self, code: u32, x: usize) -> Instruction {
        let Shape { rows, channels } = self.shape(x);
        Instruction {
            code,
            x: self.at[x],
            rows: rows as u32,
            channels: channels as u32,
            ..Default::default()
        }
    }

    /// The instruction with a result, at `to`.
    fn with_result(&self, instruction: Instruction, to: usize, activation: Activation) -> Instruction {
        let TensorInfo { ty, scale, zero_point, .. } = *self.info(to);
        let (low, high) = activation.quantised_range(ty, scale, zero_point);
        let signed = ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        Instruction { to: self.at[to], low, high, signed, ..instruction }
    }

    fn emit(&mut self, instruction: Instruction) {
        self.stream.extend(instruction.to_bytes());
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

    fn step(&mut self, step: Step) -> Result<(), BackendError> {
        let instruction = match step {
            Step::Add { a, b, to, activation } => self.with_result(self.add(a, b, to), to, activation),
            Step::FullyConnected { x, weights, bias, to, activation } => {
                let instruction = self.fully_connected(x, weights, bias, to)?;
                self.with_result(instruction, to, activation)
            }
            // A reshape is a copy: rows follow one another without gaps.
            Step::Reshape { x, to } => {
                self.with_result(self.instruction(stream::CLAMP, x), to, Activation::None)
            }
            Step::Clamp { x, to, activation } => {
                self.with_result(self.instruction(stream::CLAMP, x), to, activation)
            }
            Step::Lookup { x, table, to } => {
                let table = self.constant(table)?;
                let table = self.keep(TABLES, &table);
                let lookup = Instruction { table, ..self.instruction(stream::LOOKUP, x) };
                self.with_result(lookup, to, Activation::None)
            }
        };
        self.emit(instruction);
        Ok(())
    }

    /// As NNAPI's reference: both are raised by 20 bits and brought to twice the larger scale before they are added.
    fn add(&self, a: usize, b: usize, to: usize) -> Instruction {
        let (a_info, b_info, out) = (self.info(a), self.info(b), self.info(to));
        let twice_larger = 2.0 * f64::from(a_info.scale.max(b_info.scale));
        let raised = f64::from(1 << 20) * f64::from(out.scale);
        Instruction {
            y: self.at[b],
            x_units: Units::new(a_info.zero_point, f64::from(a_info.scale) / twice_larger),
            y_units: Units::new(b_info.zero_point, f64::from(b_info.scale) / twice_larger),
            out: Units::new(out.zero_point, twice_larger / raised),
            ..self.instruction(stream::ADD, a)
        }
    }

    fn fully_connected(
        &mut self,
        x: usize,
        weights: usize,
        bias: usize,
        to: usize,
    ) -> Result<Instruction, BackendError> {
        let (shape, bytes, biases) = (self.shape(weights), self.constant(weights)?, self.constant(bias)?);
        let (y, table) = (self.keep(WEIGHTS, &tiled(&bytes, shape)), self.keep(TABLES, &biases));
        let (input, filter, out) = (self.info(x), self.info(weights), self.info(to));
        let real = f64::from(input.scale) * f64::from(filter.scale) / f64::from(out.scale);
        let elements = self.shape(x).plain_len();
        Ok(Instruction {
            y,
            table,
            // Whatever the input's shape, its rows are as long as those of the weights.
            rows: (elements / shape.channels) as u32,
            channels: shape.channels as u32,
            units: shape.rows as u32,
            x_units: Units { zero_point: input.zero_point, ..Units::default() },
            y_units: Units { zero_point: filter.zero_point, ..Units::default() },
            out: Units::new(out.zero_point, real),
            ..self.instruction(stream::FULLY_CONNECTED, x)
        })
    }
}

impl Program {
    /// The program as the driver keeps it: the stream in the model file, and each kind of constants in a data file.
    pub fn save(&self) -> Option<Artifact> {
        let mut model = Vec::new();
        let mut word = |number: u64| model.extend(number.to_le_bytes());
        for list in [&self.interface.inputs, &self.interface.outputs] {
            word(list.len() as u64);
            for info in list {
                word(info.ty.code() as u64);
                word(u64::from(info.scale.to_bits()));
                word(info.zero_point as u64);
                word(info.dims.len() as u64);
                info.dims.iter().for_each(|&dim| word(dim.into()));
            }
        }
        model.extend(&self.stream);
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
        let mut reader = Reader(model);
        let inputs = reader.infos().ok_or_else(invalid)?;
        let outputs = reader.infos().ok_or_else(invalid)?;
        let stream = reader.0.to_vec();
        if stream.len() % INSTRUCTION_BYTES != 0 {
            return Err(invalid());
        }
        // A private copy: the file may change while it is read, and afterwards.
        let copy = |file: &Arc<Mapping>| {
            let bytes = ClientSlice::whole(file.clone()).to_private();
            bytes
                .map(|bytes| bytes.to_vec())
                .map_err(|source| BackendError::Memory { what: "a data cache".into(), source })
        };
        let interface = Interface { inputs, outputs, may_loop: false };
        Ok(Program { interface, stream, constants: [copy(weights)?, copy(tables)?] })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some(word_of(word))
    }

    fn infos(&mut self) -> Option<Vec<TensorInfo>> {
        (0..self.word()?).map(|_| self.info()).collect()
    }

    fn info(&mut self) -> Option<TensorInfo> {
        let ty = OperandType::from_code(self.word()? as i32)?;
        let (scale, zero_point) = (f32::from_bits(self.word()? as u32), self.word()? as i32);
        let dims: Option<Vec<u32>> = (0..self.word()?).map(|_| u32::try_from(self.word()?).ok()).collect();
        Some(TensorInfo::quantised(ty, &dims?, scale, zero_point))
    }
}
