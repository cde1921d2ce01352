//! What a confined process is to do with other processes. It is the one who confines it who decides.

/// Whether a confined process starts others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    None,
    /// It starts its backend's process again and again. What it may for that it may start any program with; what it
    /// starts inherits its filter, and so has no more than it has itself.
    Starts,
}
