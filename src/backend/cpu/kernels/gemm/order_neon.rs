//! Inner loops of products in NEON whose instructions stay in the order in which they are written.
//!
//! A core that computes in order stands still where a sum waits for a load. So each step multiplies what the step before
//! loaded, with a load after every other product. The compiler would move loads to where they are used; it keeps the order
//! of assembly that is not said to be `pure`.
//!
//! On a Cortex-A55 two vectors of weights keep other loads back for six cycles. So inputs of seven and eight rows are loaded some
//! rows after what they replace was last multiplied, and those of the last rows by the next step, whose weights come after them.
//!
//! Nine rows by two vectors are the most that 32 registers hold: 18 of sums, 9 of inputs, and 4 of weights, two of which are
//! loaded while the others are multiplied.
//!
//! Addresses of inputs are sums of two registers: by the models of processors a load by a constant distance is done before
//! the product that was issued with it, and in order it has to wait for that. Weights come two vectors at a time.

use std::arch::aarch64::*;
use std::arch::asm;

/// Bytes of a vector.
pub const VECTOR: usize = 16;
/// Bytes of the weights of a part: two vectors.
const PART: usize = 2 * VECTOR;
/// The same of a step: what a vector of inputs is multiplied with.
const STEP: usize = 4 * PART;
/// Rows of tiles that have most of the work, for which longer code is worth it.
pub const TALL: usize = 7;

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

/// Two vectors from `AT` bytes on. To move the pointer by the same instruction would cost cores that compute in order more
/// than to move it by another one.
///
/// # Safety
/// They must be there.
#[inline(always)]
pub unsafe fn load_two<const AT: usize>(from: *const u8) -> [uint8x16_t; 2] {
    let (first, second);
    // SAFETY: by contract.
    unsafe {
        asm!(
            "ldp {first:q}, {second:q}, [{from}, #{at}]",
            first = out(vreg) first,
            second = out(vreg) second,
            from = in(reg) from,
            at = const AT,
            options(readonly, nostack, preserves_flags),
        );
    }
    [first, second]
}

/// Defines `$name`, which loads so many bytes as the first parts of a vector.
macro_rules! load_parts {
    ($name:ident, $part:ty) => {
        /// # Safety
        /// They must be there.
        #[inline(always)]
        unsafe fn $name(from: *const u8) -> uint8x16_t {
            // SAFETY: by contract; any bits are bytes.
            unsafe {
                let part = from.cast::<$part>().read_unaligned();
                vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(part.into()), vcreate_u64(0)))
            }
        }
    };
}

load_parts!(load_one_part, u32);
load_parts!(load_two_parts, u64);

/// Adds the products of `M` rows of inputs with a panel of eight columns to the first sums of each row: of all `bytes` of a
/// row, which are whole parts.
///
/// # Safety
/// The machine must have the instructions of `O`; there must be as many inputs, and their weights, `[part][column]`.
#[inline(always)]
pub unsafe fn multiply<O: ByPart, const M: usize, const P: usize>(
    sums: &mut [[[O::Sums; 2]; P]; M],
    inputs: [*const u8; M],
    mut weights: *const u8,
    bytes: usize,
) {
    let whole = bytes - bytes % VECTOR;
    // SAFETY: by contract; all but the last step load what the next one multiplies.
    unsafe {
        if whole > 0 {
            let mut step = Step::start(inputs, weights);
            let others = whole / VECTOR - 1;
            if others & 1 != 0 {
                step.products::<O, P, 0, true>(sums);
                step.weights = step.weights.add(STEP);
            }
            // Several vectors of each row for each time around, which are counted: what else there is to compare takes more.
            if M >= TALL {
                if others & 2 != 0 {
                    step.two_products::<O, P>(sums);
                }
                for _ in 0..others / 4 {
                    step.products::<O, P, 0, true>(sums);
                    step.products::<O, P, 1, true>(sums);
                    step.products::<O, P, 2, true>(sums);
                    step.products::<O, P, 3, true>(sums);
                    step.weights = step.weights.add(4 * STEP);
                }
            } else {
                for _ in 0..others / 2 {
                    step.two_products::<O, P>(sums);
                }
            }
            step.products::<O, P, 0, false>(sums);
            weights = step.weights.add(STEP);
        }
        // Most rows are whole vectors.
        if bytes == whole {
            return;
        }
        let mut at = whole;
        if bytes & 8 != 0 {
            let a = inputs.map(|row| load_two_parts(row.add(at)));
            add_part::<O, M, P, 0>(sums, &a, load_two::<0>(weights));
            add_part::<O, M, P, 1>(sums, &a, load_two::<PART>(weights));
            (at, weights) = (at + 8, weights.add(2 * PART));
        }
        if bytes & 4 != 0 {
            let a = inputs.map(|row| load_one_part(row.add(at)));
            add_part::<O, M, P, 0>(sums, &a, load_two::<0>(weights));
        }
    }
}

/// Adds the products with one part of what each row has.
///
/// # Safety
/// The machine must have the instructions of `O`.
#[inline(always)]
unsafe fn add_part<O: ByPart, const M: usize, const P: usize, const AT: i32>(
    sums: &mut [[[O::Sums; 2]; P]; M],
    a: &[uint8x16_t; M],
    b: [uint8x16_t; 2],
) {
    for (sums, &a) in sums.iter_mut().zip(a) {
        // SAFETY: by contract.
        sums[0] = unsafe { [O::add::<AT>(sums[0][0], b[0], a), O::add::<AT>(sums[0][1], b[1], a)] };
    }
}

/// [`multiply`] of floats.
///
/// # Safety
/// There must be as many inputs, and their weights, `[input][column]`.
#[inline(always)]
pub unsafe fn multiply_floats<const M: usize, const P: usize>(
    sums: &mut [[[float32x4_t; 2]; P]; M],
    inputs: [*const f32; M],
    weights: *const f32,
    depth: usize,
) {
    let bytes = depth * size_of::<f32>();
    // SAFETY: by contract; every machine has the instruction.
    unsafe { multiply::<Floats, M, P>(sums, inputs.map(|row| row.cast()), weights.cast(), bytes) }
}

/// What a step multiplies, and where the next is.
struct Step<const M: usize> {
    inputs: [*const u8; M],
    /// Where the weights of this step lie.
    weights: *const u8,
    /// Bytes of the rows before this step.
    at: usize,
    /// Four parts of each row.
    a: [uint8x16_t; M],
    /// Weights of the next part.
    b: [uint8x16_t; 2],
}

impl<const M: usize> Step<M> {
    /// The last rows, whose inputs are loaded by the step that multiplies them. Of nine rows there are none: the compiler would
    /// move sums to memory and back.
    const LATE: usize = if M >= TALL && M < 9 { 3 } else { 0 };

    /// Loads what the first step does not load itself.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn start(inputs: [*const u8; M], weights: *const u8) -> Self {
        // SAFETY: by contract; every machine has the instructions.
        unsafe {
            let mut a = [vdupq_n_u8(0); M];
            for (a, &row) in a.iter_mut().zip(&inputs[..M - Self::LATE]) {
                *a = load(row, 0);
            }
            Step { inputs, weights, at: 0, a, b: load_two::<0>(weights) }
        }
    }

    /// Multiplies by a vector of inputs, and loads what comes after, if there is `MORE`. Its weights lie from step `FROM`
    /// on, and stay where they are.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn products<O: ByPart, const P: usize, const FROM: usize, const MORE: bool>(
        &mut self,
        sums: &mut [[[O::Sums; 2]; P]; M],
    ) {
        // SAFETY: by contract.
        unsafe {
            self.part::<O, P, FROM, 0, MORE>(sums);
            self.part::<O, P, FROM, 1, MORE>(sums);
            self.part::<O, P, FROM, 2, MORE>(sums);
            self.at += VECTOR;
            self.part::<O, P, FROM, 3, MORE>(sums);
        }
    }

    /// Multiplies by two vectors of inputs.
    ///
    /// # Safety
    /// As for [`multiply`], of which that is not the last.
    #[inline(always)]
    unsafe fn two_products<O: ByPart, const P: usize>(&mut self, sums: &mut [[[O::Sums; 2]; P]; M]) {
        // SAFETY: by contract.
        unsafe {
            self.products::<O, P, 0, true>(sums);
            self.products::<O, P, 1, true>(sums);
            self.weights = self.weights.add(2 * STEP);
        }
    }

    /// The weights of a part of step `FROM`.
    ///
    /// # Safety
    /// They must be there.
    #[inline(always)]
    unsafe fn weights<const FROM: usize>(&self, part: i32) -> [uint8x16_t; 2] {
        // SAFETY: by contract.
        unsafe {
            match (FROM, part) {
                (0, 1) => load_two::<PART>(self.weights),
                (0, 2) => load_two::<{ 2 * PART }>(self.weights),
                (0, 3) => load_two::<{ 3 * PART }>(self.weights),
                (0, _) => load_two::<STEP>(self.weights),
                (1, 1) => load_two::<{ STEP + PART }>(self.weights),
                (1, 2) => load_two::<{ STEP + 2 * PART }>(self.weights),
                (1, 3) => load_two::<{ STEP + 3 * PART }>(self.weights),
                (1, _) => load_two::<{ 2 * STEP }>(self.weights),
                (2, 1) => load_two::<{ 2 * STEP + PART }>(self.weights),
                (2, 2) => load_two::<{ 2 * STEP + 2 * PART }>(self.weights),
                (2, 3) => load_two::<{ 2 * STEP + 3 * PART }>(self.weights),
                (2, _) => load_two::<{ 3 * STEP }>(self.weights),
                (_, 1) => load_two::<{ 3 * STEP + PART }>(self.weights),
                (_, 2) => load_two::<{ 3 * STEP + 2 * PART }>(self.weights),
                (_, 3) => load_two::<{ 3 * STEP + 3 * PART }>(self.weights),
                (_, _) => load_two::<{ 4 * STEP }>(self.weights),
            }
        }
    }

    /// Multiplies by one of the four parts.
    ///
    /// # Safety
    /// As for [`multiply`].
    #[inline(always)]
    unsafe fn part<O: ByPart, const P: usize, const FROM: usize, const AT: i32, const MORE: bool>(
        &mut self,
        sums: &mut [[[O::Sums; 2]; P]; M],
    ) {
        let (b, late) = (self.b, Self::LATE);
        let with_weights = if AT == 0 && late > 0 { late + 1 } else { 0 };
        for (m, sums) in sums.iter_mut().enumerate() {
            // SAFETY: by contract.
            unsafe {
                sums[0][0] = O::add::<AT>(sums[0][0], b[0], self.a[m]);
                if m == with_weights && (AT < 3 || MORE) {
                    self.b = self.weights::<FROM>(AT + 1);
                }
                sums[0][1] = O::add::<AT>(sums[0][1], b[1], self.a[m]);
                if AT == 0 && m < late {
                    self.a[M - late + m] = load(self.inputs[M - late + m], self.at);
                }
                if AT == 3 && MORE && m >= late {
                    self.a[m - late] = load(self.inputs[m - late], self.at);
                }
            }
        }
    }
}
