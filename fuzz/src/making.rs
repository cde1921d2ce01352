//! Models made in code: what targets prepare, and what fuzzing begins with.

use crate::{file, FILE};
use nnhal::aidl::{
    Ashmem, DataLocation, ExtensionNameAndPrefix, Memory, Model, Operand, OperandExtraParams,
    OperandLifeTime, OperandType, Operation, OperationType, Request, RequestArgument, RequestMemoryPool,
    Subgraph, SymmPerChannelQuantParams,
};
use nnhal::ops::signature::Ty;

/// A subgraph in the making. Its constants go into the operand values, which all subgraphs of a model share.
pub struct Graph<'v> {
    pub graph: Subgraph,
    values: &'v mut Vec<u8>,
}

impl<'v> Graph<'v> {
    pub fn new(values: &'v mut Vec<u8>) -> Self {
        Graph { graph: Subgraph::default(), values }
    }

    pub fn operand(&mut self, ty: OperandType, dims: &[i32], lifetime: OperandLifeTime) -> i32 {
        let quantised = [OperandType::TENSOR_QUANT8_ASYMM, OperandType::TENSOR_QUANT8_ASYMM_SIGNED];
        let symmetric = [OperandType::TENSOR_QUANT8_SYMM, OperandType::TENSOR_QUANT16_SYMM];
        let scale = if [&quantised[..], &symmetric[..], &[OperandType::TENSOR_QUANT16_ASYMM]]
            .concat()
            .contains(&ty)
        {
            0.5
        } else {
            0.0
        };
        let index = self.graph.operands.len() as i32;
        self.graph.operands.push(Operand {
            r#type: ty,
            dimensions: dims.to_vec(),
            lifetime,
            scale,
            ..Default::default()
        });
        match lifetime {
            OperandLifeTime::SUBGRAPH_INPUT => self.graph.inputIndexes.push(index),
            OperandLifeTime::SUBGRAPH_OUTPUT => self.graph.outputIndexes.push(index),
            _ => {}
        }
        index
    }

    pub fn input(&mut self, ty: OperandType, dims: &[i32]) -> i32 {
        self.operand(ty, dims, OperandLifeTime::SUBGRAPH_INPUT)
    }

    pub fn output(&mut self, ty: OperandType, dims: &[i32]) -> i32 {
        self.operand(ty, dims, OperandLifeTime::SUBGRAPH_OUTPUT)
    }

    pub fn temporary(&mut self, ty: OperandType, dims: &[i32]) -> i32 {
        self.operand(ty, dims, OperandLifeTime::TEMPORARY_VARIABLE)
    }

    pub fn constant(&mut self, ty: OperandType, dims: &[i32], bytes: &[u8]) -> i32 {
        let index = self.operand(ty, dims, OperandLifeTime::CONSTANT_COPY);
        self.values.resize(self.values.len().next_multiple_of(4), 0);
        let (offset, length) = (self.values.len() as i64, bytes.len() as i64);
        self.graph.operands[index as usize].location = DataLocation { offset, length, ..Default::default() };
        self.values.extend(bytes);
        index
    }

    /// A constant in a pool of the model's, of which nobody has made any yet.
    pub fn pooled(&mut self, ty: OperandType, dims: &[i32], length: i64) -> i32 {
        let index = self.operand(ty, dims, OperandLifeTime::CONSTANT_POOL);
        self.graph.operands[index as usize].location = DataLocation { length, ..Default::default() };
        index
    }

    pub fn int(&mut self, value: i32) -> i32 {
        self.constant(OperandType::INT32, &[], &value.to_le_bytes())
    }

    pub fn subgraph(&mut self, index: i64) -> i32 {
        let operand = self.operand(OperandType::SUBGRAPH, &[], OperandLifeTime::SUBGRAPH);
        self.graph.operands[operand as usize].location.offset = index;
        operand
    }

    pub fn operation(&mut self, ty: OperationType, inputs: &[i32], outputs: &[i32]) {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.graph.operations.push(Operation { r#type: ty, inputs, outputs });
    }
}

const FLOATS: OperandType = OperandType::TENSOR_FLOAT32;

fn of_one_graph(make: impl FnOnce(&mut Graph)) -> Model {
    let mut values = Vec::new();
    let mut graph = Graph::new(&mut values);
    make(&mut graph);
    let main = graph.graph;
    Model { main, operandValues: values, ..Default::default() }
}

fn add(a: &[i32], b: &[i32], sum: &[i32]) -> Model {
    of_one_graph(|graph| {
        let (a, b) = (graph.input(FLOATS, a), graph.input(FLOATS, b));
        let (none, sum) = (graph.int(0), graph.output(FLOATS, sum));
        graph.operation(OperationType::ADD, &[a, b, none], &[sum]);
    })
}

/// A body that keeps its first argument as it is and counts the second up, and a condition on the count.
fn loops() -> Model {
    let mut values = Vec::new();
    let ints = OperandType::TENSOR_INT32;
    let mut condition = Graph::new(&mut values);
    let (_, count) = (condition.input(FLOATS, &[2]), condition.input(ints, &[1]));
    let limit = condition.constant(ints, &[1], &3i32.to_le_bytes());
    let verdict = condition.output(OperandType::TENSOR_BOOL8, &[1]);
    condition.operation(OperationType::LESS, &[count, limit], &[verdict]);
    let condition = condition.graph;
    let mut body = Graph::new(&mut values);
    let (x, count) = (body.input(FLOATS, &[2]), body.input(ints, &[1]));
    let (one, none) = (body.constant(ints, &[1], &1i32.to_le_bytes()), body.int(0));
    let (floored, next) = (body.output(FLOATS, &[2]), body.output(ints, &[1]));
    body.operation(OperationType::FLOOR, &[x], &[floored]);
    body.operation(OperationType::ADD, &[count, one, none], &[next]);
    let body = body.graph;
    let mut main = Graph::new(&mut values);
    let (x, count) = (main.input(FLOATS, &[2]), main.input(ints, &[1]));
    let (condition_operand, body_operand) = (main.subgraph(0), main.subgraph(1));
    let output = main.output(FLOATS, &[2]);
    main.operation(OperationType::WHILE, &[condition_operand, body_operand, x, count], &[output]);
    let main = main.graph;
    Model { main, referenced: vec![condition, body], operandValues: values, ..Default::default() }
}

fn branches() -> Model {
    let mut values = Vec::new();
    let referenced = [OperationType::FLOOR, OperationType::RELU].map(|ty| {
        let mut branch = Graph::new(&mut values);
        let (x, y) = (branch.input(FLOATS, &[2]), branch.output(FLOATS, &[2]));
        branch.operation(ty, &[x], &[y]);
        branch.graph
    });
    let mut main = Graph::new(&mut values);
    let (verdict, x) = (main.input(OperandType::TENSOR_BOOL8, &[1]), main.input(FLOATS, &[2]));
    let (first, second, output) = (main.subgraph(0), main.subgraph(1), main.output(FLOATS, &[2]));
    main.operation(OperationType::IF, &[verdict, first, second, x], &[output]);
    let main = main.graph;
    Model { main, referenced: referenced.to_vec(), operandValues: values, ..Default::default() }
}

/// A fully connected layer with an activation, then a shape and a sum.
fn chain() -> Model {
    of_one_graph(|graph| {
        let x = graph.input(FLOATS, &[2, 3]);
        let floats = |count: usize| vec![0x3f; 4 * count];
        let (weights, bias) =
            (graph.constant(FLOATS, &[4, 3], &floats(12)), graph.constant(FLOATS, &[4], &floats(4)));
        let (relu, sums) = (graph.int(1), graph.temporary(FLOATS, &[2, 4]));
        graph.operation(OperationType::FULLY_CONNECTED, &[x, weights, bias, relu], &[sums]);
        let shape = graph.constant(OperandType::TENSOR_INT32, &[1], &8i32.to_le_bytes());
        let reshaped = graph.temporary(FLOATS, &[8]);
        graph.operation(OperationType::RESHAPE, &[sums, shape], &[reshaped]);
        let (more, none, output) = (graph.input(FLOATS, &[8]), graph.int(0), graph.output(FLOATS, &[8]));
        graph.operation(OperationType::ADD, &[reshaped, more, none], &[output]);
    })
}

/// Models that the backend takes.
pub fn small_models() -> Vec<(&'static str, Model)> {
    let axis = of_one_graph(|graph| {
        let (x, axis) = (graph.input(FLOATS, &[2]), graph.input(OperandType::INT32, &[]));
        let output = graph.output(FLOATS, &[0, 0]);
        graph.operation(OperationType::EXPAND_DIMS, &[x, axis], &[output]);
    });
    vec![
        ("add", add(&[2, 3], &[3], &[2, 3])),
        ("unknown", add(&[0, 3], &[], &[])),
        ("axis", axis),
        ("chain", chain()),
        ("loops", loops()),
        ("branches", branches()),
    ]
}

/// The extension that the target of models knows, under prefix 1.
pub const EXTENSION: &str = "vendor.fuzz";

/// Models that show what else the interface has, and models that are wrong.
pub fn odd_models() -> Vec<(&'static str, Model)> {
    let pooled = of_one_graph(|graph| {
        let (x, large) = (graph.input(FLOATS, &[512]), graph.pooled(FLOATS, &[512], 2048));
        let (none, output) = (graph.int(0), graph.output(FLOATS, &[512]));
        graph.operation(OperationType::ADD, &[x, large, none], &[output]);
    });
    let mut extension = of_one_graph(|graph| {
        let (x, y) = (graph.input(OperandType(0x1_0000), &[2]), graph.input(OperandType(0x1_0003), &[]));
        let (z, output) =
            (graph.input(OperandType(0x1_0009), &[2]), graph.output(OperandType(0x1_0002), &[2]));
        graph.graph.operands[0].extraParams = Some(OperandExtraParams::Extension(vec![1, 2, 3]));
        graph.operation(OperationType(0x1_0007), &[x, y, z], &[output]);
    });
    let name = |name: &str, prefix| ExtensionNameAndPrefix { name: name.into(), prefix };
    extension.extensionNameToPrefix = vec![name(EXTENSION, 1), name("vendor.other", 2)];
    let per_channel = of_one_graph(|graph| {
        let quantised = OperandType::TENSOR_QUANT8_ASYMM;
        let x = graph.input(quantised, &[1, 3, 3, 2]);
        let weights = graph.constant(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 2, 2, 2], &[1; 16]);
        let scales = SymmPerChannelQuantParams { scales: vec![0.5, 0.25], channelDim: 0 };
        graph.graph.operands[weights as usize].extraParams = Some(OperandExtraParams::ChannelQuant(scales));
        let bias = graph.constant(OperandType::TENSOR_INT32, &[2], &[0; 8]);
        let numbers = [2, 1, 1, 0].map(|value| graph.int(value));
        let output = graph.output(quantised, &[1, 2, 2, 2]);
        let inputs = [&[x, weights, bias][..], &numbers].concat();
        graph.operation(OperationType::CONV_2D, &inputs, &[output]);
    });
    let omitted = of_one_graph(|graph| {
        let x = graph.input(FLOATS, &[1, 2]);
        let weights = graph.constant(FLOATS, &[2, 2], &[0; 16]);
        let bias = graph.operand(FLOATS, &[2], OperandLifeTime::NO_VALUE);
        let (none, output) = (graph.int(0), graph.output(FLOATS, &[1, 2]));
        graph.operation(OperationType::FULLY_CONNECTED, &[x, weights, bias, none], &[output]);
    });
    let mut circle = branches();
    circle.referenced[1] = circle.main.clone();
    vec![
        ("pooled", pooled),
        ("extension", extension),
        ("per_channel", per_channel),
        ("omitted", omitted),
        ("circle", circle),
        ("nested", nested(31)),
        ("too_deep", nested(40)),
    ]
}

/// A tower of IFs.
fn nested(depth: i64) -> Model {
    let mut model = branches();
    let tower = model.main.clone();
    for i in 0..depth {
        let mut next = tower.clone();
        next.operands
            .iter_mut()
            .filter(|o| o.lifetime == OperandLifeTime::SUBGRAPH)
            .for_each(|o| o.location.offset += i);
        model.referenced.push(next);
    }
    model.main.operands.iter_mut().filter(|o| o.lifetime == OperandLifeTime::SUBGRAPH).for_each(|o| {
        o.location.offset += depth;
    });
    model
}

/// For each operation a model of one call, guessed from its signature: some are right, the others nearly.
pub fn operation_models() -> Vec<(String, Model)> {
    let all = nnhal::ops::OperationType::ALL.iter().filter_map(|ty| Some((*ty, ty.operation()?)));
    all.flat_map(|(ty, operation)| {
        let calls = operation.signatures.iter().enumerate();
        calls.map(move |(i, signature)| {
            let row = signature.rows.first();
            let operand_type = |ty: &Ty| match ty {
                Ty::Var(column) => {
                    row.map_or(nnhal::tensor::OperandType::TENSOR_FLOAT32, |row| row.1[*column])
                }
                Ty::Is(ty) => *ty,
                Ty::Any(types) => types[0],
            };
            let model = of_one_graph(|graph| {
                let mut of = |slot: &nnhal::ops::signature::Slot, is_input: bool| {
                    let ty = operand_type(&slot.ty);
                    let dims = [1, 2, 2, 2, 1, 1, 1, 1];
                    let rank =
                        if ty.is_scalar() { 0 } else { usize::from(slot.rank.0.max(1)).min(dims.len()) };
                    match (is_input, ty.is_scalar()) {
                        (false, _) => graph.output(OperandType(ty.code()), &[]),
                        (true, true) => {
                            let one = [1, 0, 0, 0];
                            graph.constant(
                                OperandType(ty.code()),
                                &[],
                                &one[..ty.element_size().unwrap_or(4).min(4)],
                            )
                        }
                        (true, false) => graph.input(OperandType(ty.code()), &dims[..rank]),
                    }
                };
                let inputs: Vec<i32> = signature.inputs.iter().map(|slot| of(slot, true)).collect();
                let outputs: Vec<i32> = signature.outputs.iter().map(|slot| of(slot, false)).collect();
                graph.operation(OperationType(ty.code()), &inputs, &outputs);
            });
            (format!("{ty}-{i}"), model)
        })
    })
    .collect()
}

/// A request for the first of the small models, over two pools of shared memory.
pub fn request() -> Request {
    let argument = |pool, length| RequestArgument {
        location: DataLocation { poolIndex: pool, length, ..Default::default() },
        ..Default::default()
    };
    let mut second = argument(0, 12);
    second.location.offset = 64;
    let pool = |kind| RequestMemoryPool::Pool(Memory::Ashmem(Ashmem { fd: Some(file(kind)), size: FILE }));
    let (inputs, outputs) = (vec![argument(0, 24), second], vec![argument(1, 24)]);
    Request { inputs, outputs, pools: vec![pool(0), pool(1)] }
}
