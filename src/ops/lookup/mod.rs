//! Operations that look rows of a table up, by index or by key.

mod embedding;
mod hashtable;

pub use embedding::EMBEDDING_LOOKUP;
pub use hashtable::HASHTABLE_LOOKUP;

/// Rows of a table of these dimensions, and bytes of one; 0 bytes where a row has no elements.
fn rows(values: &crate::ops::Arg) -> (usize, usize) {
    let size = values.ty().element_size().unwrap_or(0);
    let (_, elements) = super::movement::around_axis(values.dims(), 0);
    (values.dim(0) as usize, elements.saturating_mul(size))
}
