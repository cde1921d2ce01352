//! Against the plain evaluation, against numbers of twice the length, and which convolutions go this way.

use super::super::isa::Isa;
use super::super::tests::{compare, operands, Kind, Noise};
use super::floats::{self, micro, LEAST_TILES};
use super::transform::PLACES;
use super::*;
use crate::backend::cpu::kernels::{select, Source};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::Slab;
use crate::ops::testing::{boolean, int, InterruptedAfter, Tensor};
use crate::ops::{evaluate, Arg, Args, Interrupt, NeverInterrupted, OperationType};
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;

/// A call of CONV_2D, with padding on all four sides.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    pub image: [u32; 3],
    pub channels: [u32; 2],
    pub side: u32,
    /// Before and after, across and down.
    pub padding: [i32; 4],
    pub stride: i32,
    pub dilation: i32,
    pub activation: i32,
}

pub const CALL: Call = Call {
    kind: Kind::Float,
    image: [1, 12, 12],
    channels: [16, 16],
    side: 3,
    padding: [1; 4],
    stride: 1,
    dilation: 1,
    activation: 0,
};

impl Call {
    pub fn inputs(&self, seed: u32) -> (Vec<Tensor>, TensorInfo) {
        let Call { image: [batches, height, width], channels: [from, to], side, .. } = *self;
        let (input, filter) = ([batches, height, width, from], [to, side, side, from]);
        let (mut inputs, output) = operands(&mut Noise(seed), self.kind, &input, &filter, 0);
        inputs.extend(self.padding.map(int));
        inputs.extend([self.stride, self.stride, self.activation].map(int));
        inputs.extend([boolean(false), int(self.dilation), int(self.dilation)]);
        (inputs, output)
    }

    pub fn dims(&self) -> [usize; 4] {
        let Call { image: [batches, height, width], channels: [_, to], side, .. } = *self;
        let [left, right, top, bottom] = self.padding;
        let made = |size: u32, padding: i32| {
            let reach = (side as i32 - 1) * self.dilation;
            ((size as i32 + padding - reach - 1) / self.stride + 1) as usize
        };
        [batches as usize, made(height, top + bottom), made(width, left + right), to as usize]
    }

    /// Calls `run` with the call as it is known before a run.
    pub fn with<R>(&self, inputs: &[Tensor], interrupt: &dyn Interrupt, run: impl FnOnce(&Args) -> R) -> R {
        let data = |i: usize, t: &Tensor| (i > 0).then(|| t.data.clone());
        let known: Vec<_> = inputs.iter().enumerate().map(|(i, t)| (t.info.clone(), data(i, t))).collect();
        let args: Vec<_> =
            known.iter().map(|(info, data)| Some(Arg { info, data: data.as_deref() })).collect();
        let output = evaluate::with_dims(&self.inputs(0).1, &self.dims().map(|dim| dim as u32));
        run(&Args { signature_index: 1, inputs: &args, outputs: &[output], interrupt })
    }

    /// Whether it goes this way on a machine without tiles of its own.
    fn is_taken(&self) -> bool {
        self.with(&self.inputs(1).0, &NeverInterrupted, |args| {
            micro(Isa::available()[0], args, &ConvGeometry::from_args(args).unwrap()).is_some()
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(target_arch = "aarch64") { 4 } else { 16 }))]

    #[test]
    fn images_of_many_tiles_equal_the_plain_one(
        image in (1u32..3, 11u32..22, 11u32..22), channels in (16u32..60, 16u32..60),
        padding in [0i32..3, 0i32..3, 0i32..3, 0i32..3], activation in 0i32..4, threads in 2usize..4, seed in any::<u32>(),
    ) {
        let (image, channels) = ([image.0, image.1, image.2], [channels.0, channels.1]);
        let call = Call { image, channels, padding, activation, ..CALL };
        let [batches, height, width, _] = call.dims();
        let tiles = batches * height.div_ceil(2) * width.div_ceil(2);
        prop_assume!(tiles >= LEAST_TILES && 3 * batches * height * width >= 8 * tiles);
        prop_assert!(call.is_taken());
        let (inputs, output) = call.inputs(seed);
        prop_assert!(compare(OperationType::CONV_2D.operation().unwrap(), 1, &inputs, output, threads)?);
    }
}

/// One of more tiles than a block has, and of more panels than are summed up side by side.
#[test]
fn a_large_call_equals_the_plain_one() {
    let call = Call { image: [1, 23, 26], channels: [70, 150], activation: 1, ..CALL };
    let (inputs, output) = call.inputs(3);
    assert!(compare(OperationType::CONV_2D.operation().unwrap(), 1, &inputs, output, 2).unwrap());
}

#[test]
fn only_filters_of_three_by_three_on_many_whole_tiles_go_this_way() {
    let others = [
        Call { side: 1, padding: [0; 4], ..CALL },
        Call { side: 5, padding: [2; 4], ..CALL },
        Call { image: [1, 24, 24], stride: 2, ..CALL },
        Call { dilation: 2, padding: [2; 4], ..CALL },
        Call { channels: [15, 16], ..CALL },
        Call { channels: [16, 15], ..CALL },
        Call { image: [1, 10, 12], ..CALL },
        Call { image: [20, 3, 3], ..CALL },
        Call { image: [1, 1, 200], ..CALL },
    ];
    assert!(CALL.is_taken());
    assert!(Call { image: [2, 6, 12], ..CALL }.is_taken(), "tiles of all images count");
    for call in others {
        assert!(!call.is_taken(), "{call:?}");
    }
}

/// No sum is further from the truth than one rounding of all its terms' magnitudes, at each instruction set.
#[test]
fn sums_are_as_exact_as_plain_ones() {
    let call = Call { image: [1, 13, 14], channels: [96, 40], ..CALL };
    let (inputs, _) = call.inputs(5);
    let [input, filter, bias]: [&[f32]; 3] =
        std::array::from_fn(|i| bytemuck::cast_slice(&inputs[i].data[..]));
    let [_, height, width, channels] = call.dims();
    let mut truth = vec![(0f64, 0f64); height * width * channels];
    for (i, (sum, terms)) in truth.iter_mut().enumerate() {
        let (row, column, channel) = (i / channels / width, i / channels % width, i % channels);
        *sum = bias[channel].into();
        for tap in 0..9 {
            let (y, x) = (row + tap / 3, column + tap % 3);
            if !(1..=13).contains(&y) || !(1..=14).contains(&x) {
                continue;
            }
            let pixel = &input[((y - 1) * 14 + x - 1) * 96..][..96];
            for (a, b) in pixel.iter().zip(&filter[(channel * 9 + tap) * 96..]) {
                let term = f64::from(*a) * f64::from(*b);
                (*sum, *terms) = (*sum + term, *terms + term.abs());
            }
        }
    }
    let made = |isa| run(isa, &call, &inputs).map(|made| (isa, made));
    let all: Vec<_> = Isa::available().into_iter().filter_map(made).collect();
    assert!(!all.is_empty());
    for (isa, made) in all {
        assert_eq!(made.len(), truth.len());
        let mut worst = 0f64;
        for (made, (sum, terms)) in made.iter().zip(&truth) {
            worst = worst.max((f64::from(*made) - sum).abs() / terms);
        }
        assert!(worst < f64::from(f32::EPSILON), "{isa:?}: {worst}");
    }
}

/// Whatever a pixel's place in a tile is, outputs are finite just where its value is not in their windows.
#[test]
fn what_is_not_finite_stays_within_its_windows() {
    let call = Call { channels: [16, 16], ..CALL };
    let (mut inputs, _) = call.inputs(7);
    let [_, height, width, channels] = call.dims();
    let isa = Isa::available().into_iter().find(|&isa| run(isa, &call, &inputs).is_some());
    let isa = isa.expect("an instruction set without tiles of its own");
    for (x, y, value) in (0..8).map(|i| (4 + i % 2, 4 + i / 2 % 2, [f32::NAN, f32::INFINITY][i / 4])) {
        let at = ((y * 12 + x) * 16 + 5) * 4;
        let before: [u8; 4] = inputs[0].data[at..][..4].try_into().unwrap();
        inputs[0].data[at..][..4].copy_from_slice(&value.to_le_bytes());
        let made = run(isa, &call, &inputs).expect("a kernel");
        for row in 0..height {
            for column in 0..width {
                let within = row.abs_diff(y) <= 1 && column.abs_diff(x) <= 1;
                let pixel = &made[(row * width + column) * channels..][..channels];
                assert!(
                    pixel.iter().all(|made| made.is_finite() != within),
                    "{value} at {x}, {y}: {row}, {column}"
                );
            }
        }
        inputs[0].data[at..][..4].copy_from_slice(&before);
    }
}

/// `None` where the instruction set has tiles of its own for it.
fn run(isa: Isa, call: &Call, inputs: &[Tensor]) -> Option<Vec<f32>> {
    let kernel = call.with(inputs, &NeverInterrupted, |args| {
        let geometry = ConvGeometry::from_args(args).unwrap();
        let micro = micro(isa, args, &geometry)?;
        let kernel = floats::select(isa, args, geometry, micro, &mut Source::pack(&Slab::default()));
        Some(kernel.expect("a kernel"))
    })?;
    let pool = ThreadPool::new(1).unwrap();
    let mut made = vec![0u8; call.dims().iter().product::<usize>() * 4];
    let views = [Some(View::of(&inputs[0].data[..])), None, None];
    kernel.run(&views, &mut [Target::of(&mut made[..])], Work::new(pool.team(1), &NeverInterrupted)).unwrap();
    Some(bytemuck::pod_collect_to_vec(&made))
}

/// The matrices by their definition, columns and what fills the last panel included.
#[test]
fn a_filter_becomes_its_matrices() {
    const G: [[f64; 3]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
    let (columns, channels, width) = (21, 37, 16);
    let mut noise = Noise(9);
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[columns as u32, 3, 3, channels as u32]);
    let filter = noise.tensor(info);
    let filter: &[f32] = bytemuck::cast_slice(&filter.data);
    let mut packed = vec![0f32; PLACES * 2 * channels * width];
    filter::pack(View::of(filter), (columns, channels, width), &mut packed, &NeverInterrupted).unwrap();
    for (i, &made) in packed.iter().enumerate() {
        let (place, panel) = (i / (2 * channels * width), i / (channels * width) % 2);
        let (channel, column) = (i / width % channels, panel * width + i % width);
        let mut wanted = 0.0;
        if column < columns {
            for tap in 0..9 {
                let weight = f64::from(filter[(column * 9 + tap) * channels + channel]);
                wanted += G[place / 4][tap / 3] * weight * G[place % 4][tap % 3];
            }
        }
        assert!((f64::from(made) - wanted).abs() < 1e-6, "{i}: {made} and {wanted}");
    }
    let short = View::of(&filter[1..]);
    assert!(filter::pack(short, (columns, channels, width), &mut packed, &NeverInterrupted).is_none());
}

#[test]
fn packing_stops_when_it_is_told_to() {
    let call = Call { channels: [256, 128], ..CALL };
    let (inputs, _) = call.inputs(1);
    let pack = |interrupt: &dyn Interrupt| {
        call.with(&inputs, interrupt, |args| {
            let operation = OperationType::CONV_2D.operation().unwrap();
            select(operation, args, &mut Source::pack(&Slab::default())).is_some()
        })
    };
    assert!(!pack(&InterruptedAfter::checks(3)), "it looks more often than that");
    assert!(pack(&NeverInterrupted));
}
