//! From 32-bit sums of quantised products to the output's type: one multiplier per output channel, one clamp.

use crate::ops::scratch::{collected, filled, reserved, Scratch};
use crate::ops::{Interrupt, OpError};
use crate::tensor::requant::{Activation, Multiplier};
use crate::tensor::{OperandType, TensorInfo};
use std::sync::Arc;

/// How sums become output elements, for convolutions, fully connected layers and matrix products.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelRequant {
    /// One per output channel, all the same unless the filter has scales per channel. Each is
    /// `input scale * filter scale / output scale`.
    pub multipliers: Arc<Scratch<Multiplier>>,
    /// Added after the multiplication.
    pub zero_point: i32,
    /// Smallest and largest output element: the type's range and the fused activation's.
    pub range: (i32, i32),
    /// Whether sums are rounded once, rather than twice as gemmlowp does.
    pub once: bool,
}

impl ChannelRequant {
    /// What can be wrong with the scales. A bias in units other than `input scale * filter scale` is refused as by
    /// NNAPI's reference, at execution: its validation does not look.
    pub fn check(
        input: &TensorInfo,
        filter: &TensorInfo,
        bias: &TensorInfo,
        channels: usize,
    ) -> Result<(), OpError> {
        if filter.ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL {
            let scales = filter.channel_quant.as_ref().map_or(0, |quant| quant.scales.len());
            if scales == channels {
                return Ok(());
            }
            return Err(OpError::failed(format!("{scales} filter scales for {channels} output channels")));
        }
        let product = f64::from(input.scale * filter.scale);
        let bias = f64::from(bias.scale);
        // Written so that a NaN is refused.
        if (product - bias).abs() <= 1e-6 * product.min(bias) {
            return Ok(());
        }
        Err(OpError::failed(format!("bias scale {bias}, expected input scale * filter scale = {product}")))
    }

    /// The rescaling of a call with `channels` output channels, of which there may be very many: it comes by yield points of
    /// `interrupt`.
    pub fn new(
        input: &TensorInfo,
        filter: &TensorInfo,
        output: &TensorInfo,
        channels: usize,
        activation: Activation,
        interrupt: &dyn Interrupt,
    ) -> Result<Self, OpError> {
        let without = Self::without_multipliers(filter, output, channels, activation)?;
        let multiplier = |product: f64| Multiplier::new(product / f64::from(output.scale));
        let multipliers = match &filter.channel_quant {
            // As doubles, as TensorFlow Lite does.
            Some(quant) => {
                let product = |&scale: &f32| f64::from(input.scale) * f64::from(scale);
                collected(
                    interrupt,
                    quant.scales.iter().take(channels).map(|scale| multiplier(product(scale))),
                )?
            }
            // As floats, as both NNAPI's reference and TensorFlow Lite do: an output scale may be this product twice over, where
            // each half decides.
            None => filled(interrupt, multiplier(f64::from(input.scale * filter.scale)), channels)?,
        };
        Ok(ChannelRequant { multipliers: Arc::new(multipliers), ..without })
    }

    /// All of [`Self::new`] but the multipliers, where nothing is rescaled yet.
    pub fn without_multipliers(
        filter: &TensorInfo,
        output: &TensorInfo,
        channels: usize,
        activation: Activation,
    ) -> Result<Self, OpError> {
        let scales = filter.channel_quant.as_ref().map_or(channels, |quant| quant.scales.len());
        if scales < channels {
            return Err(OpError::failed(format!("{scales} filter scales for {channels} channels")));
        }
        let range = activation.quantised_range(output.ty, output.scale, output.zero_point);
        let multipliers = Arc::new(reserved(0)?);
        Ok(ChannelRequant { multipliers, zero_point: output.zero_point, range, once: false })
    }

    /// The output element of `sum` (bias included) in channel `channel`.
    pub fn apply(&self, sum: i32, channel: usize) -> i32 {
        let multiplier = self.multipliers[channel];
        let scaled = if self.once { multiplier.apply_once(sum) } else { multiplier.apply(sum) };
        let scaled = scaled.saturating_add(self.zero_point);
        // Not `clamp`, which panics where hostile scales turn the bounds around.
        scaled.max(self.range.0).min(self.range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Counting;
    use crate::ops::NeverInterrupted;
    use crate::tensor::ChannelQuant;
    use OperandType::*;

    fn quantised(ty: OperandType, scale: f32) -> TensorInfo {
        TensorInfo::quantised(ty, &[1], scale, 0)
    }

    #[test]
    fn a_bias_in_other_units_is_refused() {
        let (input, filter) = (quantised(TENSOR_QUANT8_ASYMM, 0.5), quantised(TENSOR_QUANT8_ASYMM, 0.25));
        let check = |scale| ChannelRequant::check(&input, &filter, &quantised(TENSOR_INT32, scale), 1);
        assert_eq!(check(0.125), Ok(()));
        assert!(check(0.125001).is_err());
        assert!(check(0.0).is_err());
        assert!(check(f32::NAN).is_err());
    }

    #[test]
    fn each_channel_has_its_multiplier() {
        let input = quantised(TENSOR_QUANT8_ASYMM_SIGNED, 0.5);
        let mut filter = quantised(TENSOR_QUANT8_SYMM_PER_CHANNEL, 0.0);
        filter.channel_quant = Some(ChannelQuant { scales: [1.0, 4.0].into(), dim: 0 });
        let output = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1], 1.0, 10);
        let new = |channels, activation| {
            ChannelRequant::new(&input, &filter, &output, channels, activation, &NeverInterrupted)
        };
        let requant = new(2, Activation::Relu6).unwrap();
        assert_eq!((requant.apply(8, 0), requant.apply(8, 1), requant.apply(-8, 0)), (14, 16, 10));
        assert!(new(3, Activation::None).is_err());
        assert!(ChannelRequant::check(&input, &filter, &output, 3).is_err());
    }

    #[test]
    fn the_product_of_two_scales_is_a_float() {
        let scale = 0.1f32;
        let filter = quantised(TENSOR_QUANT8_ASYMM_SIGNED, scale);
        let output = quantised(TENSOR_QUANT8_ASYMM_SIGNED, 2.0 * (scale * scale));
        let requant =
            ChannelRequant::new(&filter, &filter, &output, 1, Activation::None, &NeverInterrupted).unwrap();
        // Exactly a half.
        assert_eq!([-199, -197, 197, 199].map(|sum| requant.apply(sum, 0)), [-99, -98, 99, 100]);
    }

    #[test]
    fn very_many_multipliers_are_made_in_short_stretches() {
        const CHANNELS: usize = 1 << 20;
        let input = quantised(TENSOR_QUANT8_ASYMM, 0.5);
        let mut filter = input.clone();
        for quant in [None, Some(ChannelQuant { scales: vec![0.5; CHANNELS].into(), dim: 0 })] {
            filter.channel_quant = quant;
            let interrupt = Counting::default();
            ChannelRequant::new(&input, &filter, &input, CHANNELS, Activation::None, &interrupt).unwrap();
            assert!(interrupt.take() >= CHANNELS >> 16);
        }
    }
}
