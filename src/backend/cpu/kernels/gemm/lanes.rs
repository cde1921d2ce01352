//! Vectors of 32-bit sums, and how they become bytes.

use super::requant::{Bytes, Form, Scales};
use crate::backend::cpu::kernels::simd::Base;
use bytemuck::Pod;

/// Vectors of i32 of one instruction set.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what each says.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Lanes: Copy {
    type I: Copy;
    /// [`Bytes`], ready to be computed with.
    type Target: Copy;
    /// What two vectors of columns are scaled with, ready to be computed with.
    type Constants: Copy;
    /// Four vectors as bytes.
    type Packed: Copy + Pod;
    const LANES: usize;
    /// In what form they want the constants of scaling.
    const FORM: Form;

    unsafe fn load(p: *const i32) -> Self::I;
    /// Two vectors that lie one after the other.
    #[inline(always)]
    unsafe fn load_two(p: *const i32) -> [Self::I; 2] {
        // SAFETY: the same contract.
        unsafe { [Self::load(p), Self::load(p.add(Self::LANES))] }
    }
    unsafe fn splat(x: i32) -> Self::I;
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I;
    /// Scaled sums, of which `scales` has the constants.
    unsafe fn requantise(sums: Self::I, scales: Scales) -> Self::I;
    unsafe fn constants(scales: &[Scales; 2]) -> Self::Constants;
    /// [`Self::requantise`] of two rows of two vectors. What is beyond 512 either way may be anything that is.
    unsafe fn requantise_rows(sums: [Self::I; 4], constants: &Self::Constants) -> [Self::I; 4];
    /// The same constants, read again where they are scaled with: registers that hold them all along are missed elsewhere.
    #[inline(always)]
    unsafe fn loaded(constants: &Self::Constants) -> Self::Constants {
        *constants
    }
    /// Whether [`Self::requantise_usual`] is as good.
    #[inline(always)]
    fn is_usual(_: &Self::Constants) -> bool {
        false
    }
    /// [`Self::requantise_rows`] without a choice, for the constants that nearly all products have.
    #[inline(always)]
    unsafe fn requantise_usual(sums: [Self::I; 4], constants: &Self::Constants) -> [Self::I; 4] {
        // SAFETY: the same contract.
        unsafe { Self::requantise_rows(sums, constants) }
    }
    /// The same where all that is below 0 becomes the least output.
    #[inline(always)]
    unsafe fn requantise_positive(sums: [Self::I; 4], constants: &Self::Constants) -> [Self::I; 4] {
        // SAFETY: the same contract.
        unsafe { Self::requantise_usual(sums, constants) }
    }
    /// [`Self::requantise`] of two rows of two vectors, `scales` being those of a row.
    #[inline(always)]
    unsafe fn requantise_each([a, b, c, d]: [Self::I; 4], scales: &[Scales; 2]) -> [Self::I; 4] {
        // SAFETY: the same contract.
        unsafe {
            [
                Self::requantise(a, scales[0]),
                Self::requantise(b, scales[1]),
                Self::requantise(c, scales[0]),
                Self::requantise(d, scales[1]),
            ]
        }
    }
    unsafe fn target(bytes: Bytes) -> Self::Target;
    /// Scaled sums as bytes, in order.
    unsafe fn pack(scaled: [Self::I; 4], target: Self::Target) -> Self::Packed;
    /// Whether [`Self::pack_plain`] is as good, of what is within 16 bits.
    #[inline(always)]
    fn is_plain(_: &Self::Target) -> bool {
        false
    }
    /// Whether [`Self::requantise_positive`] is as good, too.
    #[inline(always)]
    fn is_positive(_: &Self::Target) -> bool {
        false
    }
    /// [`Self::pack`] in fewer instructions, of what is within 16 bits, for the targets that nearly all products have.
    #[inline(always)]
    unsafe fn pack_plain(scaled: [Self::I; 4], target: Self::Target) -> Self::Packed {
        // SAFETY: the same contract.
        unsafe { Self::pack(scaled, target) }
    }
    /// The same where all that is below 0 becomes the least output.
    #[inline(always)]
    unsafe fn pack_positive(scaled: [Self::I; 4], target: Self::Target) -> Self::Packed {
        // SAFETY: the same contract.
        unsafe { Self::pack_plain(scaled, target) }
    }
    /// Whether all outputs below the zero point are one byte.
    #[inline(always)]
    fn is_one_sided(_: &Self::Target) -> bool {
        false
    }
    /// The bytes of the sums of two rows of two vectors, in order.
    #[inline(always)]
    unsafe fn bytes(sums: [Self::I; 4], constants: &Self::Constants, target: Self::Target) -> Self::Packed {
        // SAFETY: the same contract.
        unsafe { Self::pack(Self::requantise_rows(sums, constants), target) }
    }
    /// The same without a choice, for constants [that are usual](Self::is_usual). `PLAIN`: what is scaled is within 16 bits,
    /// and the target as most are; `ONE_SIDED`: all that is below the zero point becomes the least output.
    #[inline(always)]
    unsafe fn usual_bytes<const PLAIN: bool, const ONE_SIDED: bool>(
        sums: [Self::I; 4],
        constants: &Self::Constants,
        target: Self::Target,
    ) -> Self::Packed {
        // SAFETY: the same contract.
        unsafe {
            let scaled = match ONE_SIDED {
                true => Self::requantise_positive(sums, constants),
                false => Self::requantise_usual(sums, constants),
            };
            match (PLAIN, ONE_SIDED) {
                (true, true) => Self::pack_positive(scaled, target),
                (true, false) => Self::pack_plain(scaled, target),
                (false, _) => Self::pack(scaled, target),
            }
        }
    }
    /// Stores two rows of two vectors: the first `columns` of each, at least 1.
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize);
    /// Stores two rows of two vectors, the second so many bytes after the first. Gives where a third one would go.
    #[inline(always)]
    unsafe fn store_rows(packed: Self::Packed, to: *mut u8, stride: usize) -> *mut u8 {
        let below = to.wrapping_add(stride);
        // SAFETY: the same contract.
        unsafe { Self::store(packed, [to, below], 2 * Self::LANES) };
        below.wrapping_add(stride)
    }
    /// Stores four rows of a vector: the first `columns` of each, at least 1.
    #[inline(always)]
    unsafe fn store_halves(packed: Self::Packed, to: [*mut u8; 4], columns: usize) {
        for (row, to) in bytemuck::bytes_of(&packed).chunks_exact(Self::LANES).zip(to) {
            // SAFETY: the caller's pointers are valid for `columns` bytes.
            unsafe { libc::memcpy(to.cast(), row.as_ptr().cast(), columns.min(Self::LANES)) };
        }
    }
    /// The sum of `count` bytes.
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32;
    /// The same of several rows.
    #[inline(always)]
    unsafe fn sums<const SIGNED: bool>(rows: [*const u8; SUMMED], count: usize) -> [i32; SUMMED] {
        let mut sums = [0; SUMMED];
        for (sum, row) in sums.iter_mut().zip(rows) {
            // SAFETY: the same contract for each.
            *sum = unsafe { Self::sum::<SIGNED>(row, count) };
        }
        sums
    }
}

/// Rows that [`Lanes::sums`] adds up.
pub const SUMMED: usize = 8;

/// The same for a byte at a time.
///
/// # Safety
/// There must be `count` bytes to read.
#[inline(always)]
pub unsafe fn sum_of<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
    let byte = |i| {
        // SAFETY: one of `count` bytes.
        let byte = unsafe { bytes.add(i).read() };
        if SIGNED {
            i32::from(byte as i8)
        } else {
            i32::from(byte)
        }
    };
    (0..count).fold(0, |sum: i32, i| sum.wrapping_add(byte(i)))
}

// SAFETY: plain Rust on every machine; pointers are used for as many elements as the trait says.
unsafe impl Lanes for Base {
    type I = [i32; 8];
    type Target = Bytes;
    type Constants = [Scales; 2];
    type Packed = [u8; 32];
    const LANES: usize = 8;
    const FORM: Form = Form::Wide;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> Self::I {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    unsafe fn requantise(sums: Self::I, scales: Scales) -> Self::I {
        std::array::from_fn(|i| {
            // SAFETY: there are four constants for each of 8 lanes, and three unless the pointer is null.
            unsafe {
                let mut x = sums[i];
                if !scales.narrow.is_null() {
                    let bound = |which: usize| scales.narrow.add(which * 8 + i).read();
                    x = x.max(bound(0)).min(bound(1)) << bound(2);
                }
                let constant = |which: usize| scales.wide.add(which * 8 + i % 2 * 4 + i / 2).read();
                let sign = if x < 0 { constant(2) } else { 0 };
                ((i64::from(x) * constant(0) + constant(1) - sign) >> constant(3)) as i32
            }
        })
    }
    #[inline(always)]
    unsafe fn constants(scales: &[Scales; 2]) -> [Scales; 2] {
        *scales
    }
    #[inline(always)]
    unsafe fn requantise_rows(sums: [Self::I; 4], scales: &[Scales; 2]) -> [Self::I; 4] {
        // SAFETY: the same contract.
        unsafe { Self::requantise_each(sums, scales) }
    }
    #[inline(always)]
    unsafe fn target(bytes: Bytes) -> Bytes {
        bytes
    }
    #[inline(always)]
    unsafe fn pack(scaled: [Self::I; 4], target: Bytes) -> Self::Packed {
        let mut packed = [0; 32];
        for (packed, &x) in packed.iter_mut().zip(scaled.as_flattened()) {
            let byte = x.saturating_add(target.zero.into()).clamp(0, 255) as u8;
            *packed = byte.max(target.low).min(target.high) ^ target.flip;
        }
        packed
    }
    #[inline(always)]
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize) {
        for (row, to) in packed.chunks_exact(16).zip(to) {
            // SAFETY: the caller's pointers are valid for `columns` bytes.
            unsafe { libc::memcpy(to.cast(), row.as_ptr().cast(), columns.min(16)) };
        }
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { sum_of::<SIGNED>(bytes, count) }
    }
}
