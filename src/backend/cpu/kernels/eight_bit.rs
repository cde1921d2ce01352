//! What an 8-bit call's operands say of signs, zero points and scales. Nothing here computes.

use super::Source;
use crate::ops::conv::ChannelRequant;
use crate::ops::{Arg, Args};
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;

pub(super) fn is_signed(input: &Arg) -> bool {
    input.ty() == OperandType::TENSOR_QUANT8_ASYMM_SIGNED
}

/// What turns a call's sums into bytes; without multipliers, of which there may be many, unless its kernel is to run.
pub(super) fn requant(
    args: &Args,
    channels: usize,
    activation: Activation,
    source: &Source,
) -> Option<ChannelRequant> {
    let (input, filter, output) = (args.get(0).ok()?.info, args.get(1).ok()?.info, args.output(0).ok()?);
    let requant = match source.runs() {
        true => ChannelRequant::new(input, filter, output, channels, activation, args.interrupt),
        false => ChannelRequant::without_multipliers(filter, output, channels, activation),
    };
    requant.ok()
}

/// What the bytes of weights are xored with to become signed.
pub(super) fn sign_flip(filter: &Arg) -> u8 {
    if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM {
        0x80
    } else {
        0
    }
}

/// The zero point that goes with weights that [`sign_flip`] made signed.
pub(super) fn signed_zero(filter: &Arg) -> i32 {
    let shift = if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM { 128 } else { 0 };
    filter.zero_point() - shift
}

/// An 8-bit input as unsigned bytes: signed ones have their top bit flipped.
#[derive(Clone, Copy)]
pub(super) struct QuantInput {
    pub zero: u8,
    pub flip: u8,
}

impl QuantInput {
    pub fn new(input: &Arg) -> Self {
        let flip = if is_signed(input) { 0x80 } else { 0 };
        QuantInput { zero: input.zero_point() as u8 ^ flip, flip }
    }
}
