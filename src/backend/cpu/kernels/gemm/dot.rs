//! Products of bytes in vectors: groups of inputs with as many weights a column.

use super::finish::{Finish, Quant};
use super::lanes::Lanes;
use super::micro::{Block, Tiles};
use crate::backend::cpu::kernels::simd::Base;

/// How one instruction set multiplies bytes. Inputs are signed or not, and for either [`FLIP`](Self::FLIP) says whether
/// weights are as instructions want them: some multiply unsigned bytes with signed ones, some only bytes that are alike.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what each says.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Dot: Copy {
    type V: Lanes;
    /// Inputs of a row.
    type A: Copy;
    /// A group of weights for each lane.
    type B: Copy;
    /// Bytes of a group.
    const GROUP: usize = 4;
    /// Whether weights for unsigned inputs, and for signed ones, are unsigned.
    const FLIP: [bool; 2];

    /// From a group of bytes.
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A;
    /// Adds to the first sums of each row the products of inputs with a panel, or with its first vector where `V` is 1, of as many
    /// of the `padded` bytes as a loop of the instruction set's own takes. Gives how many those are.
    #[inline(always)]
    unsafe fn products<const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
        _sums: &mut [[[Sums<Self>; 2]; P]; M],
        _inputs: [*const u8; M],
        _weights: *const i8,
        _padded: usize,
    ) -> usize {
        0
    }
    /// Computes tiles of `M` rows of a panel if the instruction set has code of its own for such a block. Gives whether it did.
    ///
    /// As for `Micro::run`, the block must have them.
    #[inline(always)]
    unsafe fn tiles<const SIGNED: bool, const M: usize>(
        _block: &Block<Quant>,
        _finish: &Finish<Self::V>,
        _tiles: Tiles,
        _panel: usize,
    ) -> bool {
        false
    }
    /// Those of a panel, from a group of bytes a lane.
    unsafe fn weights(p: *const i8) -> [Self::B; 2];
    /// Per lane, the products of the inputs added to `sums`.
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self>;
}

/// A vector of sums.
pub type Sums<D> = <<D as Dot>::V as Lanes>::I;

// SAFETY: plain Rust on every machine; pointers are used for as many elements as the trait says.
unsafe impl Dot for Base {
    type V = Base;
    type A = [i32; 4];
    type B = [[i8; 4]; 8];
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: the caller's pointer is valid for four bytes.
        let bytes = unsafe { p.cast::<[u8; 4]>().read_unaligned() };
        bytes.map(|byte| if SIGNED { i32::from(byte as i8) } else { i32::from(byte) })
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: the caller's pointer is valid for four bytes a lane.
        unsafe { p.cast::<[Self::B; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        std::array::from_fn(|i| (0..4).fold(sums[i], |sum, j| sum.wrapping_add(a[j] * i32::from(b[i][j]))))
    }
}
