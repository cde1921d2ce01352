//! Models of several clients that have weights and constants in common.

use super::program::Program;
use super::samples::{compile, f32_info, floats, loaded, run, Build};
use crate::memory::{Budget, Weights};
use crate::model::Subgraph;
use crate::ops::{NeverInterrupted, OperationType};

const ROWS: u32 = 100;
const DEPTH: u32 = 400;
const COLUMNS: u32 = 500;

/// A layer whose weights are packed, and a sum with a constant that is not.
fn model(weights: &[f32]) -> Subgraph {
    let mut b = Build::new();
    let input = b.input(f32_info(&[ROWS, DEPTH]));
    let weights = b.clients(f32_info(&[COLUMNS, DEPTH]), weights);
    let bias = b.constant(f32_info(&[COLUMNS]), &floats(COLUMNS as usize, 2.0));
    let none = b.ints(&[0])[0];
    let sums = f32_info(&[ROWS, COLUMNS]);
    let out = b.call(OperationType::FULLY_CONNECTED, 0, &[input, weights, bias, none], sums.clone());
    let constant = b.clients(sums.clone(), &floats((ROWS * COLUMNS) as usize, 3.0));
    let out = b.call(OperationType::ADD, 0, &[out, constant, none], sums);
    b.finish(out)
}

/// Where its weights and constants lie.
fn places(program: &Program) -> Vec<*const u8> {
    let artifact = program.artifact(&NeverInterrupted).unwrap();
    let place = |weights: &Weights| weights.elements::<u8>(0, 0);
    artifact.data[0].iter().filter(|(_, part)| part.len() > 1 << 17).map(|(_, part)| place(part)).collect()
}

#[test]
fn models_of_several_clients_have_equal_weights_in_common_and_keep_them() {
    let weights = floats((DEPTH * COLUMNS) as usize, 1.0);
    let mut others = weights.clone();
    others[7] += 0.5;
    let of = |budget: &Budget, client, weights: &[f32]| {
        let _account = budget.on_account_of(client);
        compile(&model(weights), 2, None)
    };
    let alone = Budget::new(1 << 30);
    let [expected, unlike] = [&weights, &others].map(|weights| run(&of(&alone, 1, weights)));
    assert!(expected != unlike && places(&of(&alone, 1, &weights)) != places(&of(&alone, 2, &weights)));
    let budget = Budget::new(1 << 30).with_common();
    let held = |client| budget.private().held_by(client);
    let first = of(&budget, 1, &weights);
    let whole = held(1);
    let (second, third) = (of(&budget, 2, &weights), of(&budget, 3, &others));
    assert_eq!([held(1), held(2), held(3)], [whole; 3], "each has all of it on its account");
    let [of_first, of_second, of_third] = [&first, &second, &third].map(places);
    assert_eq!((of_first.len(), &of_first), (2, &of_second));
    // Constants come before what steps pack.
    assert!(of_third[0] == of_first[0] && of_third[1] != of_first[1]);
    assert!(run(&second) == expected && run(&third) == unlike);
    drop(first);
    let loaded = {
        let _account = budget.on_account_of(4);
        loaded(&second, 2)
    };
    assert!(run(&second) == expected && run(&third) == unlike && run(&loaded) == expected);
    assert_eq!((held(1), held(2)), (0, whole));
    let again = of(&budget, 1, &weights);
    assert!(places(&again) == of_second && held(1) == whole);
}
