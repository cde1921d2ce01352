//! How bytes are multiplied in small matrices (I8MM): rows in pairs, and the steps of a product's inner loop. Nothing here
//! knows of biases and outputs.

use super::micro::Block;
use super::order_neon::{load_two, VECTOR};
use super::quant::Quant;
use std::arch::aarch64::*;
use std::arch::asm;
use std::mem::MaybeUninit;

/// Bytes of the weights of a group: four vectors.
const GROUP: usize = 4 * VECTOR;

/// Rows in pairs: eight bytes of one, then as many of the other, which is how they are multiplied. To put them so for each
/// panel takes a vector instruction for every four products.
pub struct Pairs {
    /// `[pair][segment][eight bytes of each row]`.
    pub bytes: *const u8,
    /// Bytes of a pair.
    pub size: usize,
    /// The first pair's, as the block counts.
    pub first: usize,
}

impl Pairs {
    /// Puts pairs from `first` on side by side. Where the block has no second row the last one counts twice.
    ///
    /// # Safety
    /// The block must have the rows, and `room` must be large enough.
    #[inline(always)]
    pub unsafe fn fill(
        block: &Block<Quant>,
        first: usize,
        pairs: usize,
        room: &mut [MaybeUninit<u8>],
    ) -> Pairs {
        let start: *mut u8 = room.as_mut_ptr().cast();
        let mut to = start;
        let odd = |pair: usize| (block.rows - 1).min(2 * pair + 1);
        // SAFETY: by contract, as many bytes can be read, and twice as many written.
        unsafe {
            if block.segments() == 1 {
                let whole = block.rows / 2;
                for pair in first..whole.min(first + pairs) {
                    to = side_by_side(block.pointers::<2>(0, 2 * pair), block.padded, to);
                }
                if first + pairs > whole {
                    side_by_side([block.inputs[2 * whole], block.inputs[odd(whole)]], block.padded, to);
                }
            } else {
                for pair in first..first + pairs {
                    for inputs in block.inputs.chunks_exact(block.rows) {
                        to = side_by_side([inputs[2 * pair], inputs[odd(pair)]], block.padded, to);
                    }
                }
            }
        }
        Pairs { bytes: start, size: 2 * block.segments() * block.padded, first }
    }
}

/// Puts eight bytes of each of two rows side by side in turns. Gives where the next go.
///
/// # Safety
/// The rows must have so many bytes, and there be room for twice as many.
#[inline(always)]
unsafe fn side_by_side(mut rows: [*const u8; 2], bytes: usize, mut to: *mut u8) -> *mut u8 {
    // SAFETY: by contract.
    unsafe {
        for _ in 0..bytes / 16 {
            let [a, b] = rows.map(|row| row.cast::<uint64x2_t>().read_unaligned());
            to.cast::<[uint64x2_t; 2]>().write_unaligned([vzip1q_u64(a, b), vzip2q_u64(a, b)]);
            (rows, to) = (rows.map(|row| row.add(16)), to.add(32));
        }
        if bytes % 16 > 0 {
            let eights = rows.map(|row| row.cast::<uint8x8_t>().read_unaligned());
            to.cast::<[uint8x8_t; 2]>().write_unaligned(eights);
            to = to.add(16);
        }
        to
    }
}

/// What two groups of eight bytes of each row are multiplied with, and where the next are.
pub struct Step<const PAIRS: usize> {
    pub inputs: [*const u8; PAIRS],
    /// Where the weights of the group lie.
    pub weights: *const u8,
    pub a: [[uint8x16_t; 2]; PAIRS],
    /// Weights of the group.
    pub b: [uint8x16_t; 4],
}

impl<const PAIRS: usize> Step<PAIRS> {
    /// Loads the weights of a group.
    ///
    /// # Safety
    /// They must be there.
    #[inline(always)]
    pub unsafe fn weights_of_group(&mut self) {
        // SAFETY: by contract.
        let [first, second] =
            unsafe { [load_two::<0>(self.weights), load_two::<{ 2 * VECTOR }>(self.weights)] };
        self.b = [first[0], first[1], second[0], second[1]];
    }

    /// Multiplies two groups, and loads what comes after if there is `MORE`.
    ///
    /// # Safety
    /// The machine must have I8MM, and the next groups be there.
    #[inline(always)]
    pub unsafe fn two_groups<const SIGNED: bool, const MORE: bool>(
        &mut self,
        sums: &mut [[int32x4_t; 4]; PAIRS],
    ) {
        // SAFETY: by contract.
        unsafe {
            self.group::<SIGNED, 0, true>(sums);
            self.group::<SIGNED, 1, MORE>(sums);
        }
        self.move_on::<2>();
    }

    /// Multiplies four groups, which are not the last ones.
    ///
    /// # Safety
    /// As for [`Self::two_groups`].
    #[inline(always)]
    pub unsafe fn four_groups<const SIGNED: bool>(&mut self, sums: &mut [[int32x4_t; 4]; PAIRS]) {
        // SAFETY: by contract.
        unsafe {
            self.group::<SIGNED, 0, true>(sums);
            self.group::<SIGNED, 1, true>(sums);
            self.group::<SIGNED, 2, true>(sums);
            self.group::<SIGNED, 3, true>(sums);
        }
        self.move_on::<4>();
    }

    /// Moves all pointers by so many groups.
    #[inline(always)]
    fn move_on<const GROUPS: usize>(&mut self) {
        self.weights = self.weights.wrapping_add(GROUPS * GROUP);
        self.inputs = self.inputs.map(|pair| pair.wrapping_add(GROUPS * VECTOR));
    }

    /// Multiplies group `AT` from the pointers on, and loads what comes after if there is `MORE`.
    ///
    /// # Safety
    /// As for [`Self::two_groups`].
    #[inline(always)]
    unsafe fn group<const SIGNED: bool, const AT: usize, const MORE: bool>(
        &mut self,
        sums: &mut [[int32x4_t; 4]; PAIRS],
    ) {
        // Written out, as sums that are indexed by a variable would be kept in memory all along.
        macro_rules! columns {
            ($($j:literal)*) => {
                $(for (p, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: by contract.
                    unsafe {
                        let b = vreinterpretq_s8_u8(self.b[$j]);
                        sums[$j] = multiply::<SIGNED>(sums[$j], self.a[p][AT % 2], b);
                        if MORE && AT % 2 == 1 && $j == 3 {
                            self.a[p] = match AT {
                                1 => load_two::<{ 2 * VECTOR }>(self.inputs[p]),
                                _ => load_two::<{ 4 * VECTOR }>(self.inputs[p]),
                            };
                        }
                    }
                }
                if MORE && $j % 2 == 1 {
                    const NEXT: usize = GROUP + $j / 2 * 2 * VECTOR;
                    // SAFETY: by contract.
                    let next = unsafe {
                        match AT {
                            0 => load_two::<NEXT>(self.weights),
                            1 => load_two::<{ GROUP + NEXT }>(self.weights),
                            2 => load_two::<{ 2 * GROUP + NEXT }>(self.weights),
                            _ => load_two::<{ 3 * GROUP + NEXT }>(self.weights),
                        }
                    };
                    (self.b[$j / 2 * 2], self.b[$j]) = (next[0], next[1]);
                })*
            };
        }
        columns!(0 1 2 3);
    }
}

/// Adds to sums of two rows and two columns.
///
/// # Safety
/// The machine must have I8MM.
#[inline(always)]
pub unsafe fn multiply<const SIGNED: bool>(mut sums: int32x4_t, a: uint8x16_t, b: int8x16_t) -> int32x4_t {
    macro_rules! multiply {
        ($instruction:literal) => {
            asm!(
                concat!($instruction, " {sums:v}.4s, {a:v}.16b, {b:v}.16b"),
                sums = inout(vreg) sums,
                a = in(vreg) a,
                b = in(vreg) b,
                options(nomem, nostack, preserves_flags),
            )
        };
    }
    // SAFETY: by contract; these compute with registers only.
    unsafe {
        if SIGNED {
            multiply!("smmla");
        } else {
            multiply!("usmmla");
        }
    }
    sums
}
