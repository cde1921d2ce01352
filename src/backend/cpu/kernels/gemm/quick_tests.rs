//! Sums that become bytes by floats against those of the shared arithmetic, near every output and far from all.

use super::{Lanes, Requant, Requantisation};
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::simd::{Avx2, Avx512};
use crate::backend::cpu::kernels::twins::Noise;
use crate::ops::NeverInterrupted;
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;
use proptest::prelude::*;

/// Columns of two vectors in AVX-512, and of twice as many in AVX2.
const COLUMNS: usize = 32;

/// The bytes that vectors make of sums, of each column those that are given: `[sum][column]`.
///
/// # Safety
/// The machine must have the instruction set of `V`.
unsafe fn bytes_of<V: Lanes>(requantisation: &Requantisation, sums: &[i32]) -> Vec<u8> {
    let requant = Requant::new(requantisation, V::FORM, V::LANES, 0).unwrap();
    let columns = 2 * V::LANES;
    let mut bytes = vec![0; sums.len()];
    for (sums, bytes) in sums.chunks_exact(2 * columns).zip(bytes.chunks_exact_mut(2 * columns)) {
        // SAFETY: by contract; there are two rows of two vectors, and constants of as many.
        unsafe {
            let [a, b] = V::load_two(sums.as_ptr());
            let [c, d] = V::load_two(sums[columns..].as_ptr());
            let constants = V::constants(&[requant.scales(0), requant.scales(1)]);
            let packed = V::bytes([a, b, c, d], &constants, V::target(requant.target));
            bytes.copy_from_slice(bytemuck::bytes_of(&packed));
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_on_either_side_of_any_output_become_the_right_byte(
        zero in 0i32..256, range in (0i32..256, 0i32..256), is_one_sided in any::<bool>(), once in any::<bool>(),
        large in prop::bool::weighted(0.2), seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let low = if is_one_sided { zero } else { range.0.min(range.1) };
        let range = (low, range.0.max(range.1).max(low));
        let multipliers: Vec<Multiplier> = (0..COLUMNS)
            .map(|_| {
                let word = noise.next() << 8 ^ noise.next();
                let shift = (noise.next() % 22) as i32;
                // Some are powers of two, whose products are in the very middle often.
                let mantissa = if word.is_multiple_of(8) { 1 << 30 } else { (1 << 30) + (word >> 2) as i32 };
                Multiplier { mantissa, shift: if large && word.is_multiple_of(3) { 3 } else { -shift } }
            })
            .collect();
        let sums: Vec<i32> = (-20..280)
            .flat_map(|output| (0..COLUMNS).map(move |column| (output, column)))
            .map(|(output, column)| {
                let m = multipliers[column];
                let real = f64::from(m.mantissa) / 2f64.powi(31 - m.shift);
                let near = (f64::from(output - zero) - 0.5) / real;
                match (noise.next() % 256) as u8 {
                    0 => i32::MIN + noise.next() as i32 % 256,
                    1 => i32::MAX - noise.next() as i32 % 256,
                    2 => (f64::from(noise.next() % 256) * 300.0 / real) as i32,
                    byte => (near as i32).saturating_add(i32::from(byte % 5) - 2),
                }
            })
            .collect();
        let ty = OperandType::TENSOR_QUANT8_ASYMM;
        let requantisation = Requantisation { multipliers: &multipliers, ty, zero, range, once, interrupt: &NeverInterrupted };
        let expected: Vec<u8> = sums.iter().enumerate().map(|(i, &sum)| {
            let m = multipliers[i % COLUMNS];
            let scaled = if once { m.apply_once(sum) } else { m.apply(sum) };
            scaled.saturating_add(zero).clamp(range.0, range.1) as u8
        }).collect();
        if Isa::available().iter().any(|isa| isa.vectors() == "avx512") {
            // SAFETY: the machine has it.
            prop_assert_eq!(&unsafe { bytes_of::<Avx512>(&requantisation, &sums) }, &expected);
        }
        if Isa::available().iter().any(|isa| isa.vectors() == "avx2") {
            for half in [0, 16] {
                let of_half = |i: &usize| (half..half + 16).contains(&(i % COLUMNS));
                let sums: Vec<i32> = (0..sums.len()).filter(of_half).map(|i| sums[i]).collect();
                let expected: Vec<u8> = (0..expected.len()).filter(of_half).map(|i| expected[i]).collect();
                let requantisation = Requantisation { multipliers: &multipliers[half..half + 16], ..requantisation };
                // SAFETY: the machine has it.
                prop_assert_eq!(&unsafe { bytes_of::<Avx2>(&requantisation, &sums) }, &expected);
            }
        }
    }
}
