//! Bytes for bytes by a table of all 256. Of such a loop the compiler makes gathers where there are vectors for them, which
//! are slower than one look-up after the other; where bytes of registers can be permuted, the table is four of them.

use super::super::kernel::{input, output};
use super::super::vector::Level;
use super::super::{Elementwise, Kernel, Work};
use crate::backend::cpu::pool::Team;
use crate::memory::{Target, View};
use crate::ops::OpError;

/// Output 0 as what the table has for the bytes of input 0.
pub struct Table {
    table: [u8; 256],
    permutes: bool,
}

impl Table {
    pub fn new(table: [u8; 256]) -> Self {
        Table { table, permutes: Level::detect().permutes_bytes() }
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
        #[cfg(target_arch = "x86_64")]
        if self.permutes {
            // SAFETY: the instructions were detected; the rest is the contract.
            unsafe { permuted(&self.table, from, to, len) };
            return;
        }
        // SAFETY: by contract.
        unsafe { one_by_one(&self.table, from, to, len) };
    }
}

impl Kernel for Table {
    fn name(&self) -> String {
        format!("table {}", if self.permutes { "vbmi" } else { "base" })
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
        if self.permutes {
            60
        } else {
            500
        }
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Table {
    fn inputs(&self) -> usize {
        1
    }

    fn go_on(&self, made: &mut [u8], _: usize, _: Option<View<u8>>, _: Team) -> Result<(), OpError> {
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
