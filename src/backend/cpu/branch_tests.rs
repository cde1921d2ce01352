//! Branches over values that are large.

use super::pool::ThreadPool;
use super::program::Program;
use super::samples::{f32_info, run, Build};
use crate::backend::{CompileOptions, Control};
use crate::memory::Budget;
use crate::model::{Lifetime, Model};
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use std::sync::Arc;

const ROWS: u32 = 256;
const COLUMNS: u32 = 16 << 10;
/// Of a large value.
const BYTES: u64 = 4 * (ROWS * COLUMNS) as u64;

/// The largest of each row of what one of two branches makes of a large value: its floors, as no input is greater than two.
fn model() -> Model {
    let wide = || f32_info(&[ROWS, COLUMNS]);
    let branch = |ty| {
        let mut b = Build::new();
        let x = b.input(wide());
        let out = b.call(ty, 0, &[x], wide());
        b.finish(out)
    };
    let mut b = Build::new();
    let input = b.input(f32_info(&[ROWS, 1]));
    let many = b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[2]), &[1, COLUMNS as i32]);
    let large = b.call(OperationType::TILE, 0, &[input, many], wide());
    let truths = |dims: &[u32]| TensorInfo::new(OperandType::TENSOR_BOOL8, dims);
    let axes = |b: &mut Build, axis| b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[1]), &[axis]);
    let keep = b.constant(TensorInfo::new(OperandType::BOOL, &[]), &[0u8]);
    let two = b.constant(f32_info(&[1]), &[2f32]);
    let greater = b.call(OperationType::GREATER, 0, &[input, two], truths(&[ROWS, 1]));
    let first = axes(&mut b, 0);
    let condition = b.call(OperationType::REDUCE_ANY, 0, &[greater, first, keep], truths(&[1]));
    let then = b.operand(TensorInfo::new(OperandType::SUBGRAPH, &[]), Lifetime::Subgraph(0));
    let otherwise = b.operand(TensorInfo::new(OperandType::SUBGRAPH, &[]), Lifetime::Subgraph(1));
    let chosen = b.call(OperationType::IF, 0, &[condition, then, otherwise, large], wide());
    let last = axes(&mut b, 1);
    let out = b.call(OperationType::REDUCE_MAX, 0, &[chosen, last, keep], f32_info(&[ROWS]));
    let referenced = vec![branch(OperationType::RELU), branch(OperationType::FLOOR)];
    Model { main: b.finish(out), referenced, relaxed: false }
}

#[test]
fn a_branch_takes_no_memory_for_copies_of_what_it_is_given_and_gives() {
    /// What is given and given back, on both sides.
    const VALUES: u64 = 4;
    let one = |all: u64| Budget::new(all).private().per_client();
    let parts = (1 << 30) / one(1 << 30);
    let budget = Budget::new(parts * (VALUES * BYTES + BYTES / 2));
    let _account = budget.on_account_of(1);
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    let program = Program::compile(&model(), &CompileOptions::default(), pool, &Control::default()).unwrap();
    let rows = run(&program);
    let expected: Vec<f32> = super::samples::floats(ROWS as usize, 9.0).iter().map(|x| x.floor()).collect();
    assert_eq!(rows, bytemuck::cast_slice::<_, u8>(&expected));
}
