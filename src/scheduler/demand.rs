//! How urgent work is, and how much of it there is. Plain values: nothing here knows who asks or who computes.

/// How urgent a client says that its work is, among its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Low,
    #[default]
    Medium,
    High,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub waiting: usize,
    pub running: usize,
}
