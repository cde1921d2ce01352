//! Steps that go together against the same steps one by one.

use super::chain::Chain;
use super::find_chains::{chains_of, MOST_STEPS};
use super::kernels::{Image, Rowwise, Work};
use super::pool::ThreadPool;
use super::program::Program;
use super::routine::Routine;
use super::samples::{data_of, floats, made_up, run, Build};
use crate::backend::{CompileOptions, Control, Preference, Saved};
use crate::memory::{Target, View};
use crate::model::Model;
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, NeverInterrupted, OpError, OperationType};
use crate::tensor::{OperandType, TensorInfo};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Convolutions one after the other, whose images between are large.
#[derive(Clone, Debug)]
struct Layers {
    quantised: bool,
    batches: u32,
    size: u32,
    /// Of the input, of the large images, of the output.
    channels: [u32; 3],
    /// Of the first and last convolution.
    sides: [u32; 2],
    /// Of the depthwise one: side, stride, dilation; whether what is beside the image counts.
    window: (u32, u32, u32),
    same: bool,
    /// How many functions of each element are taken of the large images, one after the other: none, one, or some that are merged.
    bends: [usize; 2],
}

impl Layers {
    fn info(&self, dims: &[u32], scale: f32) -> TensorInfo {
        match self.quantised {
            true => TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, dims, scale, 3),
            false => TensorInfo::new(OperandType::TENSOR_FLOAT32, dims),
        }
    }

    fn constant(&self, b: &mut Build, dims: &[u32], seed: f32) -> usize {
        let values = floats(dims.iter().product::<u32>() as usize, seed);
        match self.quantised {
            true => {
                let bytes: Vec<i8> = values.iter().map(|x| (x * 100.0) as i8).collect();
                b.constant(TensorInfo { zero_point: 0, ..self.info(dims, 0.01) }, &bytes)
            }
            false => b.constant(self.info(dims, 0.0), &values),
        }
    }

    fn bias(&self, b: &mut Build, count: u32, scale: f32) -> usize {
        let values = floats(count as usize, 5.0);
        match self.quantised {
            true => {
                let sums: Vec<i32> = values.iter().map(|x| (x * 500.0) as i32).collect();
                b.constant(TensorInfo::quantised(OperandType::TENSOR_INT32, &[count], scale, 0), &sums)
            }
            false => b.constant(self.info(&[count], 0.0), &values),
        }
    }

    fn model(&self) -> Model {
        let [first, large, last] = self.channels;
        let mut b = Build::new();
        let image = |size: u32, channels, scale| self.info(&[self.batches, size, size, channels], scale);
        let input = b.input(image(self.size, first, 0.1));
        let filter = self.constant(&mut b, &[large, self.sides[0], self.sides[0], first], 1.0);
        let mut inputs = vec![input, filter, self.bias(&mut b, large, 0.001)];
        inputs.extend(b.ints(&[1, 1, 1, 1]));
        let wide = b.call(OperationType::CONV_2D, 0, &inputs, image(self.size, large, 0.02));
        let bend = |b: &mut Build, made: usize, bends: usize| {
            let info = b.info(made);
            (0..bends).fold(made, |made, _| b.call(OperationType::HARD_SWISH, 0, &[made], info.clone()))
        };
        let wide = bend(&mut b, wide, self.bends[0]);
        let (side, stride, dilation) = self.window;
        let reach = (side - 1) * dilation + 1;
        let size = if self.same { self.size.div_ceil(stride) } else { (self.size - reach) / stride + 1 };
        let filter = self.constant(&mut b, &[1, side, side, large], 2.0);
        let mut inputs = vec![wide, filter, self.bias(&mut b, large, 0.0002)];
        let scheme = if self.same { 1 } else { 2 };
        inputs.extend(b.ints(&[scheme, stride as i32, stride as i32, 1, 0]));
        let layout = TensorInfo::new(OperandType::BOOL, &[]);
        inputs.push(b.constant(layout, &[0u8]));
        inputs.extend(b.ints(&[dilation as i32; 2]));
        let filtered = b.call(OperationType::DEPTHWISE_CONV_2D, 0, &inputs, image(size, large, 0.01));
        let filtered = bend(&mut b, filtered, self.bends[1]);
        let filter = self.constant(&mut b, &[last, self.sides[1], self.sides[1], large], 3.0);
        let mut inputs = vec![filtered, filter, self.bias(&mut b, last, 0.0001)];
        inputs.extend(b.ints(&[1, 1, 1, 0]));
        let out = b.call(OperationType::CONV_2D, 0, &inputs, image(size, last, 0.05));
        Model { main: b.finish(out), referenced: vec![], relaxed: false }
    }
}

fn compile(model: &Model, threads: usize) -> Program {
    let pool = Arc::new(ThreadPool::new(threads).unwrap());
    Program::compile(model, &CompileOptions::default(), pool, &Control::default()).unwrap()
}

/// The chains of a routine where images of so many bytes are worth it.
fn chains(routine: &Routine, large: usize) -> Vec<Chain> {
    chains_of(routine, large, &mut Pace::of(&NeverInterrupted)).unwrap()
}

/// Runs a chain from `input`.
fn run_chain(
    routine: &Routine,
    chain: &Chain,
    (images, block, bands): (&[Image], usize, usize),
    input: &[u8],
    pool: &ThreadPool,
    interrupt: &dyn Interrupt,
) -> Result<Vec<u8>, OpError> {
    let makers: Vec<_> = chain.links.iter().map(|link| routine.maker(link).unwrap()).collect();
    let (last, between) = images.split_last().unwrap();
    let rooms = pool.team(usize::MAX).threads();
    let mut buffers: Vec<Vec<u8>> =
        between.iter().map(|image| vec![0xaa; rooms * image.room * image.row]).collect();
    let targets: Vec<Target<u8>> = buffers.iter_mut().map(|buffer| Target::of(&mut buffer[..])).collect();
    let mut out = vec![0xaa; last.rows * last.row];
    let work = Work::new(pool.team(usize::MAX), interrupt);
    let rowwise = Rowwise { makers: &makers, images, block, bands };
    rowwise.run(View::of(input), &targets, Target::of(&mut out[..]), work)?;
    Ok(out)
}

/// The model's output by `chains`, and step by step where there are none; `how` gives images, block and bands.
fn run_by_rows(
    routine: &Routine,
    threads: usize,
    chains: &[Chain],
    how: impl Fn(&Chain) -> (Vec<Image>, usize, usize),
) -> Vec<u8> {
    let pool = ThreadPool::new(threads).unwrap();
    let input = &routine.values[routine.inputs[0]];
    let mut bytes = made_up(input.info());
    let mut next = 0;
    while let Some(step) = routine.steps.get(next) {
        if let Some(chain) = chains.iter().find(|chain| chain.steps.start == next) {
            let (images, block, bands) = how(chain);
            bytes =
                run_chain(routine, chain, (&images, block, bands), &bytes, &pool, &NeverInterrupted).unwrap();
            next = chain.steps.end;
            continue;
        }
        let mut out = vec![0; step.output_infos[0].byte_size().unwrap()];
        let work = Work::new(pool.team(1), &NeverInterrupted);
        let kernel = step.kernel.as_ref().unwrap();
        kernel.run(&[Some(View::of(&bytes[..]))], &mut [Target::of(&mut out[..])], work).unwrap();
        (bytes, next) = (out, next + 1);
    }
    bytes
}

fn layers() -> impl Strategy<Value = Layers> {
    let channels = [1u32..9, 1u32..40, 1u32..20];
    let sides = [prop::sample::select(vec![1u32, 3]), prop::sample::select(vec![1u32, 1, 2])];
    let window = (1u32..5, 1u32..4, 1u32..3);
    let all =
        (any::<bool>(), 1u32..4, 1u32..24, channels, sides, window, any::<bool>(), [0usize..3, 0usize..3]);
    all.prop_map(|(quantised, batches, size, channels, sides, window, same, bends)| {
        // A window that counts only what it covers has to fit.
        let same = same || (window.0 - 1) * window.2 + 1 > size;
        Layers { quantised, batches, size, channels, sides, window, same, bends }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn rows_that_go_together_are_the_same_bytes(
        layers in layers(), block in 1usize..9, bands in 1usize..7, threads in 1usize..4,
    ) {
        let program = compile(&layers.model(), 1);
        let (routine, expected) = (&program.routines()[0], run(&program));
        let chains = chains(routine, 0);
        // A filter as large as an image of bytes makes its one output at once.
        let by_rows = routine.steps.iter().filter_map(|step| step.kernel.as_ref()?.by_rows()).count();
        prop_assert!(by_rows < 3 || !chains.is_empty());
        let bends = chains.iter().flat_map(|chain| &chain.links).filter(|link| link.onward.is_some()).count();
        prop_assert!(by_rows < 3 || bends > 0 || layers.bends == [0, 0], "functions of elements go along");
        let roomy = |chain: &Chain| {
            let images = chain.images.iter().map(|image| Image { room: image.rows, ..*image });
            (images.collect::<Vec<_>>(), block, bands)
        };
        prop_assert!(run_by_rows(routine, threads, &chains, roomy) == expected, "in blocks of {block}");
        // What a chain reckons with is enough.
        let found = |chain: &Chain| (chain.images.clone(), chain.block, bands);
        prop_assert!(run_by_rows(routine, threads, &chains, found) == expected, "as found");
    }
}

/// Large enough for a chain of all three layers.
fn large(quantised: bool, bends: [usize; 2]) -> Layers {
    let channels = if quantised { [5, 230, 7] } else { [3, 60, 5] };
    let (sides, window) = ([1, 1], (3, 1, 1));
    Layers { quantised, batches: 1, size: 100, channels, sides, window, same: true, bends }
}

#[test]
fn large_images_go_by_rows_and_loaded_programs_do_it_too() {
    for (quantised, bends) in [(false, [0, 0]), (true, [0, 0]), (false, [1, 2]), (true, [2, 1])] {
        for threads in [1, 2] {
            let model = large(quantised, bends).model();
            let program = compile(&model, threads);
            let routine = &program.routines()[0];
            let [chain] = &routine.chains[..] else { panic!("{:?}", routine.chains) };
            assert_eq!((chain.steps.clone(), chain.links.len()), (0..3 + bends[0] + bends[1], 3));
            assert!(chain.bands(threads).is_some() && routine.followed.is_empty());
            // None is found where no image is large enough.
            assert!(chains(routine, 100 << 20).is_empty());
            let step_by_step = run_by_rows(routine, threads, &[], |_| unreachable!("there are none"));
            assert!(step_by_step == run(&program));
            let artifact = program.artifact(&NeverInterrupted).unwrap();
            let saved = Saved { models: artifact.models.clone(), data: vec![data_of(&artifact)] };
            let pool = Arc::new(ThreadPool::new(threads).unwrap());
            let loaded = Program::load(saved, Preference::default(), pool, &Control::default()).unwrap();
            assert_eq!(loaded.routines()[0].chains, routine.chains);
            assert!(step_by_step == run(&loaded));
        }
    }
}

#[test]
fn no_chain_is_longer_than_its_limit() {
    let mut b = Build::new();
    let info = |dims: &[u32]| TensorInfo::new(OperandType::TENSOR_FLOAT32, dims);
    let mut image = b.input(info(&[1, 4, 4, 1]));
    for _ in 0..3 * MOST_STEPS {
        let filter = b.constant(info(&[1, 1, 1, 1]), &[0.5f32]);
        let mut inputs = vec![image, filter, b.constant(info(&[1]), &[1.0f32])];
        inputs.extend(b.ints(&[1, 1, 1, 0]));
        image = b.call(OperationType::CONV_2D, 0, &inputs, info(&[1, 4, 4, 1]));
    }
    let program = compile(&Model { main: b.finish(image), referenced: vec![], relaxed: false }, 1);
    let found = chains(&program.routines()[0], 0);
    assert_eq!(found.iter().map(|chain| chain.steps.len()).collect::<Vec<_>>(), [MOST_STEPS; 3]);
}

#[test]
fn what_somebody_else_reads_is_made_as_a_whole() {
    let mut model = large(false, [0, 0]).model();
    // The large image is an output as well.
    let first = model.main.operations[0].outputs[0];
    model.main.outputs.push(first);
    let program = compile(&model, 1);
    let [chain] = &program.routines()[0].chains[..] else { panic!("{:?}", program.routines()[0].chains) };
    assert_eq!(chain.steps, 1..3);
}

#[test]
fn a_chain_stops_when_it_is_told() {
    struct After(AtomicUsize);
    impl Interrupt for After {
        fn check(&self) -> Result<(), OpError> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map_or(Err(OpError::Cancelled), |_| Ok(()))
        }
    }
    let program = compile(&large(false, [0, 0]).model(), 1);
    let routine = &program.routines()[0];
    let (chain, input) = (&routine.chains[0], made_up(routine.values[routine.inputs[0]].info()));
    let blocks = chain.images.last().unwrap().rows.div_ceil(chain.block);
    assert!(blocks > 3, "{chain:?}");
    for threads in [1, 2] {
        let pool = ThreadPool::new(threads).unwrap();
        let how = (&chain.images[..], chain.block, threads);
        let stopped = run_chain(routine, chain, how, &input, &pool, &After(AtomicUsize::new(2)));
        assert!(matches!(stopped, Err(OpError::Cancelled)));
    }
}
