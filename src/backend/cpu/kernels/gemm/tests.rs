//! Products against naive ones, at odd sizes, for each instruction set: with what lies beside the inputs not to be read.

use super::*;
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::{Kernel, Source, Work};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{Slab, Target, View};
use crate::ops::{Interrupt, NeverInterrupted, OpError};
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;
use packed::Zeros;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements that end where memory does: whoever reads beyond them dies.
struct AtTheEnd<T> {
    mapping: *mut libc::c_void,
    len: usize,
    first: *mut T,
    count: usize,
}

const PAGE: usize = 4096;

impl<T: Copy> AtTheEnd<T> {
    fn new(elements: &[T]) -> Self {
        let bytes = size_of_val(elements);
        let len = bytes.next_multiple_of(PAGE) + PAGE;
        // SAFETY: fresh pages, of which the last is made inaccessible; the elements fit before it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping =
                libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapping.add(len - PAGE), PAGE, libc::PROT_NONE), 0);
            let first = mapping.add(len - PAGE - bytes).cast::<T>();
            first.copy_from_nonoverlapping(elements.as_ptr(), elements.len());
            AtTheEnd { mapping, len, first, count: elements.len() }
        }
    }

    fn elements(&self) -> &[T] {
        // SAFETY: they were written, and live as long as the mapping.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl<T> Drop for AtTheEnd<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.mapping, self.len) };
    }
}

/// The NaN with the greatest bits.
const ALL_ONES: f32 = f32::from_bits(i32::MAX as u32);

/// A small deterministic generator.
pub struct Noise(pub u32);

impl Noise {
    pub fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 24) as u8
    }

    pub fn float(&mut self) -> f32 {
        f32::from(self.byte()) / 128.0 - 1.0
    }
}

/// Multiplies matrices by a kernel, rows at the end of memory.
pub fn run<F: micro::Family>(
    packed: Packed<F>,
    a: &[F::Input],
    outputs: usize,
    threads: usize,
) -> Vec<F::Output> {
    let product = Product { packed, rows: Rows::Matrix };
    let (input, pool) = (AtTheEnd::new(a), ThreadPool::new(threads).unwrap());
    let output = AtTheEnd::new(&vec![<F::Output as bytemuck::Zeroable>::zeroed(); outputs]);
    // SAFETY: both hold so many elements, which any bytes are; nobody else refers to the output's.
    let (from, to) = unsafe {
        let bytes = std::slice::from_raw_parts(input.first.cast::<u8>(), size_of_val(a));
        let len = outputs * size_of::<F::Output>();
        (bytes, std::slice::from_raw_parts_mut(output.first.cast::<u8>(), len))
    };
    let work = Work::new(pool.team(threads), &NeverInterrupted);
    product.run(&[Some(View::of(from))], &mut [Target::of(to)], work).unwrap();
    output.elements().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_equal_the_naive_product(
        // One row goes its own way.
        rows in prop_oneof![1 => Just(1), 3 => 1usize..70], depth in prop_oneof![7 => 1usize..200, 1 => 200usize..2600], columns in 1usize..150, zeros in any::<(u8, u8)>(),
        signed in any::<(bool, bool, bool)>(), large in prop::bool::weighted(0.2), threads in 1usize..4, seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        // Weights that have no least number are multiplied in other ways, and so is what is nothing but extremes.
        let (has_least, is_extreme, is_whole) = (seed % 2 == 0, seed % 5 == 0, seed % 3 > 0);
        let extreme = |byte: u8| if is_extreme { 0x7f + byte % 2 } else { byte };
        let least = if signed.1 { i8::MIN } else { 0 };
        let weight = |byte: u8| if has_least || byte as i8 != least { byte as i8 } else { least + 1 };
        let weights: Vec<i8> = (0..columns * depth).map(|_| weight(extreme(noise.byte()))).collect();
        let bias: Vec<i32> = (0..columns).map(|_| i32::from(noise.byte()) * 100 - 10_000).collect();
        let scale = if large { 20.0 } else { 30_000.0 };
        let multipliers: Vec<Multiplier> = (0..columns).map(|_| Multiplier::new(f64::from(noise.byte().max(1)) / scale)).collect();
        let a: Vec<u8> = (0..rows * depth).map(|_| extreme(noise.byte())).collect();
        let typed = |signed: bool, byte: u8| if signed { i32::from(byte as i8) } else { i32::from(byte) };
        let zeros = Zeros {
            signed_inputs: signed.0, input: typed(signed.0, zeros.0),
            signed_weights: signed.1, weight: typed(signed.1, zeros.1),
        };
        // All bytes of a type, the least of which may stand for 0, are made in other ways, too.
        let (ty, range, zero) = match (signed.2, is_whole) {
            (true, true) => (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, (-128, 127), if seed % 4 < 2 { -128 } else { 3 }),
            (true, false) => (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, (-100, 120), 3),
            (false, _) => (OperandType::TENSOR_QUANT8_ASYMM, (3, 255), 3),
        };
        let once = depth % 2 == 0;
        let requantisation = Requantisation { multipliers: &multipliers, ty, zero, range, once, interrupt: &NeverInterrupted };
        let expected: Vec<u8> = (0..rows * columns).map(|i| {
            let (row, column) = (i / columns, i % columns);
            let product = |j: usize| {
                let a = typed(signed.0, a[row * depth + j]) - zeros.input;
                a * (typed(signed.1, weights[column * depth + j] as u8) - zeros.weight)
            };
            let sum = (0..depth).map(product).sum::<i32>() + bias[column];
            let multiplier = multipliers[column];
            let scaled = if once { multiplier.apply_once(sum) } else { multiplier.apply(sum) };
            scaled.saturating_add(zero).clamp(range.0, range.1) as u8
        }).collect();
        for isa in Isa::available() {
            let constants = || Some(Constants { weights: View::of(&weights[..]), bias: &bias[..], interrupt: &NeverInterrupted });
            let shape = Shape { columns, segments: 1, depth };
            let packed = Packed::quant(isa, shape, zeros, &requantisation, &mut Source::pack(&Slab::default()), constants).unwrap();
            prop_assert_eq!(&run(packed, &a, rows * columns, threads), &expected, "{:?}", isa);
        }
    }

    #[test]
    fn floats_equal_the_naive_product(
        rows in 1usize..200, depth in prop_oneof![1usize..60, 1usize..600],
        columns in prop_oneof![1usize..150, 1usize..600, (1usize..5).prop_map(|panels| 128 * panels)],
        threads in 1usize..4, seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let [a, weights, bias] = [rows * depth, columns * depth, columns].map(|count| (0..count).map(|_| noise.float()).collect::<Vec<_>>());
        // What few rows are multiplied by may be something else.
        for (isa, many) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 1000)]) {
            let packed = || {
                let constants = || Some(Constants { weights: View::of(&weights[..]), bias: &bias[..], interrupt: &NeverInterrupted });
                Packed::float(isa, many, Shape { columns, segments: 1, depth }, (-1.5, 1.5), &mut Source::pack(&Slab::default()), constants).unwrap()
            };
            let c = run(packed(), &a, rows * columns, threads);
            for (i, &actual) in c.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let products = (0..depth).map(|j| f64::from(a[row * depth + j]) * f64::from(weights[column * depth + j]));
                let (dot, size) = products.fold((0.0, 0.0), |(dot, size), product| (dot + product, size + product.abs()));
                let expected = (dot + f64::from(bias[column])).clamp(-1.5, 1.5);
                let bound = 1e-6 * (size + 1.0);
                prop_assert!((f64::from(actual) - expected).abs() < bound, "{:?} {} {}: {} {}", isa, row, column, actual, expected);
            }
            // A row is the same bytes whatever is beside it.
            let bits = |c: &[f32]| c.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            for row in [0, rows / 2, rows - 1] {
                let alone = run(packed(), &a[row * depth..][..depth], columns, 1);
                prop_assert_eq!(bits(&alone), bits(&c[row * columns..][..columns]), "{:?}", isa);
            }
        }
    }

    /// What is no number, too large or very small goes into the products that have it, and no others.
    #[test]
    fn extremes_are_multiplied_as_one_by_one(
        rows in 32usize..100, depth in 32usize..300, columns in 32usize..100, threads in 1usize..4, seed in any::<u32>(),
        extremes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), prop::sample::select(&[
            f32::INFINITY, f32::NEG_INFINITY, f32::NAN, ALL_ONES, f32::MAX, f32::MIN_POSITIVE, 1e-40, -0.0, 1e20, 2e18, 1e-33,
        ])), 0..4),
    ) {
        let mut noise = Noise(seed);
        let [mut a, mut weights] = [rows * depth, columns * depth].map(|count| (0..count).map(|_| noise.float()).collect::<Vec<_>>());
        for (is_input, at, value) in extremes {
            let to = if is_input { &mut a } else { &mut weights };
            let at = at.index(to.len());
            to[at] = value;
        }
        let (bias, range) = (vec![0.0; columns], (f32::NEG_INFINITY, f32::INFINITY));
        for (isa, many) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 1000)]) {
            let constants = || Some(Constants { weights: View::of(&weights[..]), bias: &bias[..], interrupt: &NeverInterrupted });
            let packed = Packed::float(isa, many, Shape { columns, segments: 1, depth }, range, &mut Source::pack(&Slab::default()), constants).unwrap();
            for (i, actual) in run(packed, &a, rows * columns, threads).into_iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let products = (0..depth).map(|j| f64::from(a[row * depth + j]) * f64::from(weights[column * depth + j]));
                let (dot, size) = products.fold((0.0, 0.0), |(dot, size), product| (dot + product, size + product.abs()));
                // Near the largest number it is a matter of the order whether a sum has left them.
                let is_alike = match dot as f32 {
                    dot if dot.is_nan() => actual.is_nan(),
                    dot if dot.is_infinite() => actual == dot,
                    _ => (f64::from(actual) - dot).abs() < 1e-6 * (size + 1.0) || size > f64::from(f32::MAX),
                };
                prop_assert!(is_alike, "{:?} {} {}: {} {}", isa, row, column, actual, dot);
            }
        }
    }
}

/// Whether sums are scaled as by the shared arithmetic, about such a zero point: each is the bias of a column, whose input is 0.
fn assert_scaled(pairs: &[(i32, Multiplier)], once: bool, zero: i32) {
    let (bias, multipliers): (Vec<i32>, Vec<Multiplier>) = pairs.iter().copied().unzip();
    let columns = pairs.len();
    let scaled = |&(sum, m): &(i32, Multiplier)| if once { m.apply_once(sum) } else { m.apply(sum) };
    let expected: Vec<u8> =
        pairs.iter().map(|pair| scaled(pair).saturating_add(zero).clamp(-128, 127) as u8).collect();
    let requantisation = Requantisation {
        multipliers: &multipliers,
        ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        zero,
        range: (-128, 127),
        once,
        interrupt: &NeverInterrupted,
    };
    let zeros = Zeros { signed_inputs: true, input: 0, signed_weights: true, weight: 0 };
    for isa in Isa::available() {
        let weights = vec![0i8; columns];
        let constants = || {
            Some(Constants { weights: View::of(&weights[..]), bias: &bias[..], interrupt: &NeverInterrupted })
        };
        let shape = Shape { columns, segments: 1, depth: 1 };
        let packed =
            Packed::quant(isa, shape, zeros, &requantisation, &mut Source::pack(&Slab::default()), constants)
                .unwrap();
        assert_eq!(run(packed, &[1], columns, 1), expected, "{isa:?}");
    }
}

#[test]
fn extreme_sums_are_scaled_as_the_shared_arithmetic() {
    let sums =
        [i32::MIN, i32::MIN + 1, -(1 << 30), -1000, -3, -1, 0, 1, 2, 1000, 1 << 30, i32::MAX - 1, i32::MAX];
    let reals =
        (-36..36).flat_map(|exponent| [0.5, 0.61, 0.75, 0.999_999_999].map(|m: f64| m * 2f64.powi(exponent)));
    let multipliers: Vec<Multiplier> = reals.chain([0.0, 1e30]).map(Multiplier::new).collect();
    // Those below 1, and those below a half, once more without the others, beside which they are scaled in another way.
    for most in [i32::MAX, 0, -1] {
        let multipliers = multipliers.iter().copied().filter(|m| m.shift <= most);
        let pairs: Vec<_> = multipliers.flat_map(|m| sums.map(|sum| (sum, m))).collect();
        for (once, zero) in [(false, 7), (false, -128), (true, 7), (true, -128)] {
            assert_scaled(&pairs, once, zero);
        }
    }
}

proptest! {
    /// Sums beside those that are in the middle between two bytes, which rounding decides.
    #[test]
    fn sums_near_the_middle_are_scaled_as_the_shared_arithmetic(
        columns in prop::collection::vec((1i32 << 30..=i32::MAX, -14i32..=0, -400i32..400, -3i32..=3), 1..200),
        once in any::<bool>(), zero in prop::sample::select(vec![7, -128]),
    ) {
        let pairs = columns.into_iter().map(|(mantissa, shift, whole, beside)| {
            let real = f64::from(mantissa) * f64::from(shift - 31).exp2();
            let middle = (f64::from(whole) + 0.5) / real;
            (middle.round() as i32 + beside, Multiplier { mantissa, shift })
        });
        assert_scaled(&pairs.collect::<Vec<_>>(), once, zero);
    }
}

/// What is known of how large sums can be, by their depth or by the weights, is used where outputs are packed.
#[test]
fn sums_beyond_16_bits_are_clamped_as_others_are() {
    const DEPTH: usize = 72;
    let rows: Vec<i8> = (0..11).map(|row| [127, -128, 1, -1][row % 4]).collect();
    let inputs: Vec<u8> = rows.iter().flat_map(|&byte| [byte as u8; DEPTH]).collect();
    for (weight, largest) in [127i8, -127, 2, 1].into_iter().flat_map(|weight| {
        [100.0, 31_900.0, 32_700.0, 33_000.0, 65_500.0, 66_000.0, 131_000.0].map(|largest| (weight, largest))
    }) {
        // Some columns have sums that are always short.
        let weights: Vec<i8> = (0..21).map(|column| if column < 8 { 1 } else { weight }).collect();
        let real = largest / f64::from(128 * i32::from(weight).abs() * DEPTH as i32);
        let multipliers = vec![Multiplier::new(real.min(0.49)); weights.len()];
        let packed: Vec<i8> = weights.iter().flat_map(|&weight| [weight; DEPTH]).collect();
        for zero in [-128, 7] {
            let requantisation = Requantisation {
                multipliers: &multipliers,
                ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                zero,
                range: (-128, 127),
                once: false,
                interrupt: &NeverInterrupted,
            };
            let expected: Vec<u8> = rows
                .iter()
                .flat_map(|&byte| weights.iter().map(move |&weight| i32::from(byte) * i32::from(weight)))
                .map(|product| {
                    multipliers[0].apply(product * DEPTH as i32).saturating_add(zero).clamp(-128, 127) as u8
                })
                .collect();
            let zeros = Zeros { signed_inputs: true, input: 0, signed_weights: true, weight: 0 };
            for isa in Isa::available() {
                let (shape, bias) =
                    (Shape { columns: weights.len(), segments: 1, depth: DEPTH }, vec![0; weights.len()]);
                let constants = || {
                    Some(Constants {
                        weights: View::of(&packed[..]),
                        bias: &bias[..],
                        interrupt: &NeverInterrupted,
                    })
                };
                let slab = Slab::default();
                let source = &mut Source::pack(&slab);
                let packed = Packed::quant(isa, shape, zeros, &requantisation, source, constants).unwrap();
                let made = run(packed, &inputs, expected.len(), 2);
                assert_eq!(made, expected, "{isa:?} {weight} {largest} {zero}");
            }
        }
    }
}

#[test]
fn floats_keep_nan_and_lengths_must_fit() {
    for isa in Isa::available() {
        let shape = Shape { columns: 1, segments: 1, depth: 1 };
        let constants = || {
            Some(Constants {
                weights: View::of(&[1.0f32][..]),
                bias: &[0.0f32][..],
                interrupt: &NeverInterrupted,
            })
        };
        let packed =
            Packed::float(isa, 1, shape, (0.0, 6.0), &mut Source::pack(&Slab::default()), constants).unwrap();
        let c = run(packed, &[f32::NAN, 9.0, -1.0], 3, 1);
        assert!(c[0].is_nan() && c[1..] == [6.0, 0.0], "{isa:?} {c:?}");
        let short = || {
            Some(Constants {
                weights: View::of(&[1.0f32][..]),
                bias: &[0.0f32, 0.0][..],
                interrupt: &NeverInterrupted,
            })
        };
        let shape = Shape { columns: 2, ..shape };
        assert!(
            Packed::float(isa, 1, shape, (0.0, 6.0), &mut Source::pack(&Slab::default()), short).is_none()
        );
    }
}

proptest! {
    #[test]
    fn tasks_cover_everything_once(
        rows in 0usize..5_000, tile in 1usize..40, panels in 1usize..60, products in 0usize..1 << 22,
        bytes in (0usize..1 << 16, 0usize..1 << 20), flags in any::<(bool, bool)>(), each in 1usize..9,
        threads in 1usize..17,
    ) {
        let cost = share::Cost { rows, tile, is_of_lines: flags.0, panels, products, finish: bytes.0, row_bytes: bytes.0, panel_bytes: bytes.1, output_bytes: bytes.0, each, is_gone_on_with: flags.1 };
        let grid = share::Grid::new(cost, threads);
        let mut cells = vec![0u8; rows * panels];
        for (rows, panels_of_task) in (0..grid.tasks()).map(|i| grid.task(i)) {
            for row in rows {
                panels_of_task.clone().for_each(|panel| cells[row * panels + panel] += 1);
            }
        }
        prop_assert!(cells.iter().all(|&count| count == 1));
    }
}

#[test]
fn packing_and_multiplying_stop_when_they_are_told_and_pass_the_turn_on() {
    /// Counts yield points.
    #[derive(Default)]
    struct Passing(AtomicUsize);
    impl Interrupt for Passing {
        fn check(&self) -> Result<(), OpError> {
            Ok(())
        }
        fn yield_point(&self) -> Result<(), OpError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
    struct Cancelled;
    impl Interrupt for Cancelled {
        fn check(&self) -> Result<(), OpError> {
            Err(OpError::Cancelled)
        }
    }
    let (weights, bias) = (vec![1.0f32; 1 << 20], [0.0f32; 1 << 10]);
    let shape = Shape { columns: 1 << 10, segments: 1, depth: 1 << 10 };
    for isa in Isa::available() {
        let pack = |interrupt: &dyn Interrupt| {
            let constants =
                || Some(Constants { weights: View::of(&weights[..]), bias: &bias[..], interrupt });
            Packed::float(isa, 1, shape, (0.0, 6.0), &mut Source::pack(&Slab::default()), constants)
        };
        assert!(pack(&Cancelled).is_none());
        let passing = Passing::default();
        let product = Product { packed: pack(&passing).unwrap(), rows: Rows::Matrix };
        assert!(passing.0.into_inner() >= 16, "for 4 MiB");
        let (input, mut output) = ([0u8; 4 << 10], [0u8; 4 << 10]);
        let (pool, passing) = (ThreadPool::new(1).unwrap(), Passing::default());
        let mut run = |interrupt: &dyn Interrupt| {
            let work = Work::new(pool.team(1), interrupt);
            product.run(&[Some(View::of(&input[..]))], &mut [Target::of(&mut output[..])], work)
        };
        assert_eq!((run(&passing), run(&Cancelled)), (Ok(()), Err(OpError::Cancelled)));
        assert!(passing.0.into_inner() > 0);
    }
}
