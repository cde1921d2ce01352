//! Products of floats with bytes against naive ones that round rows the same way, at odd sizes, for each instruction set.

use super::tests::{run, Noise};
use super::*;
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::Source;
use crate::memory::{Slab, View};
use crate::ops::NeverInterrupted;
use proptest::prelude::*;

/// A product's weights, by column.
struct Weights {
    depth: usize,
    bytes: Vec<i8>,
    columns: Vec<Column>,
    range: (f32, f32),
}

impl Weights {
    fn packed(&self, isa: Isa) -> Option<Packed<Dynamic>> {
        let shape = Shape { columns: self.columns.len(), segments: 1, depth: self.depth };
        let constants = || {
            let (weights, bias) = (View::of(&self.bytes[..]), &self.columns[..]);
            Some(Constants { weights, bias, interrupt: &NeverInterrupted })
        };
        Packed::dynamic(isa, shape, self.range, &mut Source::pack(&Slab::default()), constants)
    }

    /// What one row gives.
    fn naive(&self, row: &[f32]) -> Vec<f32> {
        let low = row.iter().copied().fold(0f32, f32::min);
        let high = row.iter().copied().fold(0f32, f32::max);
        let mut scale = (high - low) * (1.0 / 255.0);
        if !scale.is_finite() {
            scale = high / 255.0 - low / 255.0;
        }
        let is_none = scale < f32::MIN_POSITIVE;
        let inverse = if is_none { 0.0 } else { 1.0 / scale };
        let byte = |x: f32| x.round_ties_even().clamp(0.0, 255.0) as i32;
        let zero = if is_none { 0 } else { byte(-low * inverse) };
        let bytes: Vec<i32> = row.iter().map(|x| byte(x * inverse + zero as f32) - zero).collect();
        if is_none {
            scale = 0.0;
        }
        if !row.iter().all(|x| x.is_finite()) {
            scale = f32::NAN;
        }
        let output = |(column, weights): (&Column, &[i8])| {
            let sum: i32 = bytes.iter().zip(weights).map(|(a, &w)| a * i32::from(w)).sum();
            let output = sum as f32 * (scale * column.scale) + column.bias;
            if output.is_nan() {
                output
            } else {
                output.clamp(self.range.0, self.range.1)
            }
        };
        self.columns.iter().zip(self.bytes.chunks_exact(self.depth)).map(output).collect()
    }

    fn check(&self, rows: &[f32], threads: usize) {
        let expected: Vec<f32> = rows.chunks_exact(self.depth).flat_map(|row| self.naive(row)).collect();
        for isa in Isa::available() {
            let Some(packed) = self.packed(isa) else { continue };
            let made = run(packed, rows, expected.len(), threads);
            for (i, (made, expected)) in made.iter().zip(&expected).enumerate() {
                let are_alike = made.to_bits() == expected.to_bits() || made.is_nan() && expected.is_nan();
                assert!(are_alike || made == expected, "{isa:?}: output {i} is {made}, expected {expected}");
            }
        }
    }
}

fn weights(depth: usize, columns: usize, noise: &mut Noise) -> Weights {
    let bytes = (0..columns * depth).map(|_| noise.byte() as i8).collect();
    let columns =
        (0..columns).map(|_| Column { bias: noise.float(), scale: noise.float() / 64.0, sum: 0 }).collect();
    Weights { depth, bytes, columns, range: (f32::NEG_INFINITY, f32::INFINITY) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_are_rounded_and_multiplied_as_naive_ones(
        rows in prop_oneof![1 => Just(1), 1 => Just(2), 3 => 1usize..70],
        depth in prop_oneof![7 => 32usize..200, 1 => 200usize..2600],
        columns in 16usize..150, is_bounded in any::<bool>(), threads in 1usize..4, seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let mut weights = weights(depth, columns, &mut noise);
        if is_bounded {
            weights.range = (-0.5, 0.75);
        }
        // Rows of their own sizes, some of one sign, some of nothing.
        let mut row = || {
            let (size, offset) = (f32::from(noise.byte()).exp2().sqrt() / 1e10, f32::from(noise.byte() % 3) - 1.0);
            let is_nothing = noise.byte() < 16;
            (0..depth).map(|_| if is_nothing { 0.0 } else { (noise.float() + offset) * size }).collect::<Vec<_>>()
        };
        let inputs: Vec<f32> = (0..rows).flat_map(|_| row()).collect();
        weights.check(&inputs, threads);
    }
}

#[test]
fn rows_of_what_is_no_number_give_none_and_others_do_not_notice() {
    let mut noise = Noise(7);
    let weights = weights(67, 37, &mut noise);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, f32::MIN_POSITIVE, 0.0];
    // Each at the start, in the middle and at the end of a row.
    let row = |i: usize, x: f32, noise: &mut Noise| {
        let mut row: Vec<f32> = (0..67).map(|_| noise.float()).collect();
        row[[0, 33, 66][i % 3]] = x;
        row
    };
    let mut rows: Vec<f32> = (0..24).flat_map(|i| row(i, odd[i / 3], &mut noise)).collect();
    for x in [f32::MAX, f32::MIN, 1e-45, -1e-45, f32::MIN_POSITIVE, -0.0, 5.0, -5.0] {
        rows.extend([x; 67]);
    }
    rows.extend((0..67).map(|i| if i % 2 == 0 { f32::MAX } else { f32::MIN }));
    weights.check(&rows, 2);
}

#[test]
fn sums_of_the_most_inputs_are_exact() {
    const DEPTH: usize = 1 << 16;
    let bytes = [[-128i8; DEPTH], [127; DEPTH]].into_iter().cycle().take(16).flatten().collect();
    let columns = vec![Column { bias: 0.0, scale: 1.0, sum: 0 }; 16];
    let weights = Weights { depth: DEPTH, bytes, columns, range: (f32::NEG_INFINITY, f32::INFINITY) };
    let rows: Vec<f32> = [255.0, -255.0, 1.0].into_iter().flat_map(|x| [x; DEPTH]).collect();
    weights.check(&rows, 1);
    let weights = Weights { depth: DEPTH + 1, bytes: vec![1; 16 * (DEPTH + 1)], ..weights };
    assert!(Isa::available().into_iter().all(|isa| weights.packed(isa).is_none()), "sums would overflow");
}

#[test]
fn every_machine_with_products_of_bytes_has_these() {
    let weights = weights(64, 32, &mut Noise(1));
    let has = |isa: &Isa| weights.packed(*isa).is_some();
    let lacking: Vec<_> = Isa::available().into_iter().filter(|isa| !has(isa)).collect();
    let may_lack = |isa: &Isa| ["neon", "neon32"].contains(&isa.name());
    assert!(lacking.iter().all(may_lack), "{lacking:?}");
}
