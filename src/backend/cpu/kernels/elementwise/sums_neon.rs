//! Sums of two tensors of signed bytes in NEON: each input times a factor, in fixed point. Nothing is looked at twice, as it is
//! found out beforehand that all pairs of bytes have the bytes of exact arithmetic.

use super::functions::OfTwo;
use crate::tensor::TensorInfo;
use std::arch::aarch64::*;

/// Bytes that are made at once.
const BLOCK: usize = 16;
/// Bits of a fraction: numbers of less than 512 in size fit 32 bits. All but the last ones are cut off at once, as the lower
/// halves of numbers, and those are shifted out.
const FRACTION: u32 = 22;
const LAST: i32 = FRACTION as i32 - 16;
const UNIT: f64 = (1 << FRACTION) as f64;
/// How far above what the first input makes a factor is: bytes lie in the highest bits, and a doubled high product is added.
const FACTOR: f64 = (1u32 << (FRACTION + 7)) as f64;
/// Where results nearly lie between two bytes, exact arithmetic may round the other way than these sums do. Sums that start a
/// bit lower or higher, of factors that are a bit smaller or larger, may round as it does.
const STARTS: [i32; 9] = [0, 6, -6, 12, -12, 24, -24, 36, -36];
const FACTORS: [i32; 5] = [0, 12, -12, 24, -24];
/// How far that moves results at most, with what two factors do to bytes of 128.
const FARTHEST: f64 = 36.0 + 2.0 * 24.0;
/// Pairs that are in doubt, at the most: of very many, there is no use in trying.
const MOST_DOUBTS: usize = 1 << 10;
/// A look at all pairs takes about as long as the sums of some times as many elements.
const MANY: u64 = 1 << 12;

/// Whether an output has so many elements that it is worth a look at all pairs.
pub fn is_large(out: &TensorInfo) -> bool {
    out.dims.iter().fold(1u64, |size, &dim| size.saturating_mul(dim.into())) >= MANY
}

/// `a by[0] + b by[1] + start`.
pub struct Sums {
    by: [i32; 2],
    /// With a half, as bits that are cut off round down.
    start: i32,
    /// Of the output's bytes.
    bounds: (i8, i8),
    /// Whether no pair's sum is beyond 32 bits.
    fits: bool,
}

/// Sums of what lies one after the other, and what makes the same bytes of all other pairs.
pub struct InVectors<O> {
    pub sums: Sums,
    pub others: O,
}

/// All pairs of some numbers.
fn pairs(numbers: &[i32]) -> impl Iterator<Item = [i32; 2]> + '_ {
    numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| [a, b]))
}

impl Sums {
    /// `start` is what two inputs of 0 make, all in the output's units. `None` where a result could be too large, or no sum
    /// has the `exact` byte of each pair.
    pub fn new(by: [f64; 2], start: f64, bounds: (i8, i8), exact: impl Fn(u8, u8) -> u8) -> Option<Self> {
        // The last addition may saturate: bytes have their bounds long before.
        let first = (start + 0.5).abs() + 128.0 * by[0].abs();
        if first >= 511.0 || by[1].abs() >= 3.99 {
            return None;
        }
        let fits = first + 128.0 * by[1].abs() < 511.0;
        let (by, start) = (by.map(|by| by * FACTOR), (start + 0.5) * UNIT);
        let mut sums = Sums { by: by.map(|by| by.round() as i32), start: start.round() as i32, bounds, fits };
        // Of exact arithmetic the roundings of both inputs count, each half a unit twice, and that of their sum.
        let exactness = 4.0 * (1 << (FRACTION - 19)) as f64 * (by[0].abs().max(by[1].abs()) / FACTOR) + 4.0;
        let doubts = sums.doubts((exactness + FARTHEST).ceil() as i32, exact)?;
        let Sums { by, start, .. } = sums;
        for (more, nudges) in STARTS.iter().flat_map(|start| pairs(&FACTORS).map(move |by| (start, by))) {
            (sums.start, sums.by) = (start + more, [by[0] + nudges[0], by[1] + nudges[1]]);
            if doubts.iter().all(|&(pair, byte)| sums.byte(pair) == byte) {
                return Some(sums);
            }
        }
        None
    }

    /// What a byte of an input makes of the sum: the doubled high product with its factor, as it is rounded.
    fn part(&self, input: usize, byte: u8) -> i32 {
        let product = (i64::from(byte as i8) << 24) * i64::from(self.by[input]);
        ((2 * product + (1 << 31)) >> 32) as i32
    }

    /// The pairs whose results are at most so far from the middle between two bytes, and their exact bytes. `None` where those are
    /// too many.
    fn doubts(&self, far: i32, exact: impl Fn(u8, u8) -> u8) -> Option<Vec<([u8; 2], u8)>> {
        let second: [i32; 256] = std::array::from_fn(|byte| self.part(1, byte as u8));
        let mut doubts = Vec::new();
        for a in 0..=u8::MAX {
            let first = self.start + self.part(0, a) + far;
            let is_near =
                |part: i32| first.wrapping_add(part) as u32 & ((1 << FRACTION) - 1) <= 2 * far as u32;
            // Of most rows there is none. All of them are asked, as vectors have no way out.
            if !second.iter().fold(false, |any, &part| any | is_near(part)) {
                continue;
            }
            let near = second.iter().zip(0..=u8::MAX).filter(|&(&part, _)| is_near(part));
            doubts.extend(near.map(|(_, b)| ([a, b], exact(a, b))));
            if doubts.len() > MOST_DOUBTS {
                return None;
            }
        }
        Some(doubts)
    }

    fn byte(&self, [a, b]: [u8; 2]) -> u8 {
        let ((lo, hi), first) = (self.bounds, self.start + self.part(0, a));
        (first.saturating_add(self.part(1, b)) >> FRACTION).max(lo.into()).min(hi.into()) as u8
    }

    /// Makes `len` bytes, in whole blocks. Where they are `BOUNDED`, not all may be; where sums `FIT`, none saturates.
    ///
    /// # Safety
    /// The machine must have the instruction, and there be as many elements of each input and of the output.
    #[target_feature(enable = "rdm")]
    unsafe fn blocks<const BOUNDED: bool, const FIT: bool>(
        &self,
        len: usize,
        [mut a, mut b]: [*const u8; 2],
        mut to: *mut u8,
    ) {
        let constants = Constants::of(self);
        // Two at a time: they are loaded and stored by the same instructions.
        for _ in 0..len / (2 * BLOCK) {
            // SAFETY: by contract; as many are left. Any bits are bytes.
            unsafe {
                let x = a.cast::<[uint8x16_t; 2]>().read_unaligned();
                let y = b.cast::<[uint8x16_t; 2]>().read_unaligned();
                let bytes = [
                    constants.bytes::<BOUNDED, FIT>(x[0], y[0]),
                    constants.bytes::<BOUNDED, FIT>(x[1], y[1]),
                ];
                to.cast::<[int8x16_t; 2]>().write_unaligned(bytes);
            }
            (a, b, to) = (a.wrapping_add(2 * BLOCK), b.wrapping_add(2 * BLOCK), to.wrapping_add(2 * BLOCK));
        }
        if len % (2 * BLOCK) != 0 {
            // SAFETY: by contract there is one more.
            unsafe { vst1q_s8(to.cast(), constants.bytes::<BOUNDED, FIT>(vld1q_u8(a), vld1q_u8(b))) };
        }
    }
}

/// What all blocks have, in registers.
struct Constants {
    by: [int32x4_t; 2],
    start: int32x4_t,
    bounds: (int8x16_t, int8x16_t),
    /// Where each quarter of a block has its bytes: the highest ones of 32-bit numbers, which are nothing else.
    quarters: [uint8x16_t; 4],
}

impl Constants {
    #[inline(always)]
    fn of(sums: &Sums) -> Self {
        let quarter = |first: u8| {
            let from: [u8; BLOCK] =
                std::array::from_fn(|i| if i % 4 == 3 { 4 * first + i as u8 / 4 } else { u8::MAX });
            // SAFETY: there are sixteen.
            unsafe { vld1q_u8(from.as_ptr()) }
        };
        // SAFETY: every machine has these instructions.
        unsafe {
            Constants {
                by: sums.by.map(|by| vdupq_n_s32(by)),
                start: vdupq_n_s32(sums.start),
                bounds: (vdupq_n_s8(sums.bounds.0), vdupq_n_s8(sums.bounds.1)),
                quarters: [quarter(0), quarter(1), quarter(2), quarter(3)],
            }
        }
    }

    /// A block of bytes.
    ///
    /// # Safety
    /// The machine must have the instruction.
    #[inline]
    #[target_feature(enable = "rdm")]
    unsafe fn bytes<const BOUNDED: bool, const FIT: bool>(&self, x: uint8x16_t, y: uint8x16_t) -> int8x16_t {
        let sums = |quarter| {
            let (x, y) = (vqtbl1q_u8(x, quarter), vqtbl1q_u8(y, quarter));
            let (x, y) = (vreinterpretq_s32_u8(x), vreinterpretq_s32_u8(y));
            // What begins with a product needs no copy of the start.
            let first = match FIT {
                true => vqrdmulhq_s32(x, self.by[0]),
                false => vqrdmlahq_s32(self.start, x, self.by[0]),
            };
            vqrdmlahq_s32(first, y, self.by[1])
        };
        // Not map(), which the compiler may leave a function of its own.
        let [p, q, r, s] = self.quarters;
        let [p, q, r, s] = [sums(p), sums(q), sums(r), sums(s)];
        let halves = |low, high| {
            if FIT {
                vaddhn_high_s32(vaddhn_s32(low, self.start), high, self.start)
            } else {
                vuzp2q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high))
            }
        };
        let bytes = vqshrn_high_n_s16::<LAST>(vqshrn_n_s16::<LAST>(halves(p, q)), halves(r, s));
        if BOUNDED {
            vminq_s8(vmaxq_s8(bytes, self.bounds.0), self.bounds.1)
        } else {
            bytes
        }
    }
}

// SAFETY: the others do so.
unsafe impl<O: OfTwo<u8, u8>> OfTwo<u8, u8> for InVectors<O> {
    #[inline(always)]
    fn run(&self, len: usize, get: impl Fn(usize) -> (u8, u8), put: impl FnMut(usize, u8)) {
        self.others.run(len, get, put);
    }

    #[inline(always)]
    unsafe fn along(&self, len: usize, [a, b]: [*const u8; 2], to: *mut u8) {
        let whole = len - len % BLOCK;
        let rest = [a, b].map(|from| from.wrapping_add(whole));
        // SAFETY: by contract; whoever makes this has asked for the instruction.
        unsafe {
            match (self.sums.bounds, self.sums.fits) {
                ((i8::MIN, i8::MAX), true) => self.sums.blocks::<false, true>(whole, [a, b], to),
                (_, true) => self.sums.blocks::<true, true>(whole, [a, b], to),
                _ => self.sums.blocks::<true, false>(whole, [a, b], to),
            }
            self.others.along(len - whole, rest, to.wrapping_add(whole));
        }
    }
}
