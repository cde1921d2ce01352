//! The frame for mutations: applies one to a model, shows the result, and undoes it.

use crate::aidl::{Model, Operand, OperandLifeTime, OperandType, Subgraph};
use crate::client::PrepareOptions;
use crate::tensor;
use crate::tool::conformance::outcome::Step;
use std::rc::Rc;

/// A model to break, and who is shown the pieces.
pub struct Mutations<'a> {
    model: &'a mut Model,
    main: Rc<Subgraph>,
    values_len: usize,
    sink: &'a mut dyn FnMut(&str, &Model, &PrepareOptions) -> Step,
}

impl<'a> Mutations<'a> {
    pub fn new(model: &'a mut Model, sink: &'a mut dyn FnMut(&str, &Model, &PrepareOptions) -> Step) -> Self {
        let main = Rc::new(model.main.clone());
        let values_len = model.operandValues.len();
        Mutations { model, main, values_len, sink }
    }

    /// The main subgraph, whole.
    pub fn main(&self) -> Rc<Subgraph> {
        self.main.clone()
    }

    /// Bytes of constants in the model itself.
    pub fn values_len(&self) -> usize {
        self.values_len
    }

    /// Shows the model with its main subgraph changed.
    pub fn with(&mut self, what: String, mutate: impl FnOnce(&mut Subgraph)) -> Step {
        self.show(what, PrepareOptions::default(), |model| mutate(&mut model.main))
    }

    /// Shows the changed model. `mutate` may append constants to the model, but must not change those that are there.
    pub fn show(&mut self, what: String, options: PrepareOptions, mutate: impl FnOnce(&mut Model)) -> Step {
        mutate(self.model);
        let step = (self.sink)(&what, self.model, &options);
        self.model.main.clone_from(&self.main);
        self.model.operandValues.truncate(self.values_len);
        step
    }
}

/// Number of operation inputs that read each operand.
pub fn consumers(main: &Subgraph) -> Vec<usize> {
    let mut consumers = vec![0; main.operands.len()];
    for &input in main.operations.iter().flat_map(|operation| &operation.inputs) {
        consumers[input as usize] += 1;
    }
    consumers
}

/// The operand's bytes; 0 where they are not known or none.
pub fn size(operand: &Operand) -> usize {
    let element = ty(operand.r#type).and_then(tensor::OperandType::element_size).unwrap_or(0);
    let scalar = ty(operand.r#type).is_some_and(tensor::OperandType::is_scalar);
    if operand.dimensions.is_empty() && !scalar {
        return 0;
    }
    operand.dimensions.iter().map(|&d| d as usize).product::<usize>() * element
}

/// The checked type of this code.
pub fn ty(ty: OperandType) -> Option<tensor::OperandType> {
    tensor::OperandType::from_code(ty.0)
}

/// Appends an INT32 scalar.
pub fn add_scalar(main: &mut Subgraph, lifetime: OperandLifeTime) -> i32 {
    add(main, Operand { r#type: OperandType::INT32, lifetime, ..Default::default() })
}

/// Appends an operand.
pub fn add(main: &mut Subgraph, operand: Operand) -> i32 {
    main.operands.push(operand);
    main.operands.len() as i32 - 1
}

/// Appends an output of the model with the type and shape of another operand.
pub fn add_output_like(main: &mut Subgraph, index: i32) -> i32 {
    let operand =
        Operand { lifetime: OperandLifeTime::SUBGRAPH_OUTPUT, ..main.operands[index as usize].clone() };
    let output = add(main, operand);
    main.outputIndexes.push(output);
    output
}

/// Appends a temporary with the type and shape of another operand.
pub fn add_temporary_like(main: &mut Subgraph, index: i32) -> i32 {
    let operand =
        Operand { lifetime: OperandLifeTime::TEMPORARY_VARIABLE, ..main.operands[index as usize].clone() };
    add(main, operand)
}
