//! Loops and branches of graphs made here.

use super::graph::{Graph, Operator, Tensor, TensorType};
use super::import_graph;
use super::loops::unrolled;
use super::schema::{self, Options};
use super::tests::operations;
use crate::ops::OperationType;
use std::borrow::Cow;

fn tensor(ty: TensorType, dims: &[u32]) -> Tensor<'static> {
    Tensor { name: "t", dims: dims.to_vec(), ..Tensor::of(ty) }
}

fn ints(dims: &[u32], values: &[i32]) -> Tensor<'static> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { data: Some(Cow::Owned(data)), ..tensor(TensorType::Int32, dims) }
}

fn floats(dims: &[u32]) -> Tensor<'static> {
    tensor(TensorType::Float32, dims)
}

fn zeros(dims: &[u32]) -> Tensor<'static> {
    let count = dims.iter().product::<u32>() as usize;
    Tensor { data: Some(Cow::Owned(vec![0; 4 * count])), ..floats(dims) }
}

fn operator(name: &str, inputs: &[usize], outputs: &[usize], options: Option<Options>) -> Operator {
    let inputs = inputs.iter().copied().map(Some).collect();
    Operator { name: name.into(), inputs, outputs: outputs.to_vec(), options, custom: vec![] }
}

fn adds(from: usize, other: usize, to: usize) -> Operator {
    operator("ADD", &[from, other], &[to], Some(Options::Add(Box::default())))
}

fn loops(condition_graph: i32, body_graph: i32) -> Option<Options> {
    Some(Options::While(Box::new(schema::WhileOptions { condition_graph, body_graph })))
}

/// A graph of the tensors that its operators want, the inputs first.
fn graph(
    tensors: Vec<Tensor<'static>>,
    inputs: usize,
    operators: Vec<Operator>,
    outputs: &[usize],
) -> Graph<'static> {
    Graph { tensors, operators, inputs: (0..inputs).collect(), outputs: outputs.to_vec(), states: vec![] }
}

/// Runs a recurrent layer of three units over `rounds` rows of `[rounds, 1, 2]`, and gives the list of its results.
fn layer(rounds: u32) -> Vec<Graph<'static>> {
    let list = |width: u32| floats(&[rounds, 1, width]);
    let main = graph(
        vec![list(2), ints(&[], &[0]), zeros(&[rounds, 1, 3]), zeros(&[1, 3])]
            .into_iter()
            .chain([tensor(TensorType::Int32, &[]), list(3), floats(&[1, 3]), list(2)])
            .collect(),
        1,
        vec![operator("WHILE", &[1, 2, 3, 0], &[4, 5, 6, 7], loops(1, 2))],
        &[5],
    );
    let values = || vec![tensor(TensorType::Int32, &[]), list(3), floats(&[1, 3]), list(2)];
    let condition = graph(
        [values(), vec![ints(&[], &[rounds as i32]), tensor(TensorType::Bool, &[])]].concat(),
        4,
        vec![operator("LESS", &[0, 4], &[5], None)],
        &[5],
    );
    let open = floats(&[1, 1, 3]); // of as many rows as only a run knows
    let fully = || Some(Options::FullyConnected(Box::default()));
    let own = vec![
        ints(&[], &[1]),                 // 4
        tensor(TensorType::Int32, &[]),  // 5: the next round
        floats(&[1, 2]),                 // 6: the row
        zeros(&[3, 2]),                  // 7
        zeros(&[3, 3]),                  // 8
        floats(&[1, 3]),                 // 9
        floats(&[1, 3]),                 // 10
        floats(&[1, 3]),                 // 11: their sum
        ints(&[1], &[1]),                // 12
        tensor(TensorType::Int32, &[1]), // 13: this round as a list
        ints(&[2], &[-1, -1]),           // 14
        tensor(TensorType::Int32, &[3]), // 15
        ints(&[3], &[0, 0, 0]),          // 16
        open.clone(),                    // 17: the rows before
        tensor(TensorType::Int32, &[1]), // 18
        ints(&[2], &[0, 0]),             // 19
        tensor(TensorType::Int32, &[3]), // 20
        ints(&[3], &[-1, -1, -1]),       // 21
        open,                            // 22: the rows behind
        floats(&[1, 1, 3]),              // 23
        list(3),                         // 24
        ints(&[3], &[1, 1, 3]),          // 25
    ];
    let joined = || Some(Options::Concatenation(Box::default()));
    let body = graph(
        [values(), own].concat(),
        4,
        vec![
            adds(0, 4, 5),
            operator("GATHER", &[3, 0], &[6], Some(Options::Gather(Box::default()))),
            operator("FULLY_CONNECTED", &[6, 7], &[9], fully()),
            operator("FULLY_CONNECTED", &[2, 8], &[10], fully()),
            adds(9, 10, 11),
            operator("RESHAPE", &[0, 12], &[13], None),
            operator("CONCATENATION", &[13, 14], &[15], joined()),
            operator("SLICE", &[1, 16, 15], &[17], None),
            operator("RESHAPE", &[5, 12], &[18], None),
            operator("CONCATENATION", &[18, 19], &[20], joined()),
            operator("SLICE", &[1, 20, 21], &[22], None),
            operator("RESHAPE", &[11, 25], &[23], None),
            operator("CONCATENATION", &[17, 23, 22], &[24], joined()),
        ],
        &[5, 24, 11, 3],
    );
    vec![main, condition, body]
}

#[test]
fn a_recurrent_layer_is_unrolled() {
    const ROUNDS: u32 = 5;
    let graph = unrolled(layer(ROUNDS)).unwrap();
    let imported = import_graph(&graph).unwrap();
    assert_eq!(imported.outputs[0].dims, [ROUNDS, 1, 3]);
    let operations = operations(&imported);
    let count = |ty| operations.iter().filter(|&&found| found == ty).count();
    // All rows by the input's weights at once, and the state by the others in each round.
    assert_eq!(count(OperationType::FULLY_CONNECTED), 1 + ROUNDS as usize);
    assert_eq!(count(OperationType::ADD), ROUNDS as usize);
    assert_eq!(count(OperationType::CONCATENATION), 1, "the list is put together once");
    assert_eq!(count(OperationType::GATHER), 0);
    assert_eq!(count(OperationType::SLICE), ROUNDS as usize, "a row of the product for each round");
}

#[test]
fn a_loop_that_does_not_run_leaves_its_values() {
    let mut graphs = layer(3);
    graphs[1].tensors[4] = ints(&[], &[0]);
    let graph = unrolled(graphs).unwrap();
    assert!(graph.operators.is_empty());
    assert_eq!(operations(&import_graph(&graph).unwrap()), [OperationType::RESHAPE]);
}

#[test]
fn a_list_of_many_rounds_is_put_together_by_operators_that_are_mapped() {
    const ROUNDS: u32 = 2500;
    let graph = unrolled(layer(ROUNDS)).unwrap();
    let joined = graph.operators.iter().filter(|operator| operator.name == "CONCATENATION");
    assert_eq!(joined.map(|operator| operator.inputs.len()).collect::<Vec<_>>(), [1024, 1024, 452, 3]);
    let last = graph.operators.last().unwrap();
    let dims: Vec<u32> = last.inputs.iter().flatten().map(|&i| graph.tensors[i].dims[0]).collect();
    assert_eq!(
        (dims, &graph.tensors[last.outputs[0]].dims[..]),
        (vec![1024, 1024, 452], &[ROUNDS, 1, 3][..])
    );
}

fn refusal(graphs: Vec<Graph>) -> String {
    unrolled(graphs).err().expect("it is refused").to_string()
}

#[test]
fn loops_without_a_known_end_are_refused() {
    let mut unknown = layer(3);
    unknown[0].inputs.push(1);
    unknown[0].tensors[1].data = None;
    let why = refusal(unknown);
    assert!(why.contains("operator 0 (WHILE)") && why.contains("only known when it runs"), "{why}");
    let mut endless = layer(3);
    endless[2].outputs[0] = 0;
    assert!(refusal(endless).contains("over 200000 operators"));
    // Neither graph has an operator.
    let bare = |outputs: &[usize]| {
        let truth = Tensor { data: Some(Cow::Owned(vec![1])), ..tensor(TensorType::Bool, &[]) };
        graph(vec![floats(&[1]), truth], 1, vec![], outputs)
    };
    let main =
        graph(vec![floats(&[1]), floats(&[1])], 1, vec![operator("WHILE", &[0], &[1], loops(1, 2))], &[1]);
    assert!(refusal(vec![main.clone(), bare(&[1]), bare(&[0])]).contains("does not end soon"));
    // A file of some megabytes may list one tensor so often: a few rounds are too many then.
    let mut wide = bare(&[1]);
    wide.tensors.resize(1_000_000, floats(&[1]));
    assert!(refusal(vec![main, wide, bare(&[0])]).contains("too many tensors"));
}

#[test]
fn graphs_that_do_not_fit_are_refused() {
    for (condition, body) in [(1, 3), (-1, 2), (0, 2), (1, 0), (i32::MAX, 2)] {
        let mut graphs = layer(3);
        graphs[0].operators[0].options = loops(condition, body);
        assert!(refusal(graphs).contains("does not exist"), "{condition}, {body}");
    }
    let mut fewer = layer(3);
    fewer[2].inputs.pop();
    assert!(refusal(fewer).contains("another number of inputs"));
    let mut fewer = layer(3);
    fewer[2].outputs.pop();
    assert!(refusal(fewer).contains("another number of"));
    let mut unwritten = layer(3);
    unwritten[2].operators.remove(1);
    assert!(refusal(unwritten).contains("is read before any operator writes it"));
    // A body that runs the loop which it is the body of.
    let mut circle = layer(3);
    let own = circle[0].operators[0].clone();
    circle[2].operators.insert(
        0,
        Operator { inputs: vec![Some(0), Some(1), Some(2), Some(3)], outputs: vec![5, 24, 11, 6], ..own },
    );
    assert!(refusal(circle).contains("loops lie in each other"));
    let mut no_rows = layer(3);
    no_rows[2].operators[12].inputs = vec![Some(17)];
    assert!(refusal(no_rows).contains("has no elements"));
}

#[test]
fn gathered_rows_are_put_together_as_they_are() {
    let gather = |place, to| operator("GATHER", &[0, place], &[to], Some(Options::Gather(Box::default())));
    let joined = Some(Options::Concatenation(Box::default()));
    let tensors =
        vec![floats(&[4, 3, 2]), ints(&[], &[2]), ints(&[], &[1]), floats(&[3, 2]), floats(&[3, 2])];
    let main = graph(
        [tensors, vec![floats(&[6, 2])]].concat(),
        1,
        vec![gather(1, 3), gather(2, 4), operator("CONCATENATION", &[3, 4], &[5], joined)],
        &[5],
    );
    // Only a file of several graphs is gone through.
    let graph = unrolled(vec![main, graph(vec![], 0, vec![], &[])]).unwrap();
    let imported = import_graph(&graph).unwrap();
    assert_eq!(imported.outputs[0].dims, [6, 2]);
    let operations = operations(&imported);
    assert_eq!(operations.iter().filter(|&&ty| ty == OperationType::SLICE).count(), 2);
}

#[test]
fn a_branch_is_taken_by_a_constant() {
    for (taken, expected) in [(1, OperationType::ADD), (0, OperationType::MUL)] {
        let truth = Tensor { data: Some(Cow::Owned(vec![taken])), ..tensor(TensorType::Bool, &[]) };
        let options = schema::IfOptions { then_graph: 1, else_graph: 2 };
        let main = graph(
            vec![floats(&[4]), truth, floats(&[4])],
            1,
            vec![operator("IF", &[1, 0], &[2], Some(Options::If(Box::new(options))))],
            &[2],
        );
        let side = |operator| graph(vec![floats(&[4]), floats(&[4])], 1, vec![operator], &[1]);
        let product = operator("MUL", &[0, 0], &[1], Some(Options::Mul(Box::default())));
        let graph = unrolled(vec![main, side(adds(0, 0, 1)), side(product)]).unwrap();
        assert_eq!(operations(&import_graph(&graph).unwrap()), [expected]);
    }
}
