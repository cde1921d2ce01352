//! The backend's own form of a subgraph: what steers is private, operations are ready to be rewritten by passes.

use super::constant::Constant;
use super::routine::{is_data, STEPS};
use crate::backend::BackendError;
use crate::memory::Counted;
use crate::model::{self, Lifetime, OperationKind};
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, Operation};
use crate::tensor::{Dims, TensorInfo, ALLOCATION};

/// A subgraph under compilation. Values keep the model's operand indices.
pub struct Graph {
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// For [dimensions that were inferred](Graph::count_dims).
    pub inferred: Option<Counted>,
}

/// How often dimensions of a value are described beside the model: for the value itself, and for the step that makes it.
const DESCRIPTIONS: usize = 2;

pub struct Value {
    /// As the model declares it; unknown dimensions are 0.
    pub declared: TensorInfo,
    /// With the dimensions it will have, where they are known before a run. A 0 in them is a zero-sized dimension.
    pub resolved: Option<TensorInfo>,
    /// Mere data may be the client's still, or not yet made.
    pub constant: Option<Constant>,
}

impl Value {
    /// Takes a copy of a constant that is the client's still, and makes one that is not made yet.
    pub fn make_private(&mut self, interrupt: &dyn Interrupt) -> Result<(), BackendError> {
        if let Some(constant @ (Constant::Client(_) | Constant::Widened(_))) = &mut self.constant {
            *constant = Constant::Private(constant.private(interrupt)?);
        }
        Ok(())
    }

    /// A constant's bytes, if they are private.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.constant.as_ref()?.bytes().map(|bytes| &bytes[..])
    }

    /// Settles the value's dimensions, if they agree with what the model declares.
    pub fn resolve(&mut self, dims: &[u32]) -> Result<(), String> {
        check_dims(&self.declared, dims)?;
        self.resolved = Some(TensorInfo { dims: Dims::from_slice(dims), ..self.declared.clone() });
        Ok(())
    }
}

/// Checks dimensions that were computed against those the model declares, as far as it does.
pub fn check_dims(declared: &TensorInfo, dims: &[u32]) -> Result<(), String> {
    let same = declared.dims.is_empty() && declared.ty.is_tensor()
        || declared.dims.len() == dims.len()
            && declared.dims.iter().zip(dims).all(|(&d, &real)| d == 0 || d == real);
    if same {
        return Ok(());
    }
    Err(format!("the result has dimensions {dims:?}, but the model declares {:?}", declared.dims))
}

pub struct Node {
    pub operation: &'static Operation,
    /// The signature that the call matches.
    pub signature_index: usize,
    /// Values; `None` for an input that the model omits.
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<usize>,
    /// Subgraphs of IF and WHILE, in the order of their inputs.
    pub subgraphs: Vec<usize>,
    /// Its index among the model's.
    pub index: usize,
}

impl Graph {
    /// Takes over `subgraph`, copying what may steer.
    pub fn new(subgraph: &model::Subgraph, pace: &mut Pace) -> Result<Graph, BackendError> {
        let mut values = Vec::with_capacity(subgraph.operands.len());
        for (i, operand) in subgraph.operands.iter().enumerate() {
            pace.spend(STEPS)?;
            let constant = match &operand.lifetime {
                Lifetime::Constant(constant) => Some(Constant::from(constant.clone())),
                _ => None,
            };
            let steers = constant.as_ref().is_some_and(|constant| !is_data(&operand.info, constant.len()));
            let known = operand.info.is_fully_specified()
                && matches!(operand.lifetime, Lifetime::Input | Lifetime::Constant(_));
            let resolved = known.then(|| operand.info.clone());
            let mut value = Value { declared: operand.info.clone(), resolved, constant };
            if steers {
                value.make_private(pace.interrupt()).map_err(|why| why.at(format_args!("operand {i}")))?;
            }
            values.push(value);
        }
        let node = |(i, operation): (usize, &model::Operation)| {
            pace.spend(STEPS.saturating_add(operation.inputs.len()))?;
            node(i, operation, subgraph)
        };
        let nodes = subgraph.operations.iter().enumerate().map(node).collect::<Result<_, _>>()?;
        let (inputs, outputs) = (subgraph.inputs.clone(), subgraph.outputs.clone());
        Ok(Graph { values, nodes, inputs, outputs, inferred: None })
    }

    /// Takes memory for inferred dimensions on the client's account, before they are described. A model may leave the ranks of
    /// very many outputs open, and one small constant may give all of them: what the model itself takes says nothing of that.
    pub fn count_dims(&mut self, dims: &[Dims]) -> Result<(), BackendError> {
        let beside = dims.iter().filter(|dims| dims.len() > dims.inline_size());
        let bytes = beside.map(|dims| DESCRIPTIONS * (size_of_val(&dims[..]) + ALLOCATION)).sum();
        if bytes == 0 {
            return Ok(());
        }
        let taken = match &mut self.inferred {
            Some(counted) => counted.raise(bytes),
            none => Counted::take(bytes).map(|counted| *none = Some(counted)),
        };
        taken.ok_or(BackendError::OutOfMemory(bytes))
    }
}

fn node(
    index: usize,
    operation: &model::Operation,
    subgraph: &model::Subgraph,
) -> Result<Node, BackendError> {
    let (known, signature_index) = match &operation.kind {
        OperationKind::Known { operation, signature_index } => (*operation, *signature_index),
        kind => return Err(BackendError::Unsupported(format!("{kind:?}"))),
    };
    let lifetime = |&i: &usize| &subgraph.operands[i].lifetime;
    let value = |i: &usize| (!matches!(lifetime(i), Lifetime::NoValue)).then_some(*i);
    let target = |i: &usize| match lifetime(i) {
        Lifetime::Subgraph(target) => Some(*target),
        _ => None,
    };
    Ok(Node {
        operation: known,
        signature_index,
        inputs: operation.inputs.iter().map(value).collect(),
        outputs: operation.outputs.clone(),
        subgraphs: operation.inputs.iter().filter_map(target).collect(),
        index,
    })
}
