//! Every operation against a second evaluation, and against nonsense.
//!
//! The second evaluation is written from the interface's semantics as index arithmetic over f64: slow, plain, and with
//! nothing in common with `nnhal::ops` but the operands. Random calls come from a seed that a failure prints;
//! `OPS_PROPERTIES_SEED` runs that seed alone, `OPS_PROPERTIES_TIMES` multiplies the number of calls for a longer run.
//! Each good call is repeated with something spoiled, which must not panic.

mod binary;
mod blocks;
mod boxes;
mod chance;
mod conv;
mod lstm;
mod lstm_cell;
mod matmul;
mod movement;
mod norm;
mod pool;
mod quantised_lstm;
mod recurrent;
mod reduce;
mod refusals;
mod regions;
mod resize;
mod slices;
mod support;
mod unary;
mod window;

use nnhal::ops::OperationType;
use std::collections::BTreeSet;
use support::{random_call, times, Property, Random};

macro_rules! families {
    ($($name:ident)*) => {
        const FAMILIES: &[&[Property]] = &[$($name::PROPERTIES,)*];
        mod families {
            $(#[test]
            fn $name() {
                super::$name::PROPERTIES.iter().for_each(super::Property::run);
            })*
        }
    };
}

families! {
    binary blocks boxes chance conv lstm matmul movement norm pool quantised_lstm recurrent reduce regions resize slices
    unary
}

#[test]
fn every_operation_has_a_property() {
    let reached: BTreeSet<OperationType> =
        FAMILIES.iter().copied().flatten().flat_map(|property| property.operations).copied().collect();
    let missing: Vec<_> = OperationType::ALL
        .iter()
        .filter(|&ty| !reached.contains(ty) && !matches!(ty, OperationType::IF | OperationType::WHILE))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_operation_panics_on_nonsense() {
    let random = &mut Random::new(1);
    let mut successes = 0;
    for operation in OperationType::ALL.iter().filter_map(|ty| ty.operation()) {
        successes += (0..times(400)).filter(|_| random_call(operation, random)).count();
    }
    assert!(successes > 2000, "{successes} calls succeeded");
}
