//! Keeps 8-bit values between operations signed or unsigned, whichever products multiply best: some instructions take
//! unsigned bytes only, others signed ones, and for those of the other kind the inputs of each row are to be added up.
//!
//! A byte's top bit and its zero point move together, so that it stands for the same number: nothing that a model's user
//! sees changes. Inputs, outputs and constants stay as they are, and so does what an operation reads or writes that is not
//! known here to go by numbers alone.

use super::graph::{Graph, Node};
use super::routine::STEPS;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::{OpError, OperationType};
use crate::tensor::{OperandType, TensorInfo};

/// How often a graph is gone through, until nothing stays because of what stays beside it.
const ROUNDS: usize = 16;
/// What it costs to look at an operand's type, in the steps that [`Pace`] counts.
const LOOK: usize = 8;

/// What an operation does with the types of its 8-bit operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Each may be of either type.
    Either,
    /// All are to be of the same.
    Same,
    /// They must stay as they are.
    AsIs,
}

fn takes(ty: OperationType) -> Takes {
    use OperationType::*;
    match ty {
        CONV_2D | DEPTHWISE_CONV_2D | FULLY_CONNECTED | ADD | SUB | MUL => Takes::Either,
        RESHAPE | SQUEEZE | EXPAND_DIMS | TRANSPOSE | CONCATENATION | MAX_POOL_2D => Takes::Same,
        _ => Takes::AsIs,
    }
}

/// Whether asymmetric 8-bit operands of such an operation may be of different types in a compiled model.
pub fn may_mix(ty: OperationType) -> bool {
    takes(ty) == Takes::Either
}

/// Gives values the type `wanted`, one of the two asymmetric 8-bit ones, where they can have it.
pub fn change(graph: &mut Graph, wanted: OperandType, pace: &mut Pace) -> Result<(), OpError> {
    let change = changeable(graph, wanted, pace)?;
    for (value, &changes) in graph.values.iter_mut().zip(change.iter()) {
        pace.spend(if changes { STEPS } else { 1 })?;
        if !changes {
            continue;
        }
        value.declared = as_type(&value.declared, wanted);
        value.resolved = value.resolved.as_ref().map(|info| as_type(info, wanted));
    }
    Ok(())
}

/// `info` in the other asymmetric 8-bit type, for bytes whose top bit is flipped.
fn as_type(info: &TensorInfo, wanted: OperandType) -> TensorInfo {
    let up = if wanted == OperandType::TENSOR_QUANT8_ASYMM { 128 } else { -128 };
    TensorInfo { ty: wanted, zero_point: info.zero_point.saturating_add(up), ..info.clone() }
}

fn operands(node: &Node) -> impl Iterator<Item = usize> + '_ {
    node.inputs.iter().flatten().chain(&node.outputs).copied()
}

/// By value: whether it is of the other type and may be of this one.
fn changeable(graph: &Graph, wanted: OperandType, pace: &mut Pace) -> Result<Scratch<bool>, OpError> {
    let other = |v: &usize| {
        let ty = graph.values[*v].declared.ty;
        ty.is_quant8_asymm() && ty != wanted
    };
    let mut change = filled(pace.interrupt(), false, graph.values.len())?;
    let made = graph.nodes.iter().flat_map(|node| &node.outputs);
    pace.each(made, LOOK, |v| change[*v] = other(v))?;
    pace.each(graph.inputs.iter().chain(&graph.outputs), 1, |&v| change[v] = false)?;
    for round in 1..=ROUNDS {
        let mut settled = true;
        for node in &graph.nodes {
            let takes = takes(node.operation.ty);
            let looked = node.inputs.len().saturating_add(node.outputs.len()).saturating_mul(LOOK);
            pace.spend(STEPS.saturating_add(looked))?;
            let stays = operands(node).any(|v| other(&v) && !change[v]);
            let keeps = match takes {
                Takes::Either => false,
                // A model may be made so that it would take as many rounds as it has operations.
                Takes::Same => stays || round == ROUNDS,
                Takes::AsIs => true,
            };
            if keeps && operands(node).any(|v| change[v]) {
                operands(node).for_each(|v| change[v] = false);
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile_for;
    use super::super::pool::ThreadPool;
    use super::super::program::Program;
    use super::super::routine::{Place, Routine};
    use super::super::samples::{data_of, floats, run, Build};
    use super::*;
    use crate::backend::{Control, Preference, Saved};
    use crate::model::Subgraph;
    use crate::ops::NeverInterrupted;
    use proptest::prelude::*;
    use smallvec::smallvec;
    use std::sync::Arc;
    use OperandType::*;
    use OperationType::*;

    /// Numbers that differ from case to case.
    struct Case {
        ty: OperandType,
        zeros: [u8; 4],
        seed: f32,
        made: usize,
    }

    impl Case {
        /// An operand of another zero point each time.
        fn info(&mut self, dims: &[u32], scale: f32) -> TensorInfo {
            self.made += 1;
            let zero = self.zeros[self.made % self.zeros.len()];
            let zero = if self.ty == TENSOR_QUANT8_ASYMM { zero.into() } else { i32::from(zero) - 128 };
            TensorInfo::quantised(self.ty, dims, scale, zero)
        }

        fn bytes(&mut self, b: &mut Build, dims: &[u32], scale: f32) -> usize {
            let info = self.info(dims, scale);
            let values = floats(dims.iter().product::<u32>() as usize, self.seed + self.made as f32);
            let bytes: Vec<u8> = values.iter().map(|x| (x * 127.0) as i32 as u8).collect();
            b.constant(info, &bytes)
        }

        /// Filter and bias of inputs of scale 0.1.
        fn weights(&mut self, b: &mut Build, dims: &[u32], channels: u32) -> [usize; 2] {
            let sums: Vec<i32> =
                floats(channels as usize, self.seed).iter().map(|x| (x * 999.0) as i32).collect();
            let bias = TensorInfo::quantised(TENSOR_INT32, &[channels], 0.1 * 0.02, 0);
            [self.bytes(b, dims, 0.02), b.constant(bias, &sums)]
        }

        /// All operations whose values change, each with such and such neighbours.
        fn model(&mut self) -> Subgraph {
            let mut b = Build::new();
            let image = [1, 4, 4, 6];
            let input = b.input(self.info(&image, 0.1));
            let [filter, bias] = self.weights(&mut b, &[6, 3, 3, 6], 6);
            let steering = b.ints(&[1, 1, 1, 0]);
            let wide = self.info(&image, 0.1);
            let wide = b.call(CONV_2D, 0, &[&[input, filter, bias][..], &steering].concat(), wide);
            let [filter, bias] = self.weights(&mut b, &[1, 3, 3, 6], 6);
            let steering = b.ints(&[1, 1, 1, 1, 1]);
            let deep = self.info(&image, 0.1);
            let deep = b.call(DEPTHWISE_CONV_2D, 0, &[&[wide, filter, bias][..], &steering].concat(), deep);
            let none = b.ints(&[0]);
            let (mut last, constant) = (deep, self.bytes(&mut b, &[6], 0.1));
            for (ty, other) in [(ADD, wide), (SUB, constant), (MUL, wide), (ADD, input)] {
                let out = self.info(&image, 0.1);
                last = b.call(ty, 0, &[last, other, none[0]], out);
            }
            let pooling = b.ints(&[1, 2, 2, 2, 2, 0]);
            let pooled = TensorInfo { dims: smallvec![1, 2, 2, 6], ..b.info(last) };
            let pooled = b.call(MAX_POOL_2D, 0, &[&[last][..], &pooling].concat(), pooled);
            let axes = b.constant(TensorInfo::new(TENSOR_INT32, &[4]), &[0i32, 2, 1, 3]);
            let turned = b.call(TRANSPOSE, 0, &[pooled, axes], b.info(pooled));
            let joined = TensorInfo { dims: smallvec![1, 2, 2, 12], ..b.info(last) };
            let along = b.ints(&[3]);
            let joined = b.call(CONCATENATION, 0, &[pooled, turned, along[0]], joined);
            let flat = TensorInfo { dims: smallvec![2, 24], ..b.info(last) };
            let dims = b.constant(TensorInfo::new(TENSOR_INT32, &[2]), &[2i32, 24]);
            let flat = b.call(RESHAPE, 0, &[joined, dims], flat);
            let [filter, bias] = self.weights(&mut b, &[3, 24], 3);
            let out = self.info(&[2, 3], 0.3);
            let out = b.call(FULLY_CONNECTED, 0, &[flat, filter, bias, none[0]], out);
            b.finish(out)
        }
    }

    fn compiled(subgraph: &Subgraph, bytes: Option<OperandType>) -> Routine {
        let pool = ThreadPool::new(2).unwrap();
        compile_for(subgraph, (bytes, false), pool.team(2), &Control::default()).unwrap()
    }

    fn types(routine: &Routine) -> Vec<OperandType> {
        let types = routine.values.iter().filter_map(|value| match &value.place {
            Place::Arena(info, _) => Some(info.ty),
            _ => None,
        });
        types.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn results_are_the_same_bytes(zeros in any::<[u8; 4]>(), seed in 0f32..999.0, is_signed in any::<bool>()) {
            let ty = if is_signed { TENSOR_QUANT8_ASYMM_SIGNED } else { TENSOR_QUANT8_ASYMM };
            let model = Case { ty, zeros, seed, made: 0 }.model();
            let result = |bytes| {
                let pool = Arc::new(ThreadPool::new(1).unwrap());
                let program = Program::of_routine(compiled(&model, bytes), pool.clone());
                let artifact = program.artifact(&NeverInterrupted).unwrap();
                let saved = Saved { models: artifact.models.clone(), data: vec![data_of(&artifact)] };
                let loaded = Program::load(saved, Preference::default(), pool, &Control::default()).unwrap();
                let result = run(&program);
                assert_eq!(run(&loaded), result);
                result
            };
            let expected = result(None);
            prop_assert_eq!(&result(Some(TENSOR_QUANT8_ASYMM)), &expected);
            prop_assert_eq!(&result(Some(TENSOR_QUANT8_ASYMM_SIGNED)), &expected);
        }
    }

    #[test]
    fn values_between_known_operations_change_and_others_do_not() {
        let ty = TENSOR_QUANT8_ASYMM_SIGNED;
        let model = Case { ty, zeros: [1, 2, 3, 4], seed: 1.0, made: 0 }.model();
        let changed = types(&compiled(&model, Some(TENSOR_QUANT8_ASYMM)));
        // Input and output.
        assert_eq!(changed.iter().filter(|&&other| other == ty).count(), 2, "{changed:?}");
        assert!(types(&compiled(&model, None)).iter().all(|&other| other == ty));

        // A pool that rounds the bytes as they are, and what is beside it.
        let mut b = Build::new();
        let info = TensorInfo::quantised(ty, &[1, 2, 2, 1], 0.5, 3);
        let input = b.input(info.clone());
        let none = b.ints(&[0]);
        let sum = b.call(ADD, 0, &[input, input, none[0]], info.clone());
        let again = b.call(ADD, 0, &[sum, sum, none[0]], info.clone());
        let pooling = b.ints(&[1, 1, 1, 1, 1, 0]);
        let pooled = b.call(AVERAGE_POOL_2D, 0, &[&[again][..], &pooling].concat(), info.clone());
        let dims = b.constant(TensorInfo::new(TENSOR_INT32, &[4]), &[1i32, 2, 2, 1]);
        let view = b.call(RESHAPE, 0, &[pooled, dims], info.clone());
        let out = b.call(ADD, 0, &[view, sum, none[0]], info);
        let changed = types(&compiled(&b.finish(out), Some(TENSOR_QUANT8_ASYMM)));
        assert_eq!(changed.iter().filter(|&&ty| ty == TENSOR_QUANT8_ASYMM).count(), 1, "{changed:?}");
    }

    #[test]
    fn a_long_row_of_views_that_stays_costs_few_rounds() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[4], 0.5, 3);
        let mut b = Build::new();
        let (mut last, none) = (b.input(info.clone()), b.ints(&[0]));
        last = b.call(ADD, 0, &[last, last, none[0]], info.clone());
        let dims = b.constant(TensorInfo::new(TENSOR_INT32, &[1]), &[4i32]);
        // The last of them is an output, and each round tells the one before.
        for _ in 0..ROUNDS * 4 {
            last = b.call(RESHAPE, 0, &[last, dims], info.clone());
        }
        assert!(!types(&compiled(&b.finish(last), Some(TENSOR_QUANT8_ASYMM))).contains(&TENSOR_QUANT8_ASYMM));
    }
}
