//! Products of bytes in vectors: groups of four inputs with four weights a column.

use super::lanes::Lanes;
use crate::backend::cpu::kernels::simd::Base;

/// How one instruction set multiplies bytes. Inputs are signed or not; weights are the other where [`FLIP`](Self::FLIP)
/// says so, which suits instructions that multiply unsigned bytes with signed ones, otherwise signed.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what each says.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Dot: Copy {
    type V: Lanes;
    /// Four inputs of a row.
    type A: Copy;
    /// Four weights for each lane.
    type B: Copy;
    /// Whether weights for signed inputs are unsigned.
    const FLIP: bool;

    /// From four bytes.
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A;
    /// From four bytes a lane.
    unsafe fn weights(p: *const i8) -> Self::B;
    /// Per lane, the sum of four products added to `sums`.
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self>;
}

/// A vector of sums.
pub type Sums<D> = <<D as Dot>::V as Lanes>::I;

// SAFETY: plain Rust on every machine; pointers are used for as many elements as the trait says.
unsafe impl Dot for Base {
    type V = Base;
    type A = [i32; 4];
    type B = [[i8; 4]; 8];
    const FLIP: bool = false;

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: the caller's pointer is valid for four bytes.
        let bytes = unsafe { p.cast::<[u8; 4]>().read_unaligned() };
        bytes.map(|byte| if SIGNED { i32::from(byte as i8) } else { i32::from(byte) })
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> Self::B {
        // SAFETY: the caller's pointer is valid for four bytes a lane.
        unsafe { p.cast::<Self::B>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        std::array::from_fn(|i| (0..4).fold(sums[i], |sum, j| sum.wrapping_add(a[j] * i32::from(b[i][j]))))
    }
}
