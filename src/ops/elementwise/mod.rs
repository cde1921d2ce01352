//! Operations that treat each element by itself.

mod floor;

pub use floor::FLOOR;
