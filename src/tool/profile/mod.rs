//! Where the time of a model's runs goes, operation by operation: for a driver that tells what becomes
//! of models.
//!
//! - `record`: runs that are watched; `figures`: what they come to; `table`: the same for people
//! - `trace`: the runs as a file for Perfetto

mod figures;
mod record;
mod table;
mod trace;

pub use figures::Profile;
pub use record::{check, describe, described, does_not_tell, is_of_processor, peaks, tells, watched};
pub use record::{Recording, Watch, KNOWS_NOTHING};
pub use table::tell;
pub use trace::write as write_trace;
