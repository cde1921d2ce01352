//! What a confined process is to do with other processes. It is the one who confines it who decides.

/// Whether a confined process starts others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    None,
    /// It starts its backend's process again and again. The calls for that would start any program, but a program that it
    /// starts inherits the filter, and so may do no more than it may itself.
    Starts,
}
