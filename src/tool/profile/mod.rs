//! Where the time of a model's runs goes, operation by operation: for a driver in this process, which can be watched.
//!
//! - `record`: runs that are watched; `figures`: what they come to; `table`: the same for people
//! - `trace`: the runs as a file for Perfetto

mod figures;
mod record;
mod table;
mod trace;

pub use figures::Profile;
pub use record::{Recording, Watch};
pub use table::tell;
pub use trace::write as write_trace;
