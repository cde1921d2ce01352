//! Vectors of 32-bit sums in NEON of 32-bit Arm. To the compiler they are arrays, for the reason that `order_neon32` tells.

use super::lanes::{sum_of, Lanes};
use super::requant::{Bytes, Form, Rounding, Scales};
use std::arch::naked_asm;

/// Where the machine has NEON.
#[derive(Clone, Copy)]
pub struct Neon32;

/// [`Bytes`] in vectors.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Target {
    zero: [i16; 8],
    low: [u8; 16],
    high: [u8; 16],
    flip: [u8; 16],
}

/// Two rows of two vectors of sums.
type Pair = [[i32; 4]; 4];

/// Scales a vector of sums by the constants of its columns: a rounded high product, and what is shifted of it rounded again,
/// halves away from zero.
macro_rules! scale_twice {
    ($sums:literal, $mantissa:literal, $right:literal, $left:literal, $spare:literal) => {
        concat!(
            "vqshl.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $left,
            "\n",
            "vqrdmulh.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $mantissa,
            "\n",
            "vand ",
            $spare,
            ", ",
            $sums,
            ", ",
            $right,
            "\n",
            "vsra.s32 ",
            $sums,
            ", ",
            $spare,
            ", #31\n",
            "vrshl.s32 ",
            $sums,
            ", ",
            $sums,
            ", ",
            $right,
            "\n",
        )
    };
}

/// Scales sums as `Multiplier::apply` does.
///
/// # Safety
/// The machine must have NEON; from `first` and `second` on there must be the constants of a vector each, in the narrow form.
#[unsafe(naked)]
unsafe extern "C" fn scale_twice(sums: *mut Pair, first: *const i32, second: *const i32) {
    naked_asm!(
        ".fpu neon",
        "vldm r0, {{d16-d23}}",
        "vldm r1, {{d0-d5}}",
        "vldm r2, {{d24-d29}}",
        scale_twice!("q8", "q0", "q1", "q2", "q3"),
        scale_twice!("q9", "q12", "q13", "q14", "q15"),
        scale_twice!("q10", "q0", "q1", "q2", "q3"),
        scale_twice!("q11", "q12", "q13", "q14", "q15"),
        "vstm r0, {{d16-d23}}",
        "bx lr",
    )
}

/// Makes a vector of sums of products of 64 bits, shifted as two registers say.
macro_rules! scale_once {
    ($low:literal $high:literal, $mantissa:literal $others:literal, $right:literal $farther:literal) => {
        concat!(
            "vmull.s32 q3, ",
            $low,
            ", ",
            $mantissa,
            "\n",
            "vmull.s32 q15, ",
            $high,
            ", ",
            $others,
            "\n",
            "vrshl.s64 q3, q3, ",
            $right,
            "\n",
            "vrshl.s64 q15, q15, ",
            $farther,
            "\n",
            "vmovn.i64 ",
            $low,
            ", q3\n",
            "vmovn.i64 ",
            $high,
            ", q15\n",
        )
    };
}

/// The same as `Multiplier::apply_once` does.
///
/// # Safety
/// As for [`scale_twice`].
#[unsafe(naked)]
unsafe extern "C" fn scale_once(sums: *mut Pair, first: *const i32, second: *const i32) {
    naked_asm!(
        ".fpu neon",
        "vldm r0, {{d16-d23}}",
        "vldm r1, {{d0-d5}}",
        "vldm r2, {{d24-d29}}",
        "vqshl.s32 q8, q8, q2",
        "vqshl.s32 q9, q9, q14",
        "vqshl.s32 q10, q10, q2",
        "vqshl.s32 q11, q11, q14",
        "vmov.i32 q15, #31",
        "vsub.i32 q3, q1, q15",
        "vmovl.s32 q1, d6",
        "vmovl.s32 q2, d7",
        "vsub.i32 q3, q13, q15",
        "vmovl.s32 q13, d6",
        "vmovl.s32 q14, d7",
        scale_once!("d16" "d17", "d0" "d1", "q1" "q2"),
        scale_once!("d18" "d19", "d24" "d25", "q13" "q14"),
        scale_once!("d20" "d21", "d0" "d1", "q1" "q2"),
        scale_once!("d22" "d23", "d24" "d25", "q13" "q14"),
        "vstm r0, {{d16-d23}}",
        "bx lr",
    )
}

/// Makes bytes of scaled sums, in order.
///
/// # Safety
/// The machine must have NEON.
#[unsafe(naked)]
unsafe extern "C" fn pack(sums: &Pair, target: &Target, bytes: *mut [u8; 16]) {
    naked_asm!(
        ".fpu neon",
        "vldm r0, {{d16-d23}}",
        "vldm r1, {{d24-d31}}",
        "vqmovn.s32 d0, q8",
        "vqmovn.s32 d1, q9",
        "vqmovn.s32 d2, q10",
        "vqmovn.s32 d3, q11",
        "vqadd.s16 q0, q0, q12",
        "vqadd.s16 q1, q1, q12",
        "vqmovun.s16 d0, q0",
        "vqmovun.s16 d1, q1",
        "vmax.u8 q0, q0, q13",
        "vmin.u8 q0, q0, q14",
        "veor q0, q0, q15",
        "vst1.8 {{d0-d1}}, [r2]",
        "bx lr",
    )
}

/// Scales two rows of two vectors.
///
/// # Safety
/// The machine must have NEON, and `scales` the constants of both vectors in the narrow form.
#[inline(always)]
unsafe fn scale(mut sums: Pair, [first, second]: &[Scales; 2]) -> Pair {
    // SAFETY: by contract.
    unsafe {
        match first.rounding {
            Rounding::Once => scale_once(&mut sums, first.narrow, second.narrow),
            Rounding::Twice | Rounding::TwiceBelowHalf => {
                scale_twice(&mut sums, first.narrow, second.narrow);
            }
        }
    }
    sums
}

// SAFETY: callers have detected NEON, as the trait demands; pointers are used for as many elements as it says.
unsafe impl Lanes for Neon32 {
    type I = [i32; 4];
    type Target = Target;
    type Constants = [Scales; 2];
    type Packed = [u8; 16];
    const LANES: usize = 4;
    const FORM: Form = Form::Narrow;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<Self::I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> Self::I {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    unsafe fn requantise(sums: Self::I, scales: Scales) -> Self::I {
        // SAFETY: the same contract.
        unsafe { scale([sums; 4], &[scales; 2])[0] }
    }
    #[inline(always)]
    unsafe fn constants(scales: &[Scales; 2]) -> [Scales; 2] {
        *scales
    }
    #[inline(always)]
    unsafe fn requantise_rows(sums: Pair, scales: &[Scales; 2]) -> Pair {
        // SAFETY: the same contract.
        unsafe { scale(sums, scales) }
    }
    #[inline(always)]
    unsafe fn target(bytes: Bytes) -> Target {
        Target { zero: [bytes.zero; 8], low: [bytes.low; 16], high: [bytes.high; 16], flip: [bytes.flip; 16] }
    }
    #[inline(always)]
    unsafe fn pack(scaled: Pair, target: Target) -> Self::Packed {
        let mut bytes = [0; 16];
        // SAFETY: by the trait's contract.
        unsafe { pack(&scaled, &target, &mut bytes) };
        bytes
    }
    #[inline(always)]
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize) {
        for (row, to) in packed.as_chunks::<8>().0.iter().zip(to) {
            // SAFETY: the caller's pointers are valid for `columns` bytes.
            unsafe {
                if columns >= 8 {
                    to.cast::<[u8; 8]>().write(*row);
                } else {
                    libc::memcpy(to.cast(), row.as_ptr().cast(), columns);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { sum_of::<SIGNED>(bytes, count) }
    }
}
