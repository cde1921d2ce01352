//! Whole files of this machine's user as slices, for the tool. Not for what a client sends: a slice of a file that shrinks ends
//! the process.

use memmap2::Mmap;
use std::fs::File;

/// All bytes of `file`.
pub fn whole_file(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: it is the user's own. Whoever changes it meanwhile changes what the tool makes of it, or ends the tool.
    unsafe { Mmap::map(file) }
}
