//! Where a kernel's weights come from: packed now from constants, or as an earlier compilation packed them, or nowhere
//! yet.

use super::Kernel;
use crate::memory::{AlignedBuf, Slab, View, Weights, FORM};
use crate::ops::{in_common, Args, Interrupt, NeverInterrupted};
use bytemuck::AnyBitPattern;
use std::cell::Cell;

pub enum Source<'a> {
    /// Constants have data, and are packed.
    Pack(Pack<'a>),
    /// The caller asks only which kernel it is: it gets no weights, and must not run [unless it needs
    /// none](Source::is_enough_for).
    Later(Asked),
    /// Gives weights packed before, so many bytes of them.
    Packed(&'a mut dyn FnMut(usize) -> Option<Weights>),
}

/// How constants are packed.
pub struct Pack<'a> {
    /// Whose memory they are packed into.
    pub slab: &'a Slab,
    /// By input, those that a kernel packs where they lie.
    pub views: &'a [Option<View<'a, u8>>],
    pub interrupt: &'a dyn Interrupt,
}

/// Whether a kernel asked for anything.
#[derive(Default)]
pub struct Asked(Cell<bool>);

impl<'a> Source<'a> {
    /// To pack what has data, without interruption.
    pub fn pack(slab: &'a Slab) -> Self {
        Source::Pack(Pack { slab, views: &[], interrupt: &NeverInterrupted })
    }

    /// To ask only which kernel it is.
    pub fn later() -> Self {
        Source::Later(Asked::default())
    }

    /// Whether a kernel that was made of [`Source::later`] lacks nothing: it may run as it is.
    pub fn is_enough_for(&self, kernel: &dyn Kernel) -> bool {
        let asked = matches!(self, Source::Later(asked) if asked.0.get());
        kernel.packed_inputs().is_empty() && !asked
    }

    /// Input `i` to be packed, wherever it lies. `None` where nothing is packed now.
    pub fn view<'v, T: AnyBitPattern>(&self, args: &Args<'v>, i: usize) -> Option<View<'v, T>>
    where
        'a: 'v,
    {
        self.note();
        let Source::Pack(Pack { views, .. }) = self else { return None };
        let view: Option<View<'v, u8>> = views.get(i).copied().flatten();
        view.or_else(|| Some(View::of(args.inputs.get(i)?.as_ref()?.data?)))?.elements()
    }

    /// Whether the kernel is going to run: where it is only asked for, nothing need be made for it.
    pub fn runs(&self) -> bool {
        self.note();
        !matches!(self, Source::Later(_))
    }

    /// Notes that something is asked for.
    fn note(&self) {
        if let Source::Later(asked) = self {
            asked.0.set(true);
        }
    }

    /// Whether constants are packed now.
    pub fn packs(&self) -> bool {
        self.note();
        matches!(self, Source::Pack(..))
    }

    /// As [`Source::take`], once for all who pack the bytes `from` in this `form`, should these stay where they lie: gates of
    /// a recurrent layer's steps, say, which differ in what comes behind the product.
    pub fn take_once<T: bytemuck::Pod>(
        &mut self,
        from: Option<View<u8>>,
        form: [usize; FORM],
        count: usize,
        pack: impl FnOnce(&mut [T]) -> Option<()>,
    ) -> Option<Weights> {
        let (Source::Pack(Pack { slab, views, .. }), Some(from)) = (&*self, from) else {
            return self.take(count, pack);
        };
        let start = |view: &View<u8>| view.pointer(0, view.len()) as usize;
        let at = (start(&from), from.len());
        let stays = views.iter().flatten().any(|view| (start(view), view.len()) == at);
        let key = stays.then_some((at, form));
        let bytes = count.checked_mul(size_of::<T>())?;
        if let Some(known) = key.and_then(|key| slab.known(&key)).filter(|known| known.len() == bytes) {
            return Some(known.into());
        }
        let made = self.take(count, pack)?;
        if let (Source::Pack(Pack { slab, .. }), Weights::Private(bytes), Some(key)) = (&*self, &made, key) {
            slab.remember(key, bytes.clone())?;
        }
        Some(made)
    }

    /// `count` elements, zeroed and then filled by `pack` unless they are packed already. `None` where `pack` has
    /// nothing to pack, or there is no memory.
    pub fn take<T: bytemuck::Pod>(
        &mut self,
        count: usize,
        pack: impl FnOnce(&mut [T]) -> Option<()>,
    ) -> Option<Weights> {
        let bytes = count.checked_mul(size_of::<T>())?;
        self.note();
        match self {
            Source::Packed(next) => next(bytes).filter(|weights| weights.len() == bytes),
            Source::Later(_) => Some(AlignedBuf::default().into()),
            Source::Pack(Pack { slab, interrupt, .. }) => {
                let mut packed = slab.zeroed(bytes)?;
                pack(bytemuck::cast_slice_mut(&mut packed))?;
                Some(in_common(packed, *interrupt).ok()?.into())
            }
        }
    }
}
