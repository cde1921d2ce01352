//! No call of a convolution panics, whatever its operands.

use super::*;
use crate::ops::image::hostile::{attack, Dice};
use crate::ops::testing::{boolean, int, Tensor};
use crate::ops::{Operation, OperationType};
use crate::tensor::{OperandType, TensorInfo};

/// A random call: tensors that fit each other more often than not, scalars that may not.
fn random_call(dice: &mut Dice, operation: &Operation) -> Option<(Vec<Tensor>, TensorInfo)> {
    let form = dice.below(2);
    let signature = &operation.signatures[form];
    let row = &signature.rows[dice.below(signature.rows.len())].1;
    let mut input = dice.dims(4);
    let mut filter = dice.dims(4);
    if dice.below(4) > 0 {
        input.iter_mut().chain(&mut filter).for_each(|d| *d = (*d).min(5));
        match operation.ty {
            OperationType::DEPTHWISE_CONV_2D => (filter[0], filter[3]) = (1, input[3]),
            OperationType::GROUPED_CONV_2D => filter[3] = dice.pick(&[1, input[3]]),
            _ => filter[3] = input[3],
        }
    }
    let channels = if operation.ty == OperationType::DEPTHWISE_CONV_2D { filter[3] } else { filter[0] };
    let mut inputs = vec![dice.tensor(row[0], &input)?, dice.tensor(row[1], &filter)?];
    let mut bias = dice.tensor(row[2], &[channels])?;
    bias.info.scale = inputs[0].info.scale * inputs[1].info.scale;
    inputs.push(bias);
    for slot in &signature.inputs[3..] {
        inputs.push(match slot.name {
            "nchw" => boolean(dice.below(4) == 0),
            "activation" => int(dice.activation()),
            "output shape" => {
                let mut shape = dice.tensor(OperandType::TENSOR_INT32, &[4])?;
                for value in shape.data.chunks_exact_mut(4) {
                    value.copy_from_slice(&dice.scalar().to_ne_bytes());
                }
                shape
            }
            name if name.starts_with("padding") => int(dice.padding()),
            _ => int(dice.scalar()),
        });
    }
    let output = TensorInfo::quantised(row[0], &[], dice.scale(), dice.zero_point());
    Some((inputs, output))
}

#[test]
fn hostile_calls_do_not_panic() {
    for operation in [&CONV_2D, &DEPTHWISE_CONV_2D, &GROUPED_CONV_2D, &TRANSPOSE_CONV_2D] {
        let mut dice = Dice::new(0x1234_5678);
        let ran = (0..10_000)
            .filter_map(|_| random_call(dice.next_call(), operation))
            .filter(|(inputs, output)| attack(operation, inputs, output))
            .count();
        assert!(ran > 300, "{}: only {ran} calls were sane enough to run", operation.ty);
    }
}
