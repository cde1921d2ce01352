//! What reader and writer of an artifact agree on.

use crate::backend::cpu::kernels;

/// Changes whenever the format does.
const FORMAT: u32 = 9;

/// An input that the call leaves out.
pub const OMITTED: u32 = u32::MAX;

/// What kernel a call has, as the format says it.
pub mod kernel {
    pub const NONE: u8 = 0;
    pub const OWN: u8 = 1;
    /// That of a call before.
    pub const SAME: u8 = 2;
}

/// Where a value lives, as the format says it.
pub mod place {
    pub const DYNAMIC: u8 = 0;
    pub const ARENA: u8 = 1;
    pub const IN_MODEL: u8 = 2;
    pub const IN_DATA: u8 = 3;
    pub const PACKED: u8 = 4;
}

/// What the program was made for. Packed weights are of no use to other instruction sets.
pub fn made_for() -> String {
    format!("{FORMAT} {}", kernels::instruction_set())
}
