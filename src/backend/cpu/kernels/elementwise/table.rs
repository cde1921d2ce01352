//! Bytes for bytes by a table of all 256. Of such a loop the compiler makes gathers where there are vectors for them, which
//! are slower than one look-up after the other; where bytes of registers can be permuted, the table is four of them, and where
//! they can be within halves of sixteen, it is sixteen halves.

use super::super::kernel::{input, output};
#[cfg(target_arch = "x86_64")]
use super::super::vector::Level;
use super::super::{Elementwise, Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::OpError;

/// Output 0 as what the table has for the bytes of input 0.
pub struct Table {
    table: [u8; 256],
    way: Way,
}

enum Way {
    OneByOne,
    #[cfg(target_arch = "x86_64")]
    Permuted,
    /// With the [steps] of the table.
    #[cfg(target_arch = "x86_64")]
    Shuffled(Box<[Sixteen; 16]>),
}

/// What sixteen neighbouring bytes become.
#[cfg(target_arch = "x86_64")]
type Sixteen = [u8; 16];

impl Table {
    pub fn new(table: [u8; 256]) -> Self {
        #[cfg(target_arch = "x86_64")]
        let way = match Level::detect() {
            level if level.permutes_bytes() => Way::Permuted,
            level if level.shuffles_bytes() => Way::Shuffled(Box::new(steps(&table))),
            _ => Way::OneByOne,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let way = Way::OneByOne;
        Table { table, way }
    }

    /// Looks bytes up; as many are written as are read.
    pub fn look_up(&self, from: View<u8>, to: &mut Target<u8>) {
        let len = to.len();
        // SAFETY: as many bytes of both were asked for.
        unsafe { self.look_up_at(from.pointer(0, len), to.pointer(0, len), len) };
    }

    /// The same, maybe in place.
    ///
    /// # Safety
    /// There must be `len` bytes to be read, and to be written.
    unsafe fn look_up_at(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the instructions were detected; the rest is the contract.
        unsafe {
            match &self.way {
                Way::OneByOne => one_by_one(&self.table, from, to, len),
                #[cfg(target_arch = "x86_64")]
                Way::Permuted => permuted(&self.table, from, to, len),
                #[cfg(target_arch = "x86_64")]
                Way::Shuffled(steps) => {
                    let done = shuffled(steps, from, to, len);
                    one_by_one(&self.table, from.add(done), to.add(done), len - done);
                }
            }
        }
    }
}

impl Kernel for Table {
    fn name(&self) -> String {
        let way = match self.way {
            Way::OneByOne => "base",
            #[cfg(target_arch = "x86_64")]
            Way::Permuted => "vbmi",
            #[cfg(target_arch = "x86_64")]
            Way::Shuffled(_) => "avx2",
        };
        format!("table {way}")
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (from, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let chunk = work.per_task(out.len(), self.picoseconds(), 2);
        work.for_each_chunk(out, chunk, |first, mut to| {
            self.look_up(from.part(first, to.len()), &mut to);
        })
    }

    fn picoseconds(&self) -> usize {
        match self.way {
            Way::OneByOne => 500,
            #[cfg(target_arch = "x86_64")]
            Way::Permuted => 60,
            #[cfg(target_arch = "x86_64")]
            Way::Shuffled(_) => 150,
        }
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }
}

impl Elementwise for Table {
    fn inputs(&self) -> usize {
        1
    }

    fn go_on(&self, made: &mut [u8], _: usize, _: usize, _: Option<View<u8>>) -> Result<(), OpError> {
        let (at, len) = (made.as_mut_ptr(), made.len());
        // SAFETY: it is this slice that is read and written.
        unsafe { self.look_up_at(at, at, len) };
        Ok(())
    }
}

/// Looks bytes up eight at a time, so that each eight are one load and one store.
///
/// # Safety
/// There must be `len` bytes to be read, and to be written.
unsafe fn one_by_one(table: &[u8; 256], from: *const u8, to: *mut u8, len: usize) {
    let whole = len - len % 8;
    // SAFETY: by contract.
    unsafe {
        for i in (0..whole).step_by(8) {
            let word = from.add(i).cast::<u64>().read_unaligned();
            let found = (0..8).fold(0, |found, byte| {
                found | (u64::from(table[(word >> (8 * byte)) as usize & 0xff]) << (8 * byte))
            });
            to.add(i).cast::<u64>().write_unaligned(found);
        }
        for i in whole..len {
            to.add(i).write(table[usize::from(from.add(i).read())]);
        }
    }
}

/// Looks up 64 bytes at a time: by the lower seven bits in either half of the table, of which the highest bit takes one.
///
/// # Safety
/// There must be `len` bytes to be read, and to be written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn permuted(table: &[u8; 256], from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the table has four registers' bytes; others are masked as far as there are any.
    unsafe {
        let quarter = |i: usize| _mm512_loadu_si512(table.as_ptr().add(i * 64).cast());
        let quarters = [quarter(0), quarter(1), quarter(2), quarter(3)];
        for i in (0..len).step_by(64) {
            let mask = if len - i >= 64 { !0 } else { (1u64 << (len - i)) - 1 };
            let bytes = _mm512_maskz_loadu_epi8(mask, from.add(i).cast());
            let lower = _mm512_permutex2var_epi8(quarters[0], bytes, quarters[1]);
            let upper = _mm512_permutex2var_epi8(quarters[2], bytes, quarters[3]);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), lower, upper);
            _mm512_mask_storeu_epi8(to.add(i).cast(), mask, found);
        }
    }
}

/// The table in the form in which [`shuffled`] adds it up. A byte in part `j` of the table's sixteen parts is looked up in the
/// steps from 0 to `j`, and if `j` is 8 or more in the last eight of them only; what these have, xored, is what the table has.
#[cfg(target_arch = "x86_64")]
fn steps(table: &[u8; 256]) -> [Sixteen; 16] {
    let (parts, _) = table.as_chunks::<16>();
    let mut steps = [[0; 16]; 16];
    for (j, part) in parts.iter().enumerate() {
        for (i, &found) in part.iter().enumerate() {
            let before = if j > 0 { parts[j - 1][i] } else { 0 };
            // What is no longer among the last eight.
            let gone = if j >= 8 { steps[j - 8][i] } else { 0 };
            steps[j][i] = found ^ before ^ gone;
        }
    }
    steps
}

/// Looks bytes up in whole vectors, and gives how many those are.
///
/// # Safety
/// The machine must have AVX2; there must be `len` bytes to be read, and to be written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn shuffled(steps: &[Sixteen; 16], from: *const u8, to: *mut u8, len: usize) -> usize {
    const SIZE: usize = 32;
    let mut done = 0;
    // SAFETY: by contract; no more is read and written than there is.
    unsafe {
        while len - done >= 4 * SIZE {
            vectors::<4>(steps, from.add(done), to.add(done));
            done += 4 * SIZE;
        }
        while len - done >= SIZE {
            vectors::<1>(steps, from.add(done), to.add(done));
            done += SIZE;
        }
    }
    done
}

/// Looks `N` vectors up. The instruction takes a byte's lower four bits, and gives 0 for those from 128 on: so it does for all
/// parts of the table at a distance of sixteen, before a byte's own comes and eight after it.
///
/// # Safety
/// The machine must have AVX2; there must be so many vectors to be read, and to be written.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn vectors<const N: usize>(steps: &[Sixteen; 16], from: *const u8, to: *mut u8) {
    use std::arch::x86_64::*;
    // SAFETY: by contract.
    unsafe {
        let (mut bytes, mut found) = ([_mm256_setzero_si256(); N], [_mm256_setzero_si256(); N]);
        for (i, bytes) in bytes.iter_mut().enumerate() {
            *bytes = _mm256_loadu_si256(from.cast::<__m256i>().add(i));
        }
        let part = _mm256_set1_epi8(16);
        for (j, step) in steps.iter().enumerate() {
            let step = _mm256_broadcastsi128_si256(_mm_loadu_si128(step.as_ptr().cast()));
            for (bytes, found) in bytes.iter_mut().zip(&mut found) {
                *found = _mm256_xor_si256(*found, _mm256_shuffle_epi8(step, *bytes));
                // Those that began below 128 stay there from the eighth on, when they are at most -1 as signed ones.
                *bytes = match j < 8 {
                    true => _mm256_sub_epi8(*bytes, part),
                    false => _mm256_subs_epi8(*bytes, part),
                };
            }
        }
        for (i, found) in found.iter().enumerate() {
            _mm256_storeu_si256(to.cast::<__m256i>().add(i), *found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::twins::Noise;
    use super::super::super::vector::tests::at_each_level;
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn bytes_of_any_number_become_what_the_table_has() {
        let mut noise = Noise(1);
        let mut byte = || noise.next() as u8;
        let table: [u8; 256] = std::array::from_fn(|_| byte());
        // All bytes, and then any.
        let from: Vec<u8> = (0..=u8::MAX).chain(std::iter::repeat_with(byte).take(300)).collect();
        let expected: Vec<u8> = from.iter().map(|&byte| table[usize::from(byte)]).collect();
        at_each_level(|level| {
            let table = Table::new(table);
            for len in (0..140).chain([256, 300, from.len()]) {
                let mut to = vec![0; len];
                table.look_up(View::of(&from[..len]), &mut Target::of(&mut to));
                assert_eq!(to, expected[..len], "{len} bytes with {level:?}");
                to.copy_from_slice(&from[..len]);
                let at = to.as_mut_ptr();
                // SAFETY: there are as many bytes.
                unsafe { table.look_up_at(at, at, len) };
                assert_eq!(to, expected[..len], "{len} bytes in place with {level:?}");
            }
            Ok::<_, Infallible>(())
        })
        .unwrap();
    }
}
