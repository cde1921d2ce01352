//! Mutations of quantisation: scales, zero points and scales per channel that no operand of the type may have, and those
//! that an operation rules out.

use super::mutations::{consumers, ty, Mutations};
use crate::aidl::{
    Operand, OperandExtraParams, Operation, OperationType, Subgraph, SymmPerChannelQuantParams,
};
use crate::tensor::OperandType::{self, *};
use crate::tool::conformance::outcome::Step;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operand) in main.operands.iter().enumerate() {
        let Some(ty) = ty(operand.r#type) else { continue };
        for &scale in wrong_scales(ty) {
            m.with(format!("operand {i} ({ty}) with scale {scale}"), |main| main.operands[i].scale = scale)?;
        }
        for &zero_point in wrong_zero_points(ty) {
            m.with(format!("operand {i} ({ty}) with zero point {zero_point}"), |main| {
                main.operands[i].zeroPoint = zero_point
            })?;
        }
        match ty {
            TENSOR_QUANT8_SYMM_PER_CHANNEL => channels(m, i, operand)?,
            TENSOR_QUANT8_SYMM | TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED => {
                m.with(format!("operand {i} ({ty}) with a scale per channel"), |main| {
                    let quant = SymmPerChannelQuantParams { scales: vec![1.0], channelDim: 0 };
                    main.operands[i].extraParams = Some(OperandExtraParams::ChannelQuant(quant));
                })?;
            }
            _ => {}
        }
    }
    for (i, operation) in main.operations.iter().enumerate() {
        match operation.r#type {
            OperationType::MUL => product(m, &main, i, operation)?,
            OperationType::PACK | OperationType::REVERSE | OperationType::MIRROR_PAD => {
                same(m, &main, i, operation)?
            }
            _ => {}
        }
    }
    Ok(())
}

/// Scales that no operand of this type may have.
fn wrong_scales(ty: OperandType) -> &'static [f32] {
    match ty {
        TENSOR_INT32 => &[-1.0],
        TENSOR_QUANT8_ASYMM
        | TENSOR_QUANT8_ASYMM_SIGNED
        | TENSOR_QUANT8_SYMM
        | TENSOR_QUANT16_ASYMM
        | TENSOR_QUANT16_SYMM => &[0.0, -1.0, f32::NAN, f32::INFINITY],
        _ => &[1.0],
    }
}

/// Zero points that no operand of this type may have.
fn wrong_zero_points(ty: OperandType) -> &'static [i32] {
    match ty {
        TENSOR_QUANT8_ASYMM => &[-1, 256],
        TENSOR_QUANT8_ASYMM_SIGNED => &[-129, 128],
        TENSOR_QUANT8_SYMM => &[-129, -1, 1, 128],
        TENSOR_QUANT16_ASYMM => &[-1, 65536],
        TENSOR_QUANT16_SYMM => &[-32769, -1, 1, 32768],
        _ => &[1],
    }
}

/// Scales per channel: none, too few, too many, one that is no scale, and a dimension that there is not.
fn channels(m: &mut Mutations, i: usize, operand: &Operand) -> Step {
    m.with(format!("operand {i} without scales per channel"), |main| main.operands[i].extraParams = None)?;
    let Some(OperandExtraParams::ChannelQuant(whole)) = &operand.extraParams else { return Ok(()) };
    let mut with = |what: &str, change: &dyn Fn(&mut SymmPerChannelQuantParams)| {
        m.with(format!("operand {i} with {what}"), |main| {
            let mut quant = whole.clone();
            change(&mut quant);
            main.operands[i].extraParams = Some(OperandExtraParams::ChannelQuant(quant));
        })
    };
    with("a scale per channel too few", &|quant| quant.scales.truncate(quant.scales.len() - 1))?;
    with("a scale per channel too many", &|quant| quant.scales.push(1.0))?;
    with("a channel's scale of 0", &|quant| quant.scales[0] = 0.0)?;
    with("a channel's scale below 0", &|quant| quant.scales[0] = -1.0)?;
    with("a channel dimension below 0", &|quant| quant.channelDim = -1)?;
    let rank = operand.dimensions.len() as i32;
    with("a channel dimension beyond its rank", &|quant| quant.channelDim = rank)
}

/// The output of a quantised multiplication has a scale above the product of its inputs' scales.
fn product(m: &mut Mutations, main: &Subgraph, i: usize, operation: &Operation) -> Step {
    let (a, b, out) = (operation.inputs[0], operation.inputs[1], operation.outputs[0]);
    let scale = |index: i32| main.operands[index as usize].scale;
    // An operand that is of no quantised type has no scale. With itself for an input, an output has no such rule.
    let product = scale(a) * scale(b);
    if product == 0.0 {
        return Ok(());
    }
    for (what, scale) in [("half", product / 2.0), ("all", product)] {
        m.with(format!("operation {i} (MUL) with {what} of its inputs' scales' product"), |main| {
            main.operands[out as usize].scale = scale
        })?;
    }
    Ok(())
}

/// All tensors have one scale and one zero point.
fn same(m: &mut Mutations, main: &Subgraph, i: usize, operation: &Operation) -> Step {
    let consumers = consumers(main);
    for &index in operation.inputs.iter().chain(&operation.outputs) {
        let index = index as usize;
        let operand = &main.operands[index];
        let quantised = ty(operand.r#type).is_some_and(OperandType::is_quant8_asymm);
        // One that is read several times changes in all places at once.
        if !quantised || consumers[index] > 1 {
            continue;
        }
        m.with(format!("operation {i} with another scale for operand {index}"), |main| {
            main.operands[index].scale *= 2.0
        })?;
        m.with(format!("operation {i} with another zero point for operand {index}"), |main| {
            main.operands[index].zeroPoint ^= 1
        })?;
    }
    Ok(())
}
