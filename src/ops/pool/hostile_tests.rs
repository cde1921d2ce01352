//! No call of a pool panics, whatever its operands.

use super::*;
use crate::ops::image::hostile::{attack, Dice};
use crate::ops::testing::{boolean, int, Tensor};
use crate::ops::Operation;
use crate::tensor::TensorInfo;

fn random_call(dice: &mut Dice, operation: &Operation) -> Option<(Vec<Tensor>, TensorInfo)> {
    let signature = &operation.signatures[dice.below(2)];
    let ty = signature.rows[dice.below(signature.rows.len())].1[0];
    let rank = dice.pick(&[4, 4, 4, 4, 3, 5]);
    let dims = dice.dims(rank);
    let mut inputs = vec![dice.tensor(ty, &dims)?];
    for slot in &signature.inputs[1..] {
        inputs.push(match slot.name {
            "nchw" => boolean(dice.below(4) == 0),
            "activation" => int(dice.activation()),
            name if name.starts_with("padding") => int(dice.padding()),
            _ => int(dice.scalar()),
        });
    }
    let output = TensorInfo::quantised(ty, &[], dice.scale(), dice.zero_point());
    Some((inputs, output))
}

#[test]
fn hostile_calls_do_not_panic() {
    for operation in [&AVERAGE_POOL_2D, &L2_POOL_2D, &MAX_POOL_2D] {
        let mut dice = Dice::new(0x1234_5678);
        let ran = (0..10_000)
            .filter_map(|_| random_call(dice.next_call(), operation))
            .filter(|(inputs, output)| attack(operation, inputs, output))
            .count();
        assert!(ran > 300, "{}: only {ran} calls were sane enough to run", operation.ty);
    }
}
