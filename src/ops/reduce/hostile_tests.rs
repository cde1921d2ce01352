//! No reduction panics, whatever its operands hold.

use super::*;
use crate::ops::hostile::{storm, Random};

#[test]
fn survives_hostile_operands() {
    let all = [&MEAN, &REDUCE_ALL, &REDUCE_ANY, &REDUCE_MAX, &REDUCE_MIN, &REDUCE_PROD, &REDUCE_SUM];
    for (seed, operation) in all.into_iter().enumerate() {
        let succeeded = storm(operation, 3000, &mut Random::new(seed as u64 + 1));
        assert!(succeeded > 10, "{}: only {succeeded} calls got to the evaluation", operation.ty);
    }
}
