//! No call of a resize panics, whatever its operands.

use super::*;
use crate::ops::image::hostile::{attack, Dice};
use crate::ops::testing::{boolean, float, int, tensor, Tensor};
use crate::ops::Operation;
use crate::tensor::{OperandType, TensorInfo};
use half::f16;

fn random_call(dice: &mut Dice, operation: &Operation) -> Option<(Vec<Tensor>, TensorInfo)> {
    let signature = &operation.signatures[0];
    let row = signature.rows[dice.below(signature.rows.len())].1;
    let rank = dice.pick(&[4, 4, 4, 4, 3, 5]);
    let dims = dice.dims(rank);
    let mut inputs = vec![dice.tensor(row[0], &dims)?];
    for _ in 0..2 {
        let factor = dice.pick(&[1.0, 0.5, 2.0, 3.7, 0.0, -1.0, 1e38, f32::NAN, f32::INFINITY]);
        inputs.push(match row[1] {
            OperandType::INT32 => int(dice.scalar()),
            OperandType::FLOAT16 => tensor(TensorInfo::new(row[1], &[]), &[f16::from_f32(factor)]),
            _ => float(factor),
        });
    }
    for _ in 0..1 + dice.below(3) {
        inputs.push(boolean(dice.below(3) == 0));
    }
    let output = TensorInfo::quantised(row[0], &[], dice.scale(), dice.zero_point());
    Some((inputs, output))
}

#[test]
fn hostile_calls_do_not_panic() {
    for operation in [&RESIZE_BILINEAR, &RESIZE_NEAREST_NEIGHBOR] {
        let mut dice = Dice::new(0x1234_5678);
        let ran = (0..10_000)
            .filter_map(|_| random_call(dice.next_call(), operation))
            .filter(|(inputs, output)| attack(operation, inputs, output))
            .count();
        assert!(ran > 300, "{}: only {ran} calls were sane enough to run", operation.ty);
    }
}
