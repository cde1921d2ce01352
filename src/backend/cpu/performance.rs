//! What the backend says of its speed and power, as measured for the instruction set that it computes with.
//!
//! The measure is the plain evaluation of the same operation on one thread, which stands for the runtime's own code. Figures
//! are of one thread, too: how many there are and who else computes on them is not known ahead. Must not flatter: what
//! runs plainly is as fast as the reference, and the runtime then keeps it.

use super::kernels::isa::Isa;
use super::measured::MEASURED;
use crate::backend::{Capabilities, Performance};
use crate::tensor::OperandType;

/// What the plain evaluation takes: it is the measure.
const PLAIN: f32 = 1.0;

/// The table's instruction set that stands for those which nothing was timed on. Its vectors are as wide as theirs, and
/// their own kernels take fewer instructions than the portable ones.
const UNTIMED: &str = "base";

/// What is said with an instruction set.
pub fn capabilities(isa: Isa) -> Capabilities {
    of_instruction_set(isa.name())
}

fn of_instruction_set(name: &str) -> Capabilities {
    let figures = |name: &str| MEASURED.iter().find(|(of, _)| *of == name).map(|(_, figures)| *figures);
    let figures = figures(name).or_else(|| figures(UNTIMED)).unwrap_or_default();
    let of = |ty| figures.iter().find(|(of, _)| *of == ty).map_or(PLAIN, |&(_, time)| time);
    let types = OperandType::ALL.into_iter().filter(|&ty| ty != OperandType::SUBGRAPH);
    Capabilities {
        // Relaxed floats are computed as floats.
        relaxed_scalar: performance(of(OperandType::FLOAT32)),
        relaxed_tensor: performance(of(OperandType::TENSOR_FLOAT32)),
        operands: types.map(|ty| (ty, performance(of(ty)))).collect(),
        // The runtime adds what their subgraphs cost. Choosing one is no faster here than anywhere.
        if_performance: performance(PLAIN),
        while_performance: performance(PLAIN),
    }
}

/// Power is the same number as time, because both are of one thread: work of the processor is its time.
fn performance(time: f32) -> Performance {
    Performance { exec_time: time, power_usage: time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperandType::*;

    fn time(name: &str, ty: OperandType) -> f32 {
        let all = of_instruction_set(name).operands;
        all.iter().find(|(of, _)| *of == ty).unwrap().1.exec_time
    }

    #[test]
    fn every_type_has_a_figure_with_every_instruction_set() {
        let x86 = ["base", "avx2", "avx-vnni", "avx512", "avx512-vnni", "amx"];
        assert_eq!(MEASURED.iter().map(|(name, _)| *name).collect::<Vec<_>>(), x86);
        for name in x86.into_iter().chain(["neon", "neon-dotprod", "neon-i8mm", "neon32"]) {
            let said = of_instruction_set(name);
            let codes: Vec<_> = said.operands.iter().map(|(ty, _)| ty.code()).collect();
            assert!(codes.is_sorted() && codes.len() == OperandType::ALL.len() - 1, "{name}: {codes:?}");
            assert!(
                said.operands.iter().all(|(_, p)| p.exec_time > 0.0 && p.exec_time.is_finite()),
                "{name}"
            );
            assert_eq!(said.relaxed_tensor.exec_time, time(name, TENSOR_FLOAT32));
        }
    }

    #[test]
    fn the_runtime_is_asked_for_what_has_kernels_and_for_nothing_else() {
        for name in ["base", "avx2", "avx-vnni", "avx512", "avx512-vnni", "amx", "neon"] {
            for ty in [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
                assert!(time(name, ty) < 0.9, "{name}, {ty:?}");
            }
            for ty in [TENSOR_QUANT16_SYMM, TENSOR_QUANT16_ASYMM, FLOAT32, INT32, BOOL] {
                assert_eq!(time(name, ty), PLAIN, "{name}, {ty:?}");
            }
        }
    }

    #[test]
    fn what_nothing_was_timed_on_promises_no_more_than_portable_kernels() {
        for ty in [TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM_SIGNED] {
            assert_eq!(time("neon-i8mm", ty), time("base", ty));
            assert!(time("avx2", ty) < time("base", ty));
        }
    }
}
