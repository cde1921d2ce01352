//! What a driver has done, counted: for people who look at it while it works.
//!
//! - `histogram`: how long something took, by powers of two; `executions`: what is counted of executions
//! - `clients`: who has prepared models, and what was counted of each; `errors`: what was refused, and why
//! - `cache`: what is counted of a cache
//! - `value`: a report as a tree, and the tree as JSON or text
//!
//! Counting costs an execution a few additions to atomics, and what is kept is bounded whatever clients do. Each driver has
//! statistics of its own. Nothing here knows what is counted, nor of binder, and nothing here may hold data of a client.

mod cache;
mod clients;
mod errors;
mod executions;
mod histogram;
mod value;

pub use cache::CacheCounts;
pub use clients::{ClientCounts, Clients, Listed, OpenBurst, PreparedCounts};
pub use errors::{Errors, Noted};
pub use executions::{Executions, Running, Totals};
pub use histogram::{Histogram, Times};
pub use value::Value;
