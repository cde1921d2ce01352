//! Where a kernel's weights come from: packed now from constants, or as an earlier compilation packed them, or nowhere
//! yet.

use crate::memory::{AlignedBuf, Slab, Weights};

pub enum Source<'a> {
    /// Constants have data: pack them, in memory of this slab.
    Pack(&'a mut Slab),
    /// Only which kernel it is matters now: it gets no weights, and must not run.
    Later,
    /// Gives weights packed before, so many bytes of them.
    Packed(&'a mut dyn FnMut(usize) -> Option<Weights>),
}

impl Source<'_> {
    /// `count` elements, zeroed and then filled by `pack` unless they are packed already. `None` where `pack` has
    /// nothing to pack, or there is no memory.
    pub fn take<T: bytemuck::Pod>(
        &mut self,
        count: usize,
        pack: impl FnOnce(&mut [T]) -> Option<()>,
    ) -> Option<Weights> {
        let bytes = count.checked_mul(size_of::<T>())?;
        match self {
            Source::Packed(next) => next(bytes).filter(|weights| weights.len() == bytes),
            Source::Later => Some(AlignedBuf::default().into()),
            Source::Pack(slab) => {
                let mut packed = slab.zeroed(bytes)?;
                pack(bytemuck::cast_slice_mut(&mut packed))?;
                Some(packed.into())
            }
        }
    }
}
