//! Large calls of every operation, made of its signature: each is a model of one operation.
//!
//! What a slot is given follows from its name and type. Values are of no interest but that they are valid and keep the work
//! long. IF and WHILE have models of their own.

mod control_flow;
mod given;
mod operand;

pub use given::Size;

use control_flow::Flow;
use given::{given, Form, Given};
use nnhal::backend::{Arguments, Memory};
use nnhal::memory::{ClientSlice, Mapping};
use nnhal::model::{Lifetime, Model, Operand, Operation, Subgraph};
use nnhal::ops::signature::{Count, Row, Signature, Slot, Ty};
use nnhal::ops::OperationType;
use nnhal::tensor::{OperandType, TensorInfo};
use operand::{checked, kind, operand, output_info, pattern};
use std::sync::Arc;

/// What is called, of whatever size.
#[derive(Clone, Copy)]
pub enum Call {
    Slots(OperationType, &'static Signature, &'static Row, (Form, bool)),
    Flow(Flow),
}

/// A model of one call.
pub struct Large {
    /// The operation, and the types and dimensions of its tensors.
    pub name: String,
    pub model: Model,
    /// Which operands are corners of boxes.
    boxes: Vec<usize>,
    /// Bytes of each output.
    outputs: Vec<usize>,
}

impl Call {
    /// Calls of `ty` in every signature and row of types, each over many short rows and over one row; of those that are the
    /// same at this size, one.
    pub fn all(ty: OperationType, size: Size) -> Vec<Call> {
        if let OperationType::IF | OperationType::WHILE = ty {
            return Flow::all(ty).map(Call::Flow).collect();
        }
        let signatures = ty.operation().expect("an operation that the driver has").signatures;
        let (mut calls, mut known): (_, Vec<(Vec<Given>, &Row)>) = (Vec::new(), Vec::new());
        for (signature, row) in signatures.iter().flat_map(|s| s.rows.iter().map(move |row| (s, row))) {
            for form in given::forms(ty).iter().flat_map(|&form| [(form, false), (form, true)]) {
                let given = all_given(ty, (signature, row), form, size);
                if !known.iter().any(|call| call.0 == given && call.1 .1 == row.1) {
                    known.push((given, row));
                    calls.push(Call::Slots(ty, signature, row, form));
                }
            }
        }
        calls
    }

    /// A model of it. An error says what the driver would refuse: this generator is wrong then, or the call cannot be of this
    /// size.
    pub fn large(self, size: Size) -> Result<Large, String> {
        match self {
            Call::Slots(ty, signature, row, form) => {
                Large::of_call(ty, all_given(ty, (signature, row), form, size), signature, row)
            }
            Call::Flow(flow) => flow.large(size),
        }
    }
}

impl Large {
    fn of_call(
        ty: OperationType,
        given: Vec<Given>,
        signature: &Signature,
        row: &Row,
    ) -> Result<Large, String> {
        let mut operands: Vec<Operand> = Vec::new();
        for (slot, given) in slots(signature.inputs, signature.input_count, given.len()).iter().zip(&given) {
            let operand = operand(ty, slot.name, type_of(slot, row), given, &operands);
            operands.push(operand);
        }
        let tensors = operands.iter().map(|o| &o.info).filter(|info| info.ty.is_tensor());
        let tensors: Vec<_> = tensors.map(|info| format!("{} {:?}", info.ty.name(), info.dims)).collect();
        let name = format!("{ty}: {}", tensors.join(", "));
        let output = |slot: &Slot| output_info(ty, slot.name, type_of(slot, row), &operands[0].info);
        let infos: Vec<TensorInfo> = output_slots(signature).iter().map(output).collect();
        let kind = kind(ty, &operands, &infos).map_err(|why| format!("{name}: {why}"))?;
        let outputs = checked(&kind, &operands, &infos).map_err(|why| format!("{name}: {why}"))?;
        let inputs = operands.len();
        let output = |info| Operand { info, lifetime: Lifetime::Output, extension: None };
        operands.extend(infos.into_iter().map(output));
        let is_input = |&i: &usize| matches!(operands[i].lifetime, Lifetime::Input);
        let main = Subgraph {
            operations: vec![Operation {
                kind,
                inputs: (0..inputs).collect(),
                outputs: (inputs..operands.len()).collect(),
            }],
            inputs: (0..inputs).filter(is_input).collect(),
            outputs: (inputs..operands.len()).collect(),
            operands,
        };
        let boxes = (0..inputs).filter(|&i| matches!(given[i], Given::Boxes(_))).collect();
        Ok(Large { name, model: Model { main, referenced: vec![], relaxed: false }, boxes, outputs })
    }

    /// Bytes of its arguments and constants.
    pub fn bytes(&self) -> usize {
        let size = |operand: &Operand| match &operand.lifetime {
            Lifetime::Input => operand.info.byte_size().unwrap_or(0),
            Lifetime::Constant(constant) => constant.len(),
            _ => 0,
        };
        self.model.main.operands.iter().map(size).chain(self.outputs.iter().copied()).sum()
    }

    /// Memory for an execution.
    pub fn arguments(&self) -> Arguments {
        let main = &self.model.main;
        let input = |&i: &usize| {
            let info = &main.operands[i].info;
            let mapping = memory(info.byte_size().expect("a size"));
            let part = pattern(info, self.boxes.contains(&i));
            for start in (0..mapping.len()).step_by(part.len()) {
                let len = part.len().min(mapping.len() - start);
                let slice = ClientSlice::new(mapping.clone(), start, len).expect("a part");
                slice.write(&part[..len]).expect("written");
            }
            Some((Memory::Mapped(mapping), info.dims.clone()))
        };
        let output = |&size: &usize| Some((Memory::Mapped(memory(size)), Default::default()));
        let inputs = main.inputs.iter().map(input).collect();
        Arguments::in_own_memories(inputs, self.outputs.iter().map(output).collect())
    }
}

fn memory(len: usize) -> Arc<Mapping> {
    Arc::new(Mapping::anonymous(len).expect("memory"))
}

/// What all slots of a call are given.
fn all_given(
    ty: OperationType,
    (signature, row): (&Signature, &Row),
    form: (Form, bool),
    size: Size,
) -> Vec<Given> {
    let given = |slot: &Slot| given(ty, slot, type_of(slot, row), form, size);
    input_slots(signature, form.0).iter().map(given).collect()
}

fn type_of(slot: &Slot, row: &Row) -> OperandType {
    match slot.ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => types[types.len() - 1],
    }
}

/// The fewest that there may be, but all where the form wants one of the last.
fn input_slots(signature: &Signature, form: Form) -> Vec<Slot> {
    let most = if form == Form::ChannelsFirst { usize::MAX } else { 0 };
    slots(signature.inputs, signature.input_count, most)
}

fn output_slots(signature: &Signature) -> Vec<Slot> {
    slots(signature.outputs, signature.output_count, 0)
}

/// At least so many if there may be, otherwise the fewest or all; two where there may be any number.
fn slots(slots: &[Slot], count: Count, least: usize) -> Vec<Slot> {
    let mut slots = slots.to_vec();
    match count {
        Count::All => {}
        Count::OneOf(counts) => {
            let enough = counts.iter().find(|&&count| count >= least);
            slots.truncate(*enough.or(counts.last()).expect("a count"));
        }
        Count::Repeat(at) => slots.insert(at, slots[at]),
    }
    slots
}
