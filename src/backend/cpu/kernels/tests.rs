//! Each kernel against the plain evaluation of its operation: the same bytes for 8-bit types, the same numbers but for
//! the order of additions for floats.

use super::forms::tests::{others, CASES};
use super::*;
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{Access, Accessed, AlignedBuf, ClientSlice, Mapping, Slab, Target, View};
use crate::ops::testing::{int, tensor, Tensor};
use crate::ops::{evaluate, Arg, NeverInterrupted, Operation, Run};
use crate::tensor::{ChannelQuant, OperandType, TensorInfo};
use half::f16;
use proptest::prelude::*;
use OperandType::*;

/// A small deterministic generator.
pub(super) struct Noise(pub(super) u32);

impl Noise {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    pub(super) fn tensor(&mut self, info: TensorInfo) -> Tensor {
        let count: usize = info.dims.iter().map(|&d| d as usize).product();
        match info.ty {
            TENSOR_FLOAT32 => {
                let values: Vec<f32> =
                    (0..count).map(|_| self.next() as f32 / (1 << 23) as f32 - 1.0).collect();
                tensor(info, &values)
            }
            TENSOR_INT32 => {
                let values: Vec<i32> = (0..count).map(|_| self.next() as i32 % 4000 - 2000).collect();
                tensor(info, &values)
            }
            _ => {
                let values: Vec<u8> = (0..count).map(|_| self.next() as u8).collect();
                tensor(info, &values)
            }
        }
    }
}

/// The type of input, and whether the filter has scales per channel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Float,
    Unsigned,
    Signed,
    PerChannel,
}

/// Input, filter, bias and output of a call.
pub(super) fn operands(
    noise: &mut Noise,
    kind: Kind,
    input: &[u32],
    filter: &[u32],
    channel_dim: usize,
) -> (Vec<Tensor>, TensorInfo) {
    let channels = filter[channel_dim];
    let plain = |dims: &[u32]| TensorInfo::new(TENSOR_FLOAT32, dims);
    let (ty, filter_info) = match kind {
        Kind::Float => (TENSOR_FLOAT32, plain(filter)),
        Kind::Unsigned => {
            (TENSOR_QUANT8_ASYMM, TensorInfo::quantised(TENSOR_QUANT8_ASYMM, filter, 0.25, 120))
        }
        Kind::Signed => {
            (TENSOR_QUANT8_ASYMM_SIGNED, TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, filter, 0.25, -3))
        }
        Kind::PerChannel => {
            let scales = (0..channels).map(|i| 0.1 + i as f32 / 50.0).collect();
            let quant = ChannelQuant { scales, dim: channel_dim as u32 };
            let info = TensorInfo::new(TENSOR_QUANT8_SYMM_PER_CHANNEL, filter);
            (TENSOR_QUANT8_ASYMM_SIGNED, TensorInfo { channel_quant: Some(quant), ..info })
        }
    };
    let (input, bias, output) = match kind {
        Kind::Float => (plain(input), plain(&[channels]), plain(&[])),
        _ => (
            TensorInfo::quantised(ty, input, 0.5, 7),
            TensorInfo::quantised(TENSOR_INT32, &[channels], 0.5 * filter_info.scale, 0),
            TensorInfo::quantised(ty, &[], 40.0, 20),
        ),
    };
    (vec![noise.tensor(input), noise.tensor(filter_info), noise.tensor(bias)], output)
}

/// Bytes of a client's memory before an argument, and after it: more than any vector has.
const BEFORE: usize = 67;
const AFTER: usize = 133;

/// Runs a call both ways, in all its forms, by each instruction set, on one thread and on several, and compares. Whether
/// there were kernels for it.
pub(super) fn compare(
    operation: &Operation,
    signature_index: usize,
    inputs: &[Tensor],
    output: TensorInfo,
    threads: usize,
) -> Result<bool, TestCaseError> {
    let call = (inputs.to_vec(), output);
    for (inputs, output) in others(operation, signature_index, &call).iter().chain([&call]) {
        for isa in isa::Isa::available() {
            let Some(alone) = compare_on(isa, operation, signature_index, inputs, output.clone(), 1)? else {
                return Ok(false);
            };
            let together = compare_on(isa, operation, signature_index, inputs, output.clone(), threads)?;
            prop_assert!(
                together.as_deref() == Some(&alone[..]),
                "{isa:?}: {threads} threads give other bytes than one"
            );
        }
    }
    Ok(true)
}

/// The bytes that a call gives with an instruction set and so many threads, if there is a kernel for it.
fn compare_on(
    isa: isa::Isa,
    operation: &Operation,
    signature_index: usize,
    inputs: &[Tensor],
    output: TensorInfo,
    threads: usize,
) -> Result<Option<AlignedBuf>, TestCaseError> {
    let args: Vec<_> = inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let outputs = [output.clone()];
    let call = Args { signature_index, inputs: &args, outputs: &outputs, interrupt: &NeverInterrupted };
    let Run::Shaped { shapes, .. } = operation.run else { panic!("kernels replace operations with shapes") };
    let Ok(dims) = shapes(&call) else { return Ok(None) };
    let outputs = [evaluate::with_dims(&output, &dims[0])];
    let call = Args { outputs: &outputs, ..call };
    let plain = evaluate::run(operation, &call).unwrap().remove(0).data;
    let Some(kernel) = select_for(isa, operation, &call, &mut Source::pack(&Slab::default())) else {
        return Ok(None);
    };
    let pool = ThreadPool::new(threads).unwrap();
    let work = Work::new(pool.team(threads), &NeverInterrupted);
    let mut views: Vec<_> = inputs.iter().map(|t| Some(View::of(&t.data))).collect();
    let mut data = AlignedBuf::zeroed(plain.len()).unwrap();
    kernel.run(&views, &mut [Target::of(&mut data)], work).unwrap();
    // The same from and to odd places of a client's memory, nothing else of which may be touched.
    let [from, to] = [inputs[0].data.len(), plain.len()]
        .map(|len| ClientSlice::whole(Mapping::anonymous(BEFORE + len + AFTER).unwrap().into()));
    let input = from.part(BEFORE, inputs[0].data.len()).unwrap();
    input.write(&inputs[0].data).unwrap();
    let held = [(&from, Access::Read), (&to, Access::Write)]
        .map(|(whole, access)| Accessed::new(whole.mapping(), access).unwrap().unwrap());
    views[0] = held[0].view(&input);
    kernel.packed_inputs().iter().for_each(|&i| views[i] = None);
    let output_slice = to.part(BEFORE, plain.len()).unwrap();
    kernel.run(&views, &mut [held[1].target(&output_slice, plain.len()).unwrap()], work).unwrap();
    let written = to.to_private().unwrap();
    prop_assert_eq!(&written[BEFORE..][..plain.len()], &data[..]);
    prop_assert!(written[..BEFORE].iter().chain(&written[BEFORE + plain.len()..]).all(|&byte| byte == 0));
    if output.ty == TENSOR_FLOAT32 {
        let (fast, plain): (&[f32], &[f32]) = (bytemuck::cast_slice(&data), bytemuck::cast_slice(&plain));
        for (i, (a, b)) in fast.iter().zip(plain).enumerate() {
            prop_assert!((a - b).abs() < 1e-4, "{:?}, element {}: {} and {}", isa, i, a, b);
        }
    } else if output.ty == TENSOR_FLOAT16 {
        let (fast, plain): (&[f16], &[f16]) = (bytemuck::cast_slice(&data), bytemuck::cast_slice(&plain));
        for (i, (a, b)) in fast.iter().zip(plain).map(|(a, b)| (a.to_f32(), b.to_f32())).enumerate() {
            // Sums that lie between two half floats may go to one or to the other.
            prop_assert!(
                (a - b).abs() < 1e-4 + b.abs() / 1024.0,
                "{:?}, element {}: {} and {}",
                isa,
                i,
                a,
                b
            );
        }
    } else {
        prop_assert_eq!(&data[..], &plain[..], "{:?}", isa);
    }
    Ok(Some(data))
}

pub(super) fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Float, Kind::Unsigned, Kind::Signed, Kind::PerChannel])
}

fn run_conv(
    kind: Kind,
    depthwise: bool,
    dims: (u32, u32, u32),
    channels: (u32, u32),
    window: (u32, i32, i32, i32),
    activation: i32,
    seed: u32,
) -> Result<bool, TestCaseError> {
    let ((batches, height, width), (from, to), (kernel, stride, dilation, scheme)) = (dims, channels, window);
    let filter = if depthwise { [1, kernel, kernel, from] } else { [to, kernel, kernel, from] };
    let channel_dim = if depthwise { 3 } else { 0 };
    let (mut inputs, output) =
        operands(&mut Noise(seed), kind, &[batches, height, width, from], &filter, channel_dim);
    inputs.extend([int(scheme), int(stride), int(stride)]);
    if depthwise {
        inputs.push(int(1));
    }
    inputs.extend([int(activation), crate::ops::testing::boolean(false), int(dilation), int(dilation)]);
    let ty = if depthwise { OperationType::DEPTHWISE_CONV_2D } else { OperationType::CONV_2D };
    compare(ty.operation().unwrap(), 0, &inputs, output, 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn convolutions_equal_the_plain_one(
        kind in kind(), depthwise in any::<bool>(),
        dims in (0u32..3, 1u32..9, 1u32..9), channels in (1u32..40, 1u32..40),
        window in (1u32..4, 1i32..3, 1i32..3, 1i32..3), activation in 0i32..4, seed in any::<u32>(),
    ) {
        run_conv(kind, depthwise, dims, channels, window, activation, seed)?;
        // Images of one pixel are the rows of a fully connected layer.
        run_conv(kind, depthwise, (dims.0, 1, 1), channels, window, activation, seed)?;
    }

    #[test]
    fn fully_connected_equals_the_plain_one(
        kind in prop::sample::select(vec![Kind::Float, Kind::Unsigned, Kind::Signed]),
        rows in 0u32..20, k in 1u32..70, units in 1u32..70, activation in 0i32..4, seed in any::<u32>(),
    ) {
        let (mut inputs, output) = operands(&mut Noise(seed), kind, &[rows, k], &[units, k], 0);
        inputs.push(int(activation));
        compare(OperationType::FULLY_CONNECTED.operation().unwrap(), 0, &inputs, output, 3)?;
    }

    #[test]
    fn products_of_pairs_equal_the_plain_ones(
        bytes in any::<bool>(), batches in (1u32..4, 1u32..4), broadcast in any::<bool>(),
        sizes in (1u32..50, 1u32..150, 1u32..150), turned in any::<[bool; 2]>(), seed in any::<u32>(),
    ) {
        run_pairs(bytes, batches, broadcast, sizes, turned, seed)?;
        // Few matrices, which threads share strip by strip.
        run_pairs(bytes, (1, 1), false, (sizes.0, sizes.1, sizes.2 + 500), turned, seed)?;
    }

    /// Lines of more pixels than a tile has, and filters that reach beyond them by much.
    #[test]
    fn wide_images_equal_the_plain_one(
        kind in kind(), dims in (1u32..3, 1u32..6, 14u32..70), channels in (1u32..70, 1u32..70),
        window in (1u32..6, 1i32..4, 1i32..4, 1i32..3), seed in any::<u32>(),
    ) {
        run_conv(kind, false, dims, channels, window, 0, seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES / 2))]

    /// Lines that tiles go on across, and images that end within a tile.
    #[test]
    fn narrow_images_equal_the_plain_one(
        kind in prop::sample::select(vec![Kind::Unsigned, Kind::Signed, Kind::PerChannel]),
        batches in 1u32..3, height in 1u32..20, width in prop::sample::select(vec![1u32, 3, 7, 14, 15, 17, 28, 31, 56]),
        channels in (prop::sample::select(vec![1u32, 3, 16, 61, 64, 130]), 1u32..140),
        window in (prop::sample::select(vec![1u32, 2, 3, 5]), 1i32..4, prop::sample::select(vec![1i32, 1, 2, 3]), 1i32..3),
        seed in any::<u32>(),
    ) {
        run_conv(kind, false, (batches, height, width), channels, window, 0, seed)?;
    }
}

/// Multiplied by channels they are what no 32-bit address has.
#[test]
fn the_longest_steps_and_distances_equal_the_plain_ones() {
    for kind in [Kind::Float, Kind::Unsigned, Kind::PerChannel] {
        for (depthwise, kernel) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
            let dilation = if kernel == 1 { i32::MAX } else { 1 };
            for (stride, dilation) in [(i32::MAX, 1), (1, dilation), (i32::MAX, dilation)] {
                let window = (kernel, stride, dilation, 2);
                let made = run_conv(kind, depthwise, (1, 2, 2), (4, 4), window, 0, 7).unwrap();
                assert!(made, "{kind:?} {depthwise} {window:?}");
            }
        }
    }
}

/// What first layers are: patches of few channels, whose rows of taps are as long as some words, or longer than those that
/// are copied by words.
#[test]
fn filters_of_few_channels_equal_the_plain_one() {
    for kind in [Kind::Float, Kind::Unsigned, Kind::Signed, Kind::PerChannel] {
        for (channels, kernel) in [(3, 7), (3, 3), (1, 5), (1, 9), (3, 9), (3, 11), (5, 3)] {
            for (columns, scheme) in [(64, 1), (35, 2)] {
                let found = run_conv(
                    kind,
                    false,
                    (1, 15, 19),
                    (channels, columns),
                    (kernel, 2, 1, scheme),
                    1,
                    kernel,
                );
                assert!(found.unwrap(), "{kind:?} {channels} {kernel}");
            }
        }
    }
}

fn run_pairs(
    bytes: bool,
    (outer, inner): (u32, u32),
    broadcast: bool,
    (rows, depth, columns): (u32, u32, u32),
    [turn_left, turn_right]: [bool; 2],
    seed: u32,
) -> Result<bool, TestCaseError> {
    let matrix = |a: u32, b: u32, turned: bool| if turned { [b, a] } else { [a, b] };
    let info = |scale: f32, zero: i32, dims: [u32; 2], matrix: [u32; 2]| {
        let dims = [dims, matrix].concat();
        match bytes {
            true => TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &dims, scale, zero),
            false => TensorInfo::new(TENSOR_FLOAT32, &dims),
        }
    };
    let mut noise = Noise(seed);
    let left = info(0.5, -7, [outer, inner], matrix(rows, depth, turn_left));
    let right_batch = if broadcast { [1, inner] } else { [outer, inner] };
    let right = info(0.25, 3, right_batch, matrix(depth, columns, turn_right));
    let mut inputs = vec![noise.tensor(left), noise.tensor(right)];
    inputs.extend([turn_left, turn_right].map(crate::ops::testing::boolean));
    let output = info(20.0, -1, [0, 0], [0, 0]);
    compare(OperationType::BATCH_MATMUL.operation().unwrap(), 0, &inputs, output, 3)
}

#[test]
fn there_are_kernels_for_the_common_calls() {
    for bytes in [false, true] {
        assert!(run_pairs(bytes, (2, 2), false, (3, 4, 5), [false; 2], 1).unwrap());
    }
    for kind in [Kind::Float, Kind::Unsigned, Kind::Signed, Kind::PerChannel] {
        for depthwise in [false, true] {
            let found = run_conv(kind, depthwise, (1, 9, 7), (33, 35), (3, 2, 1, 1), 3, 1).unwrap();
            assert!(found, "{kind:?} {depthwise}");
        }
    }
}
