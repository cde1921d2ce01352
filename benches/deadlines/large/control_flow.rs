//! Models of IF and WHILE: the values that they hand over are large, or what they run is, or they run it very often.

use super::operand::{constant, kind};
use super::{Large, Size};
use nnhal::model::{Lifetime, Model, Operand, Operation, Subgraph};
use nnhal::ops::OperationType;
use nnhal::tensor::{OperandType, TensorInfo};
use OperandType::*;
use OperationType::*;

/// How many tensors are handed over where copies are what takes long.
const MANY: u32 = 8;

/// What takes long.
#[derive(Clone, Copy, Debug)]
enum Long {
    /// A branch computes.
    Branch,
    /// A branch takes and gives many large values, and does little with them.
    BranchCopies,
    /// A body computes: a few times.
    Body,
    /// A condition computes: a few times.
    Condition,
    /// A loop has many large values, and does little with them.
    LoopCopies,
    /// A loop has one element, and goes round very often.
    Rounds,
}
use Long::*;

/// A call of IF or WHILE, with values of this type.
#[derive(Clone, Copy)]
pub struct Flow(Long, OperandType);

impl Flow {
    pub fn all(ty: OperationType) -> impl Iterator<Item = Flow> {
        let all: &[Long] = match ty {
            IF => &[Branch, BranchCopies],
            _ => &[Body, Condition, LoopCopies, Rounds],
        };
        let types = [TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM];
        types.into_iter().flat_map(|ty| all.iter().map(move |&long| Flow(long, ty)))
    }

    pub fn large(self, size: Size) -> Result<Large, String> {
        let Flow(long, ty) = self;
        let whole = Size { times: 1, ..size };
        let (size, values, rounds) = match long {
            Branch => (size, 1, 0),
            BranchCopies => (size, MANY, 0),
            Body | Condition => (whole, 1, size.times),
            LoopCopies => (size, MANY, 4),
            Rounds => (whole, 1, size.times << 16),
        };
        let image = size.image(false);
        let dims = match long {
            Rounds => vec![1],
            _ => vec![image[0].div_ceil(values), image[1], image[2], image[3]],
        };
        // Softmax gives what it takes: floats, or bytes of this scale.
        let scale = if ty == TENSOR_FLOAT32 { 0.0 } else { 1.0 / 256.0 };
        let value = TensorInfo { scale, ..TensorInfo::new(ty, &dims) };
        let values = vec![value; values as usize];
        let name = format!("{} {dims:?}, {long:?}", ty.name());
        match long {
            Branch | BranchCopies => branches(&format!("IF: {name}"), &values, matches!(long, Branch)),
            _ => looped(&format!("WHILE: {name} {rounds} times"), &values, long, rounds),
        }
    }
}

/// IF with both branches alike.
fn branches(name: &str, values: &[TensorInfo], computes: bool) -> Result<Large, String> {
    let mut branch = Build::new();
    let inputs = branch.inputs(values);
    let outputs = branch.each(&inputs, computes)?;
    let mut main = Build::new();
    let condition = main.inputs(&[bool()]);
    let given = main.inputs(values);
    let subgraph = main.subgraph(0);
    let outputs_of_if = main.call(IF, &[condition, vec![subgraph; 2], given].concat(), values)?;
    Ok(large(name, main.finish(&outputs_of_if), vec![branch.finish(&outputs)]))
}

/// WHILE with a number beside the values that counts the rounds.
fn looped(name: &str, values: &[TensorInfo], long: Long, rounds: u32) -> Result<Large, String> {
    let state = [&[count()], values].concat();
    let mut condition = Build::new();
    let inputs = condition.inputs(&state);
    let most = condition.ints(count(), &[rounds as i32]);
    let mut verdict = condition.call(LESS, &[inputs[0], most], &[bool()])?;
    if matches!(long, Condition) {
        // Whatever comes of it is at least what there is to compare it with.
        let made = condition.each(&inputs[1..], true)?;
        let axes = condition.ints(TensorInfo::new(TENSOR_INT32, &[4]), &[0, 1, 2, 3]);
        let keeps = condition.scalar(BOOL, &[0]);
        let one = TensorInfo { dims: [1].as_slice().into(), ..values[0].clone() };
        let most = condition.call(REDUCE_MAX, &[made[0], axes, keeps], std::slice::from_ref(&one))?;
        let least = condition.constant(one.clone(), &vec![0; one.byte_size().expect("a size")]);
        let holds = condition.call(GREATER_EQUAL, &[most[0], least], &[bool()])?;
        verdict = condition.call(LOGICAL_AND, &[verdict[0], holds[0]], &[bool()])?;
    }
    let mut body = Build::new();
    let inputs = body.inputs(&state);
    let one = body.ints(count(), &[1]);
    let none = body.scalar(INT32, &0i32.to_le_bytes());
    let next = body.call(ADD, &[inputs[0], one, none], &[count()])?;
    let outputs = [next, body.each(&inputs[1..], matches!(long, Body))?].concat();
    let mut main = Build::new();
    let subgraphs = [main.subgraph(0), main.subgraph(1)];
    let start = main.ints(count(), &[0]);
    let given = main.inputs(values);
    let ended = main.call(WHILE, &[&subgraphs[..], &[start], &given].concat(), &state)?;
    let referenced = vec![condition.finish(&verdict), body.finish(&outputs)];
    Ok(large(name, main.finish(&ended[1..]), referenced))
}

fn large(name: &str, main: Subgraph, referenced: Vec<Subgraph>) -> Large {
    let size = |&v: &usize| main.operands[v].info.byte_size().expect("a size");
    let outputs = main.outputs.iter().map(size).collect();
    Large { name: name.into(), model: Model { main, referenced, relaxed: false }, boxes: vec![], outputs }
}

fn bool() -> TensorInfo {
    TensorInfo::new(TENSOR_BOOL8, &[1])
}

fn count() -> TensorInfo {
    TensorInfo::new(TENSOR_INT32, &[1])
}

/// A subgraph under construction.
struct Build(Subgraph);

impl Build {
    fn new() -> Self {
        Build(Subgraph { operands: vec![], operations: vec![], inputs: vec![], outputs: vec![] })
    }

    fn operand(&mut self, info: TensorInfo, lifetime: Lifetime) -> usize {
        self.0.operands.push(Operand { info, lifetime, extension: None });
        self.0.operands.len() - 1
    }

    fn inputs(&mut self, infos: &[TensorInfo]) -> Vec<usize> {
        let inputs: Vec<_> = infos.iter().map(|info| self.operand(info.clone(), Lifetime::Input)).collect();
        self.0.inputs.extend(&inputs);
        inputs
    }

    fn constant(&mut self, info: TensorInfo, bytes: &[u8]) -> usize {
        self.operand(info, constant(bytes))
    }

    fn scalar(&mut self, ty: OperandType, bytes: &[u8]) -> usize {
        self.constant(TensorInfo::new(ty, &[]), bytes)
    }

    fn ints(&mut self, info: TensorInfo, ints: &[i32]) -> usize {
        self.constant(info, bytemuck::cast_slice(ints))
    }

    fn subgraph(&mut self, index: usize) -> usize {
        self.operand(TensorInfo::new(SUBGRAPH, &[]), Lifetime::Subgraph(index))
    }

    /// A call with outputs of these types.
    fn call(
        &mut self,
        ty: OperationType,
        inputs: &[usize],
        infos: &[TensorInfo],
    ) -> Result<Vec<usize>, String> {
        let given: Vec<_> = inputs.iter().map(|&v| self.0.operands[v].clone()).collect();
        let kind = kind(ty, &given, infos).map_err(|why| format!("{ty}: {why}"))?;
        let output = |info: &TensorInfo| self.operand(info.clone(), Lifetime::Temporary);
        let outputs: Vec<_> = infos.iter().map(output).collect();
        self.0.operations.push(Operation { kind, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// The softmax of each of some values, or the same values once more.
    fn each(&mut self, values: &[usize], computes: bool) -> Result<Vec<usize>, String> {
        let beta = self.scalar(FLOAT32, &1f32.to_le_bytes());
        let mut each = Vec::new();
        for &v in values {
            let info = [self.0.operands[v].info.clone()];
            each.extend(match computes {
                true => self.call(SOFTMAX, &[v, beta], &info)?,
                false => self.call(RELU, &[v], &info)?,
            });
        }
        Ok(each)
    }

    fn finish(mut self, outputs: &[usize]) -> Subgraph {
        outputs.iter().for_each(|&v| self.0.operands[v].lifetime = Lifetime::Output);
        self.0.outputs = outputs.to_vec();
        self.0
    }
}
