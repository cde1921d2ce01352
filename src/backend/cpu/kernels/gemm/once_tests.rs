//! Weights that several calls pack: once where they pack them alike, and each by itself where not.

use super::super::isa::Isa;
use super::super::{Pack, Source};
use super::{Constants, Packed, Requantisation, Shape, Zeros};
use crate::memory::{Slab, View, Weights};
use crate::ops::NeverInterrupted;
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;
use std::sync::Arc;

#[test]
fn weights_that_stay_are_packed_once_for_all_who_pack_them_alike() {
    let weights: Vec<i8> = (0..30 * 40).map(|i| (i * 7 % 251) as u8 as i8).collect();
    let (stays, slab) = (View::of(&weights[..]), Slab::default());
    let multipliers = vec![Multiplier::new(0.01); 30];
    for isa in Isa::available() {
        let panels = |zero: i32, columns: usize, views: &[Option<View<u8>>]| {
            let requantisation = Requantisation {
                multipliers: &multipliers[..columns],
                ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                zero,
                range: (-128, 127),
                once: false,
                interrupt: &NeverInterrupted,
            };
            let zeros = Zeros { signed_inputs: true, input: zero, signed_weights: true, weight: 0 };
            let shape = Shape { columns, segments: 1, depth: weights.len() / columns };
            let bias = vec![0; columns];
            let constants =
                || Some(Constants { weights: stays, bias: &bias[..], interrupt: &NeverInterrupted });
            let source = &mut Source::Pack(Pack { slab: &slab, views, interrupt: &NeverInterrupted });
            let packed = Packed::quant(isa, shape, zeros, &requantisation, source, constants).unwrap();
            match packed.weights()[0] {
                Weights::Private(bytes) => bytes.clone(),
                Weights::Shared(_) => panic!("packed now"),
            }
        };
        let views = [None, Some(stays.bytes())];
        let first = panels(0, 30, &views);
        assert!(Arc::ptr_eq(&first, &panels(7, 30, &views)), "{isa:?}");
        assert!(!Arc::ptr_eq(&first, &panels(0, 20, &views)), "{isa:?}");
        let own = panels(0, 30, &[]);
        assert!(!Arc::ptr_eq(&first, &own) && first[..] == own[..], "{isa:?}");
    }
}

/// Bytes and floats may lie in one place, and be packed as alike as groups of four bytes and floats are.
#[test]
fn weights_of_another_type_are_not_taken_for_those_packed_before() {
    let numbers: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let floats = View::of(&numbers[..]);
    let bytes: View<i8> = floats.bytes().elements().unwrap();
    let multipliers = vec![Multiplier::new(0.01); 4];
    for isa in Isa::available() {
        let of_bytes = |slab: &Slab, views: &[Option<View<u8>>]| {
            let requantisation = Requantisation {
                multipliers: &multipliers,
                ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                zero: 0,
                range: (-128, 127),
                once: false,
                interrupt: &NeverInterrupted,
            };
            let zeros = Zeros { signed_inputs: true, input: 0, signed_weights: true, weight: 0 };
            let shape = Shape { columns: 4, segments: 1, depth: 512 };
            let constants =
                || Some(Constants { weights: bytes, bias: &[0; 4][..], interrupt: &NeverInterrupted });
            let source = &mut Source::Pack(Pack { slab, views, interrupt: &NeverInterrupted });
            packed_bytes(
                Packed::quant(isa, shape, zeros, &requantisation, source, constants).unwrap().weights()[0],
            )
        };
        let of_floats = |slab: &Slab, views: &[Option<View<u8>>]| {
            let shape = Shape { columns: 1, segments: 1, depth: 512 };
            let constants =
                || Some(Constants { weights: floats, bias: &[0.0][..], interrupt: &NeverInterrupted });
            let source = &mut Source::Pack(Pack { slab, views, interrupt: &NeverInterrupted });
            packed_bytes(
                Packed::float(isa, 1, shape, (f32::MIN, f32::MAX), source, constants).unwrap().weights()[0],
            )
        };
        let views = [None, Some(floats.bytes())];
        let alone = (of_bytes(&Slab::default(), &[]), of_floats(&Slab::default(), &[]));
        let slab = Slab::default();
        assert!((of_bytes(&slab, &views), of_floats(&slab, &views)) == alone, "{isa:?}");
        let slab = Slab::default();
        let floats_first = of_floats(&slab, &views);
        assert!((of_bytes(&slab, &views), floats_first) == alone, "{isa:?}");
    }
}

fn packed_bytes(weights: &Weights) -> Vec<u8> {
    match weights {
        Weights::Private(bytes) => bytes.to_vec(),
        Weights::Shared(_) => panic!("packed now"),
    }
}
