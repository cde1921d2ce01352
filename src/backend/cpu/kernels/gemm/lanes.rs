//! Vectors of 32-bit sums, and how they become bytes.

use super::requant::{Bytes, Scales};
use crate::backend::cpu::kernels::simd::Base;

/// Vectors of i32 of one instruction set.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what each says.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Lanes: Copy {
    type I: Copy;
    const LANES: usize;

    unsafe fn load(p: *const i32) -> Self::I;
    unsafe fn splat(x: i32) -> Self::I;
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I;
    /// Scaled sums, of which `scales` has the constants.
    unsafe fn requantise(sums: Self::I, scales: Scales) -> Self::I;
    /// Stores two rows of scaled sums as bytes: the first `columns` of each, at least 1.
    unsafe fn store(rows: [[Self::I; 2]; 2], to: [*mut u8; 2], columns: usize, bytes: Bytes);
    /// The sum of `count` bytes.
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32;
}

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
    const LANES: usize = 8;

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
    unsafe fn store(rows: [[Self::I; 2]; 2], to: [*mut u8; 2], columns: usize, bytes: Bytes) {
        for (row, to) in rows.iter().zip(to) {
            let mut stored = [0u8; 16];
            for (stored, &x) in stored.iter_mut().zip(row.as_flattened()) {
                let byte = x.saturating_add(bytes.zero.into()).clamp(0, 255) as u8;
                *stored = byte.max(bytes.low).min(bytes.high) ^ bytes.flip;
            }
            // SAFETY: the caller's pointers are valid for `columns` bytes.
            unsafe { libc::memcpy(to.cast(), stored.as_ptr().cast(), columns.min(16)) };
        }
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { sum_of::<SIGNED>(bytes, count) }
    }
}
