//! How the bytes of four rows lie in a quad.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Channels that are summed side by side.
pub const CHANNELS: usize = 16;
/// Rows that are multiplied at once.
pub const ROWS: usize = 4;
/// Bytes of a quad: of four rows, for sixteen channels.
pub const QUAD: usize = CHANNELS * ROWS;

/// Channels that lie in an order of their own where `wide` makes them.
pub const GROUP: usize = 64;

/// Where the constants of a channel lie, and which channel those at a place are of: quarters of a vector are swapped with
/// vectors. Channels beyond the last sixty-four lie as they are.
pub fn swapped(channel: usize, channels: usize) -> usize {
    if channel >= channels / GROUP * GROUP {
        return channel;
    }
    let (group, vector, quarter) = (channel / GROUP * GROUP, channel / 16 % 4, channel / 4 % 4);
    group + quarter * 16 + vector * 4 + channel % 4
}

/// Whether the bytes of quads are signed, which is as the architecture multiplies them with signed weights.
pub const SIGNED: bool = cfg!(target_arch = "aarch64");

/// The number that a byte of a quad stands for.
#[inline(always)]
pub fn number(byte: u8) -> i32 {
    if SIGNED {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

/// Sixteen bytes of each of four rows as a quad, each byte xored with `flip`.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
pub fn interleave(rows: [[u8; CHANNELS]; ROWS], flip: u8) -> [u8; QUAD] {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the base instruction set of the architecture has these; the arrays are as large as the vectors.
        unsafe {
            let flip = _mm_set1_epi8(flip as i8);
            let [a, b, c, d] = rows.map(|row| _mm_xor_si128(_mm_loadu_si128(row.as_ptr().cast()), flip));
            let (ab, cd) = (_mm_unpacklo_epi8(a, b), _mm_unpacklo_epi8(c, d));
            let (ab_high, cd_high) = (_mm_unpackhi_epi8(a, b), _mm_unpackhi_epi8(c, d));
            let quads = [
                _mm_unpacklo_epi16(ab, cd),
                _mm_unpackhi_epi16(ab, cd),
                _mm_unpacklo_epi16(ab_high, cd_high),
                _mm_unpackhi_epi16(ab_high, cd_high),
            ];
            std::mem::transmute(quads)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|i| rows[i % ROWS][i / ROWS] ^ flip)
}

/// Sixteen bytes of each of four rows as a quad, each byte xored with `flip`.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn interleave(rows: [[u8; CHANNELS]; ROWS], flip: u8) -> [u8; QUAD] {
    // SAFETY: every machine has these instructions; the arrays are as large as the vectors.
    unsafe {
        let flip = vdupq_n_u8(flip);
        let [a, b, c, d] = rows.map(|row| veorq_u8(std::mem::transmute::<[u8; 16], uint8x16_t>(row), flip));
        let even = [vzip1q_u8(a, c), vzip2q_u8(a, c)];
        let odd = [vzip1q_u8(b, d), vzip2q_u8(b, d)];
        std::mem::transmute([
            vzip1q_u8(even[0], odd[0]),
            vzip2q_u8(even[0], odd[0]),
            vzip1q_u8(even[1], odd[1]),
            vzip2q_u8(even[1], odd[1]),
        ])
    }
}
