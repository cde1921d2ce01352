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

/// Channels that `wide` makes at once.
#[cfg(target_arch = "x86_64")]
pub const GROUP: usize = 64;

/// The order in which the constants of channels are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Plain,
    /// That of `wide`: in each whole group of sixty-four, quarters of a vector are swapped with vectors.
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// That of `words`: in each sixteen, whether there are so many or not, the second and the third four are swapped.
    #[cfg(target_arch = "x86_64")]
    Words,
}

impl Order {
    /// The channel whose constants lie at a place, and the place of those of a channel, which is the same; of so many channels.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))] // there is one order
    pub fn at(self, place: usize, channels: usize) -> usize {
        match self {
            Order::Plain => place,
            #[cfg(target_arch = "x86_64")]
            Order::Wide => {
                if place >= channels / GROUP * GROUP {
                    return place;
                }
                let (group, vector, quarter) = (place / GROUP * GROUP, place / 16 % 4, place / 4 % 4);
                group + quarter * 16 + vector * 4 + place % 4
            }
            #[cfg(target_arch = "x86_64")]
            Order::Words => {
                let four = place / 4 % 4;
                place / CHANNELS * CHANNELS + (four % 2 * 2 + four / 2) * 4 + place % 4
            }
        }
    }

    /// So many channels change places among themselves.
    pub fn group(self) -> usize {
        match self {
            Order::Plain => 1,
            #[cfg(target_arch = "x86_64")]
            Order::Wide => GROUP,
            #[cfg(target_arch = "x86_64")]
            Order::Words => CHANNELS,
        }
    }
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
