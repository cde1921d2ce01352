//! What this machine does at the most by these kernels: the products' micro-kernels on operands in near caches, and
//! copies. A figure of a moment, for people: another program that computes meanwhile makes it smaller.

use super::gemm::{Constants, Packed, Requantisation, Shape, Zeros};
use super::isa::Isa;
use super::Source;
use crate::backend::Peaks;
use crate::memory::{AlignedBuf, Slab, View};
use crate::ops::NeverInterrupted;
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The shape of the products: deep enough that sums take longer than what becomes of them, and not too large for a near
/// cache.
const ROWS: usize = 96;
const COLUMNS: usize = 64;
const DEPTH: usize = 1024;
const FLOAT_DEPTH: usize = DEPTH / 4;
/// Bytes of a copy within a near cache, and of one that is in none.
const NEAR: usize = 64 << 10;
const FAR: usize = 32 << 20;

/// How long each is measured, and how often: the best counts.
const TIME: Duration = Duration::from_millis(10);
const TIMES: usize = 5;

/// Measures on so many threads of its own, for a fifth of a second or so. `None` if there are no threads or no memory.
pub fn peaks(threads: usize) -> Option<Peaks> {
    let isa = Isa::detect();
    let shape = |depth| Shape { columns: COLUMNS, segments: 1, depth };
    let products = |depth| (ROWS * COLUMNS * depth) as f64;
    let interrupt = &NeverInterrupted;
    let (weights, bias) = (vec![0.5f32; COLUMNS * FLOAT_DEPTH], vec![0f32; COLUMNS]);
    let constants = || Some(Constants { weights: View::of(&weights), bias: &bias, interrupt });
    let range = (f32::NEG_INFINITY, f32::INFINITY);
    let floats =
        Packed::float(isa, ROWS, shape(FLOAT_DEPTH), range, &mut Source::pack(&Slab::default()), constants)?;
    let (weights, bias) = (vec![1i8; COLUMNS * DEPTH], vec![0i32; COLUMNS]);
    let constants = || Some(Constants { weights: View::of(&weights), bias: &bias, interrupt });
    let multipliers = vec![Multiplier::new(0.01); COLUMNS];
    let requantisation = Requantisation {
        multipliers: &multipliers,
        ty: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        zero: 0,
        range: (-128, 127),
        once: false,
        interrupt,
    };
    let zeros = Zeros { signed_inputs: true, input: 0, signed_weights: true, weight: 0 };
    let bytes = Packed::quant(
        isa,
        shape(DEPTH),
        zeros,
        &requantisation,
        &mut Source::pack(&Slab::default()),
        constants,
    )?;
    Some(Peaks {
        threads,
        float_multiply_adds: products(FLOAT_DEPTH) * rate(threads, || product(&floats))?,
        byte_multiply_adds: products(DEPTH) * rate(threads, || product(&bytes))?,
        cached_bytes: 2.0 * NEAR as f64 * rate(threads, || copy(NEAR))?,
        memory_bytes: 2.0 * FAR as f64 * rate(threads, || copy(FAR))?,
    })
}

/// A product by all the weights, on memory of its own.
fn product<F: super::gemm::Family>(packed: &Packed<F>) -> Option<impl FnMut() + '_> {
    let inputs = AlignedBuf::zeroed(ROWS * packed.padded * size_of::<F::Input>())?;
    let mut outputs = AlignedBuf::zeroed(ROWS * COLUMNS * size_of::<F::Output>())?;
    let mut room = AlignedBuf::zeroed(packed.micro.room)?;
    Some(move || {
        let first = inputs.as_ptr().cast::<F::Input>();
        let rows: [*const F::Input; ROWS] =
            std::array::from_fn(|row| first.wrapping_add(row * packed.padded));
        // SAFETY: each row has the padded depth, at one distance; the outputs have all rows and columns.
        unsafe {
            let outputs = outputs.as_mut_ptr().cast();
            packed.multiply_lines((&rows, None), ROWS, 0..packed.panels(), outputs, &mut room)
        };
        std::hint::black_box(&mut outputs);
    })
}

/// A copy between memories of its own.
fn copy(len: usize) -> Option<impl FnMut()> {
    let (mut from, mut to) = (AlignedBuf::zeroed(len)?, AlignedBuf::zeroed(len)?);
    // Pages that nobody has written are all the same one.
    from.fill(1);
    to.fill(2);
    Some(move || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    })
}

/// How often a second all threads together do what `make` gives each of them.
fn rate<W: FnMut()>(threads: usize, make: impl Fn() -> Option<W> + Sync) -> Option<f64> {
    let start = Barrier::new(threads);
    let measure = || -> Option<[f64; TIMES]> {
        let mut work = make();
        let mut rates = [0.0; TIMES];
        for rate in &mut rates {
            // All begin together, those that have no memory too.
            start.wait();
            let Some(work) = &mut work else { continue };
            let (began, mut count) = (Instant::now(), 0u32);
            while count == 0 || began.elapsed() < TIME {
                work();
                count += 1;
            }
            *rate = f64::from(count) / began.elapsed().as_secs_f64();
        }
        work.map(|_| rates)
    };
    let all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(measure)).collect();
        let first = measure();
        others.into_iter().map(|other| other.join().ok().flatten()).chain([first]).collect::<Option<Vec<_>>>()
    })?;
    let sums = (0..TIMES).map(|i| all.iter().map(|rates| rates[i]).sum::<f64>());
    sums.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_a_machine() {
        let peaks = peaks(2).expect("memory for a moment");
        let Peaks { threads, float_multiply_adds, byte_multiply_adds, cached_bytes, memory_bytes } = peaks;
        assert_eq!(threads, 2);
        for figure in [float_multiply_adds, byte_multiply_adds, cached_bytes, memory_bytes] {
            assert!(figure.is_finite() && figure > 1e6, "{peaks:?}");
        }
    }
}
