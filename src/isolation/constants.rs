//! Files of constants, for the other process to map.

use crate::backend::BackendError;
use crate::memory::{seal, unnamed_file, Access, AlignedBuf, ClientSlice, Mapping, MemoryError};
use crate::scheduler::{Copier, CopyError};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes to copy.
pub enum Part {
    Private(Arc<AlignedBuf>),
    Client(ClientSlice),
}

impl Part {
    pub fn len(&self) -> usize {
        match self {
            Part::Private(bytes) => bytes.len(),
            Part::Client(slice) => slice.len(),
        }
    }
}

/// A file of the same bytes as `parts`, each at its place, which is `len` long and never changes again. `copier` copies them.
pub fn constant_file(copier: &mut Copier, len: usize, parts: &[(usize, Part)]) -> Result<File, CopyError> {
    let file = unnamed_file(len.max(1)).map_err(MemoryError::Map)?;
    let mapping = Mapping::new(file.as_fd(), 0, len.max(1), Access::ReadWrite)?;
    let whole = ClientSlice::whole(mapping.into());
    for (start, part) in parts {
        let place = whole.part(*start, part.len())?;
        match part {
            Part::Private(bytes) => copier.write(bytes, &place)?,
            Part::Client(slice) => copier.copy(slice, &place)?,
        }
    }
    drop(whole); // what is mapped to be written cannot be sealed
    seal(&file, true).map_err(MemoryError::Map)?;
    Ok(file)
}

/// For `map_err`: `what` was not copied.
pub fn not_copied(what: &'static str) -> impl Fn(CopyError) -> BackendError + Copy {
    move |why| match why {
        CopyError::Memory(source) => BackendError::memory(what)(source),
        CopyError::Stopped(why) => why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_has_its_parts_in_their_places_and_does_not_change() {
        let private = AlignedBuf::copy_of(&[1; 100]).unwrap();
        let shared = ClientSlice::whole(Mapping::anonymous(50).unwrap().into());
        shared.write(&[2; 50]).unwrap();
        let parts = [(0, Part::Private(private.into())), (128, Part::Client(shared))];
        let file = constant_file(&mut Copier::new(&NeverInterrupted), 200, &parts).unwrap();
        let mut read = [9; 200];
        file.read_exact_at(&mut read, 0).unwrap();
        let expected = [&[1; 100][..], &[0; 28], &[2; 50], &[0; 22]].concat();
        assert!(read[..] == expected[..] && file.write_at(&[3], 0).is_err());
        assert!(constant_file(&mut Copier::new(&NeverInterrupted), 0, &[]).is_ok());
    }
}
