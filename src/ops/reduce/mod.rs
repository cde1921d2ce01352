//! Reductions: operations that fold a tensor along some of its axes.

mod axes;
mod fold;
mod mean;

pub use axes::folded;
pub use fold::{REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM};
pub use mean::MEAN;
