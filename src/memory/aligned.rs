//! Private, zeroed memory aligned for any element type and vector width.

use super::budget::CountedBuffer;
use super::common::{Candidate, Common, Memory};
use super::zeroed::{bytes_of_pages, Divided, Part, ZeroedPages, WORTHWHILE};
use std::sync::Arc;

/// A private buffer of bytes, aligned to 64. Not to be cloned: its length may be a client's choice.
#[derive(Default)]
pub struct AlignedBuf {
    storage: Storage,
    len: usize,
    _counted: Option<CountedBuffer>,
}

enum Storage {
    Blocks(Box<[Block]>),
    Pages(ZeroedPages),
    Part(Part),
    /// What others may have as well, on no account: each who has it has as much on its own.
    Common(Arc<Memory>),
}

impl Default for Storage {
    fn default() -> Self {
        Storage::Blocks(Box::default())
    }
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Block([u8; 64]);

impl AlignedBuf {
    /// `len` zeroed bytes; `None` where the memory cannot be had, for lengths may be a client's choice.
    pub fn zeroed(len: usize) -> Option<Self> {
        let bytes = match len {
            WORTHWHILE.. => bytes_of_pages(len)?,
            _ => len.checked_next_multiple_of(size_of::<Block>())?,
        };
        let counted = if bytes > 0 { Some(CountedBuffer::take(bytes)?) } else { None };
        Some(AlignedBuf { _counted: counted, ..Self::uncounted(len)? })
    }

    /// The same of the driver's own, for buffers whose number and length no client chooses.
    pub fn uncounted(len: usize) -> Option<Self> {
        let storage = match len {
            WORTHWHILE.. => Storage::Pages(ZeroedPages::new(len)?),
            _ => Storage::Blocks(
                bytemuck::allocation::try_zeroed_slice_box(len.div_ceil(size_of::<Block>())).ok()?,
            ),
        };
        Some(AlignedBuf { storage, len, _counted: None })
    }

    /// As [`AlignedBuf::zeroed`], of pages that are shared with other buffers; of its own where those have no room left.
    pub(super) fn of(pages: &mut Divided, len: usize) -> Option<Self> {
        let Some((part, bytes)) = pages.take(len.checked_next_multiple_of(size_of::<Block>())?) else {
            return Self::zeroed(len);
        };
        let counted = if bytes > 0 { Some(CountedBuffer::take(bytes)?) } else { None };
        Some(AlignedBuf { storage: Storage::Part(part), len, _counted: counted })
    }

    /// A copy of `bytes`; `None` where the memory cannot be had.
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut buf = Self::zeroed(bytes.len())?;
        buf.copy_from_slice(bytes);
        Some(buf)
    }

    /// The same buffer, on the same account, in memory that others may have in common with it: it cannot be written any more. Where there is
    /// one in `common` that may be equal, gives both back.
    pub fn offered(self, common: &Arc<Common>, sum: u64) -> Result<Self, (Self, Candidate)> {
        let AlignedBuf { storage, len, _counted } = self;
        match common.offer(AlignedBuf { storage, len, _counted: None }, sum) {
            Ok(memory) => Ok(AlignedBuf { storage: Storage::Common(memory), len, _counted }),
            Err((buffer, other)) => Err((AlignedBuf { _counted, ..buffer }, other)),
        }
    }

    /// The same buffer, on the same account, in the memory of `other`, which was found to be equal, if that is still there. Its own is
    /// given back then.
    pub fn in_memory_of(self, other: &Candidate) -> Self {
        match other.memory() {
            Some(memory) => AlignedBuf { storage: Storage::Common(memory), ..self },
            None => self,
        }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::copy_of(self).expect("tests take little")
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = match &self.storage {
            Storage::Blocks(blocks) => bytemuck::cast_slice(blocks),
            Storage::Pages(pages) => pages.bytes(),
            Storage::Part(part) => part.bytes(),
            Storage::Common(memory) => memory.bytes(),
        };
        &bytes[..self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    /// No bytes at all of what is in common with others.
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = match &mut self.storage {
            Storage::Blocks(blocks) => bytemuck::cast_slice_mut(blocks),
            Storage::Pages(pages) => pages.bytes_mut(),
            Storage::Part(part) => part.bytes_mut(),
            Storage::Common(_) => return &mut [],
        };
        &mut bytes[..self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf of {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_that_a_buffer_takes_are_counted() {
        let mappings = crate::quota::Quota::new(4, 2);
        let budget = crate::memory::Budget::new(1 << 30).with_large(mappings.clone());
        let _account = budget.on_account_of(1);
        let small = AlignedBuf::zeroed(WORTHWHILE - 64).unwrap();
        assert_eq!(mappings.held(), 0);
        drop(small);
        for len in [WORTHWHILE + 1, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, (2 << 20) + 1, 3 << 20] {
            let buf = AlignedBuf::zeroed(len).unwrap();
            let Storage::Pages(pages) = &buf.storage else { panic!("{len} bytes are worth pages") };
            assert_eq!(budget.private().held(), pages.bytes().len() as u64, "{len}");
            assert_eq!(mappings.held(), 1);
        }
        let mut divided = Divided::new(3 << 20).unwrap();
        let held = [64, 1 << 20, 1 << 20, 64].map(|len| {
            let part = AlignedBuf::of(&mut divided, len).unwrap();
            (budget.private().held() >> 20, part)
        });
        drop(divided);
        assert_eq!(
            held.each_ref().map(|(held, _)| *held),
            [2, 2, 4, 4],
            "whole pages that a part is the first in"
        );
        drop(held);
        assert_eq!(budget.private().held(), 0);
    }

    #[test]
    fn is_zeroed_aligned_and_fallible() {
        // Blocks, pages, and some that may be huge.
        for len in [65, WORTHWHILE - 1, WORTHWHILE, (2 << 20) - 1, (4 << 20) + 65] {
            let mut buf = AlignedBuf::zeroed(len).unwrap();
            assert_eq!((buf.len(), buf.as_ptr() as usize % 64), (len, 0));
            assert!(buf.iter().all(|&b| b == 0));
            buf[len - 1] = 1;
            assert_eq!(AlignedBuf::copy_of(&buf).unwrap()[len - 1], 1);
        }
        assert!(AlignedBuf::zeroed(usize::MAX / 2).is_none());
        // More than the process may have: the kernel would promise it.
        assert!(AlignedBuf::zeroed(crate::memory::machine_bytes() / 2 + 1).is_none());
        assert!(AlignedBuf::zeroed(0).unwrap().is_empty());
    }
}
