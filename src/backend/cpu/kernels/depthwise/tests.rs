//! Depthwise convolutions against the plain evaluation.

use super::super::twins::{compare, plain_floats, Noise, Within};
use crate::backend::cpu::kernels::Source;
use crate::memory::Slab;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::testing::{boolean, int, tensor, Counting, Tensor};
use crate::ops::OperationType::DEPTHWISE_CONV_2D;
use crate::ops::{Arg, Args};
use crate::tensor::{ChannelQuant, OperandType::*, TensorInfo};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Float,
    Unsigned,
    /// With weights whose zero point is in the middle.
    Middle,
    Signed,
    PerChannel,
}

#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    /// Batches, height, width, channels.
    input: [u32; 4],
    /// Height, width.
    kernel: [u32; 2],
    multiplier: u32,
    /// SAME or VALID.
    scheme: i32,
    /// Width, height.
    stride: [i32; 2],
    dilation: i32,
    activation: i32,
    /// Of the output.
    scale: f32,
}

fn run(call: &Call, seed: u32) -> Result<bool, TestCaseError> {
    let (noise, channels) = (&mut Noise(seed), call.input[3] * call.multiplier);
    let filter = [1, call.kernel[0], call.kernel[1], channels];
    let plain = |dims: &[u32]| TensorInfo::new(TENSOR_FLOAT32, dims);
    let (ty, filter) = match call.kind {
        Kind::Float => (TENSOR_FLOAT32, plain(&filter)),
        Kind::Unsigned => {
            (TENSOR_QUANT8_ASYMM, TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &filter, 0.25, 120))
        }
        Kind::Middle => (TENSOR_QUANT8_ASYMM, TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &filter, 0.25, 128)),
        Kind::Signed => {
            (TENSOR_QUANT8_ASYMM_SIGNED, TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &filter, 0.25, -3))
        }
        Kind::PerChannel => {
            let scales = (0..channels).map(|i| 0.1 + i as f32 / 50.0).collect();
            let info = TensorInfo::new(TENSOR_QUANT8_SYMM_PER_CHANNEL, &filter);
            let quant = ChannelQuant { scales, dim: 3 };
            (TENSOR_QUANT8_ASYMM_SIGNED, TensorInfo { channel_quant: Some(quant), ..info })
        }
    };
    // Signed bytes of which the least stands for 0 are made in other ways.
    let zero = if ty == TENSOR_QUANT8_ASYMM_SIGNED && seed % 4 > 1 { -128 } else { 20 };
    let (input, bias, output) = match call.kind {
        Kind::Float => (plain(&call.input), plain(&[channels]), plain(&[])),
        _ => (
            TensorInfo::quantised(ty, &call.input, 0.5, 7),
            TensorInfo::quantised(TENSOR_INT32, &[channels], 0.5 * filter.scale, 0),
            TensorInfo::quantised(ty, &[], call.scale, zero),
        ),
    };
    let mut inputs = vec![noise.tensor(input), noise.tensor(filter), noise.tensor(bias)];
    if seed % 2 == 1 && !matches!(call.kind, Kind::Float) {
        // Weights that have no least number are multiplied in other ways.
        let least = if ty == TENSOR_QUANT8_ASYMM { 0 } else { 0x80 };
        inputs[1].data.iter_mut().filter(|byte| **byte == least).for_each(|byte| *byte += 1);
    }
    inputs.extend(
        [call.scheme, call.stride[0], call.stride[1], call.multiplier as i32, call.activation].map(int),
    );
    inputs.extend([boolean(false), int(call.dilation), int(call.dilation)]);
    let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    if !matches!(call.kind, Kind::Float) {
        return compare(DEPTHWISE_CONV_2D, &inputs, 1, &[output], Within::SameBytes);
    }
    let Some(terms) = plain_floats(DEPTHWISE_CONV_2D, &magnitudes(&inputs), std::slice::from_ref(&output))
    else {
        return Ok(false);
    };
    // Two orders of at most 37 terms, each addition rounded to 24 bits.
    compare(DEPTHWISE_CONV_2D, &inputs, 1, &[output], Within::OfTerms(5e-6, &terms))
}

/// The same call of the magnitudes of all floats, without an activation: the sum of the terms' magnitudes.
fn magnitudes(inputs: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
    const ACTIVATION: usize = 7;
    let magnitude = |(i, input): (usize, &Option<Tensor>)| {
        let Tensor { info, data } = input.as_ref()?;
        Some(match info.ty {
            TENSOR_FLOAT32 => {
                let values: Vec<f32> = bytemuck::cast_slice(data).iter().map(|x: &f32| x.abs()).collect();
                tensor(info.clone(), &values)
            }
            _ if i == ACTIVATION => int(0),
            _ => Tensor { info: info.clone(), data: data.clone() },
        })
    };
    inputs.iter().enumerate().map(magnitude).collect()
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Float, Kind::Unsigned, Kind::Middle, Kind::Signed, Kind::PerChannel])
}

fn bytes() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Unsigned, Kind::Middle, Kind::Signed, Kind::PerChannel])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn rows_give_what_the_plain_evaluation_gives(
        kind in kind(), size in [1u32..3, 1u32..14, 1u32..30], channels in 1u32..70, kernel in [1u32..7, 1u32..7],
        multiplier in prop::sample::select(vec![1u32, 1, 1, 2, 3]), scheme in 1i32..3, stride in [1i32..4, 1i32..4],
        dilation in prop::sample::select(vec![1, 1, 2, 3]), activation in 0i32..4,
        // Outputs finer than the products shift left.
        scale in prop::sample::select(vec![40.0f32, 3.0, 0.01]), seed in any::<u32>(),
    ) {
        let input = [size[0], size[1], size[2], channels];
        run(&Call { kind, input, kernel, multiplier, scheme, stride, dilation, activation, scale }, seed)?;
    }

    /// Filters as large as the image.
    #[test]
    fn whole_images_give_what_the_plain_evaluation_gives(
        kind in bytes(), size in [1u32..3, 1u32..20, 1u32..20], channels in 1u32..200, activation in 0i32..4,
        scale in prop::sample::select(vec![400.0f32, 3.0, 0.01]), seed in any::<u32>(),
    ) {
        let (input, kernel) = ([size[0], size[1], size[2], channels], [size[1], size[2]]);
        let (multiplier, scheme, stride, dilation) = (1, 2, [1, 1], 1);
        run(&Call { kind, input, kernel, multiplier, scheme, stride, dilation, activation, scale }, seed)?;
    }

    /// Filters that have ways of their own.
    #[test]
    fn common_filters_give_what_the_plain_evaluation_gives(
        kind in kind(), kernel in prop::sample::select(vec![3u32, 3, 5]), size in [1u32..3, 1u32..14, 1u32..30], channels in prop_oneof![14u32..70, 60u32..210],
        multiplier in prop::sample::select(vec![1u32, 1, 1, 2]), scheme in 1i32..3, stride in [1i32..4, 1i32..4],
        activation in 0i32..4, scale in prop::sample::select(vec![40.0f32, 3.0, 1.5, 0.01]), seed in any::<u32>(),
    ) {
        let (input, kernel) = ([size[0], size[1], size[2], channels], [kernel; 2]);
        run(&Call { kind, input, kernel, multiplier, scheme, stride, dilation: 1, activation, scale }, seed)?;
    }
}

#[test]
fn common_layers_have_kernels() {
    for kind in [Kind::Float, Kind::Unsigned, Kind::Middle, Kind::Signed, Kind::PerChannel] {
        // Those that take long enough to be shared out, by pixels and by channels, some of which fill no cache line.
        let layers = [(1, 1, 3, 96), (20, 1, 3, 150), (21, 2, 3, 150), (14, 1, 5, 150), (7, 1, 3, 2003)];
        for (size, stride, kernel, channels) in layers {
            let call = Call {
                kind,
                input: [1, size, size, channels],
                kernel: [kernel; 2],
                multiplier: 1,
                scheme: 1,
                stride: [stride; 2],
                dilation: 1,
                activation: 3,
                scale: 40.0,
            };
            assert!(run(&call, 1).unwrap(), "{call:?}");
        }
    }
    // Images that the filter covers whole, of channels that are blocks and parts of them, and some too large for rows.
    for kind in [Kind::Unsigned, Kind::Middle, Kind::Signed, Kind::PerChannel] {
        for (input, scale) in [([2, 7, 7, 150], 90.0), ([1, 61, 60, 33], 900.0), ([3, 1, 1, 17], 3.0)] {
            let call = Call {
                kind,
                input,
                kernel: [input[1], input[2]],
                multiplier: 1,
                scheme: 2,
                stride: [1, 1],
                dilation: 1,
                activation: 0,
                scale,
            };
            assert!(run(&call, 1).unwrap() && run(&call, 2).unwrap(), "{call:?}");
        }
    }
    // Rows that are longer than the columns made at once, and one that is wider than a task.
    for (input, multiplier) in [([1, 3, 1001, 16], 1), ([1, 5, 193, 80], 1), ([1, 2, 20_000, 3], 2)] {
        let (kind, kernel) = (Kind::PerChannel, [3, 3]);
        let call = Call {
            kind,
            input,
            kernel,
            multiplier,
            scheme: 1,
            stride: [1, 1],
            dilation: 1,
            activation: 0,
            scale: 9.0,
        };
        assert!(run(&call, 1).unwrap(), "{call:?}");
    }
}

#[test]
fn a_bias_of_very_many_channels_is_made_with_pauses() {
    use super::layout::Order;
    use super::packing::Packing;
    const CHANNELS: usize = 1 << 20;
    let info = |dims: &[u32]| TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, 0.5, 3);
    let pixel = tensor(info(&[1, 1, 1, CHANNELS as u32]), &vec![1u8; CHANNELS]);
    let bias = TensorInfo::quantised(TENSOR_INT32, &[CHANNELS as u32], 0.25, 0);
    let mut tensors = vec![pixel.clone(), pixel, tensor(bias, &vec![1i32; CHANNELS])];
    tensors.extend([2, 1, 1, 1, 0].map(int));
    let inputs: Vec<_> = tensors.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let interrupt = Counting::default();
    let args = Args { signature_index: 0, inputs: &inputs, outputs: &[], interrupt: &interrupt };
    let geometry = DepthwiseGeometry::from_args(&args).unwrap();
    let orders = [
        Order::Plain,
        #[cfg(target_arch = "x86_64")]
        Order::Wide,
        #[cfg(target_arch = "x86_64")]
        Order::Words,
    ];
    for order in orders {
        let packing = Packing { geometry: &geometry, input_zero: 3, weight_zero: 3, rows: 1, order };
        interrupt.take();
        assert!(packing.bias(&args, &mut Source::pack(&Slab::default())).is_some());
        // Weights are summed, biases are made of the sums, and they are put in order.
        let (passed, passes) = (interrupt.take(), if order == Order::Plain { 2 } else { 3 });
        assert!(passed >= passes * (CHANNELS >> 16), "{passed} yield points in {passes} passes");
    }
}
