//! Neither operation panics, whatever its operands hold.

use super::*;
use crate::ops::hostile::{storm, Random};

#[test]
fn survives_hostile_operands() {
    for (seed, operation) in [&LSH_PROJECTION, &RANDOM_MULTINOMIAL].into_iter().enumerate() {
        let succeeded = storm(operation, 3000, &mut Random::new(seed as u64 + 1));
        assert!(succeeded > 10, "{}: only {succeeded} calls got to the evaluation", operation.ty);
    }
}
