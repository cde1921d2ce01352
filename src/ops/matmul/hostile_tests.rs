//! No call of a matrix product panics, whatever its operands.

use super::*;
use crate::ops::image::hostile::{attack, Dice};
use crate::ops::testing::{boolean, int, Tensor};
use crate::ops::Operation;
use crate::tensor::TensorInfo;

fn random_output(dice: &mut Dice, like: &Tensor) -> TensorInfo {
    TensorInfo::quantised(like.info.ty, &[], dice.scale(), dice.zero_point())
}

fn fully_connected(dice: &mut Dice) -> Option<(Vec<Tensor>, TensorInfo)> {
    let row = FULLY_CONNECTED.signatures[0].rows[dice.below(4)].1;
    let (rank, inputs, units) = (dice.pick(&[2, 2, 3, 4, 1, 5]), dice.dim(), dice.dim());
    let mut dims = dice.dims(rank);
    dims[rank - 1] = inputs;
    let units_of_bias = dice.pick(&[units, units, units, 1]);
    let input = dice.tensor(row[0], &dims)?;
    let weights = dice.tensor(row[0], &[units, inputs])?;
    let mut bias = dice.tensor(row[1], &[units_of_bias])?;
    bias.info.scale = input.info.scale * weights.info.scale;
    let output = random_output(dice, &input);
    Some((vec![input, weights, bias, int(dice.activation())], output))
}

fn batch_matmul(dice: &mut Dice) -> Option<(Vec<Tensor>, TensorInfo)> {
    let ty = BATCH_MATMUL.signatures[0].rows[dice.below(4)].1[0];
    let rank = dice.pick(&[2, 3, 3, 4, 4, 1, 5]);
    let left = dice.dims(rank);
    let mut right = left.clone();
    right[rank - 1] = dice.dim();
    if rank > 1 && dice.below(3) > 0 {
        right[rank - 2] = left[rank - 1];
    }
    if rank > 2 && dice.below(2) > 0 {
        right[0] = dice.pick(&[1, 2]);
    }
    let (left, right) = (dice.tensor(ty, &left)?, dice.tensor(ty, &right)?);
    let output = random_output(dice, &left);
    Some((vec![left, right, boolean(dice.below(4) == 0), boolean(dice.below(4) == 0)], output))
}

#[test]
fn hostile_calls_do_not_panic() {
    type Caller = fn(&mut Dice) -> Option<(Vec<Tensor>, TensorInfo)>;
    let callers: [(&Operation, Caller); 2] =
        [(&FULLY_CONNECTED, fully_connected), (&BATCH_MATMUL, batch_matmul)];
    for (operation, caller) in callers {
        let mut dice = Dice::new(0x1234_5678);
        let ran = (0..10_000)
            .filter_map(|_| caller(dice.next_call()))
            .filter(|(inputs, output)| attack(operation, inputs, output))
            .count();
        assert!(ran > 300, "{}: only {ran} calls were sane enough to run", operation.ty);
    }
}
