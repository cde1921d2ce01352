//! How memory is used: read, written, or both.

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    pub(super) fn reads(self) -> bool {
        self != Access::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Access::Read
    }

    /// Both this and `other`.
    pub fn and(self, other: Access) -> Access {
        if self == other {
            self
        } else {
            Access::ReadWrite
        }
    }
}
