//! Inner loops of products in NEON whose instructions stay in the order in which they are written.
//!
//! A core that computes in order stands still where a sum waits for a load. So each step multiplies what the step before
//! loaded, with a load after every other product. The compiler would move loads to where they are used; it keeps the order
//! of assembly that is not said to be `pure`.
//!
//! Addresses are sums of two registers: by the models of processors a load by a constant distance is done before the
//! product that was issued with it, and in order it has to wait for that.

use std::arch::aarch64::*;
use std::arch::asm;

/// Bytes of a vector.
pub const VECTOR: usize = 16;
/// Vectors of weights for a vector of inputs: two for each of its four parts.
const VECTORS_OF_WEIGHTS: usize = 8;

/// A vector of weights times one of the four parts of a vector of inputs.
///
/// # Safety
/// The machine must have the instruction.
pub unsafe trait ByPart {
    type Sums: Copy;

    /// Adds the products with part `AT`.
    ///
    /// # Safety
    /// The machine must have the instruction.
    unsafe fn add<const AT: i32>(sums: Self::Sums, weights: uint8x16_t, inputs: uint8x16_t) -> Self::Sums;
}

/// Defines `$name`, the products of `$instruction`, which takes vectors as `.$whole` and parts as `.$part`.
macro_rules! by_part {
    ($(#[$doc:meta])* $name:ident, $sums:ty, $instruction:literal, $whole:literal, $part:literal) => {
        $(#[$doc])*
        pub struct $name;

        // SAFETY: the contract is the caller's.
        unsafe impl ByPart for $name {
            type Sums = $sums;

            #[inline(always)]
            unsafe fn add<const AT: i32>(mut sums: $sums, weights: uint8x16_t, inputs: uint8x16_t) -> $sums {
                // SAFETY: by contract; it computes with registers only.
                unsafe {
                    asm!(
                        concat!($instruction, " {sums:v}.4s, {weights:v}.", $whole, ", {inputs:v}.", $part, "[{at}]"),
                        sums = inout(vreg) sums,
                        weights = in(vreg) weights,
                        inputs = in(vreg) inputs,
                        at = const AT,
                        options(nomem, nostack, preserves_flags),
                    );
                }
                sums
            }
        }
    };
}

by_part!(
    /// Of floats, which every machine has.
    Floats, float32x4_t, "fmla", "4s", "s"
);
by_part!(
    /// Of four signed bytes each, which is a dot product.
    SignedBytes, int32x4_t, "sdot", "16b", "4b"
);
by_part!(
    /// The same of unsigned bytes.
    UnsignedBytes, int32x4_t, "udot", "16b", "4b"
);

/// A vector from so many bytes on.
///
/// # Safety
/// It must be there.
#[inline(always)]
pub unsafe fn load(from: *const u8, at: usize) -> uint8x16_t {
    let loaded;
    // SAFETY: by contract.
    unsafe {
        asm!(
            "ldr {loaded:q}, [{from}, {at}]",
            loaded = out(vreg) loaded,
            from = in(reg) from,
            at = in(reg) at,
            options(readonly, nostack, preserves_flags),
        );
    }
    loaded
}

/// Adds the products of `M` rows of inputs with a panel of eight columns to the first sums of each row. Gives how many bytes
/// of each row that were: all whole vectors of `bytes`.
///
/// # Safety
/// The machine must have the instructions of `O`; there must be as many inputs, and their weights, `[part][column]`.
#[inline(always)]
pub unsafe fn multiply<O: ByPart, const M: usize, const P: usize>(
    sums: &mut [[[O::Sums; 2]; P]; M],
    inputs: [*const u8; M],
    weights: *const u8,
    bytes: usize,
) -> usize {
    let whole = bytes - bytes % VECTOR;
    if whole == 0 {
        return 0;
    }
    let weights = std::array::from_fn(|i| weights.wrapping_add(i * VECTOR));
    // SAFETY: by contract; all but the last step load what the next one multiplies.
    unsafe {
        let mut step = Step {
            inputs,
            weights,
            at: 0,
            down: 0,
            a: inputs.map(|row| load(row, 0)),
            b: [load(weights[0], 0), load(weights[1], 0)],
        };
        while step.at + VECTOR < whole {
            step.products::<O, P, true>(sums);
        }
        step.products::<O, P, false>(sums);
    }
    whole
}

/// [`multiply`] of floats; gives how many of each row that were.
///
/// # Safety
/// There must be as many inputs, and their weights, `[input][column]`.
#[inline(always)]
pub unsafe fn multiply_floats<const M: usize, const P: usize>(
    sums: &mut [[[float32x4_t; 2]; P]; M],
    inputs: [*const f32; M],
    weights: *const f32,
    depth: usize,
) -> usize {
    let bytes = depth * size_of::<f32>();
    // SAFETY: by contract; every machine has the instruction.
    unsafe {
        multiply::<Floats, M, P>(sums, inputs.map(|row| row.cast()), weights.cast(), bytes) / size_of::<f32>()
    }
}

/// What a step multiplies, and where the next is.
struct Step<const M: usize> {
    inputs: [*const u8; M],
    /// Where each of the vectors of weights lies that a step has.
    weights: [*const u8; VECTORS_OF_WEIGHTS],
    /// Bytes of the rows, and of the panel, before this step.
    at: usize,
    down: usize,
    /// Four parts of each row.
    a: [uint8x16_t; M],
    /// Weights of the next part.
    b: [uint8x16_t; 2],
}

impl<const M: usize> Step<M> {
    /// Multiplies by a vector of inputs, and loads what comes after, if there is `MORE`.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn products<O: ByPart, const P: usize, const MORE: bool>(
        &mut self,
        sums: &mut [[[O::Sums; 2]; P]; M],
    ) {
        // SAFETY: by contract.
        unsafe {
            self.part::<O, P, 0, MORE>(sums, (2, self.down));
            self.part::<O, P, 1, MORE>(sums, (4, self.down));
            self.part::<O, P, 2, MORE>(sums, (6, self.down));
            (self.at, self.down) = (self.at + VECTOR, self.down + VECTORS_OF_WEIGHTS * VECTOR);
            self.part::<O, P, 3, MORE>(sums, (0, self.down));
        }
    }

    /// Multiplies by one of the four parts. The next part's weights are vectors from `next` on, so many bytes further down.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn part<O: ByPart, const P: usize, const AT: i32, const MORE: bool>(
        &mut self,
        sums: &mut [[[O::Sums; 2]; P]; M],
        (next, down): (usize, usize),
    ) {
        let b = self.b;
        let more = AT < 3 || MORE;
        for (m, sums) in sums.iter_mut().enumerate() {
            // SAFETY: by contract.
            unsafe {
                sums[0][0] = O::add::<AT>(sums[0][0], b[0], self.a[m]);
                if more && m == 0 {
                    self.b[0] = load(self.weights[next], down);
                }
                sums[0][1] = O::add::<AT>(sums[0][1], b[1], self.a[m]);
                if more && m == 1.min(M - 1) {
                    self.b[1] = load(self.weights[next + 1], down);
                }
                if AT == 3 && MORE {
                    self.a[m] = load(self.inputs[m], self.at);
                }
            }
        }
    }
}
