//! A backend for an NPU that is not there: what a vendor copies.
//!
//! The "device" is a process ([`device`], started by [`link`]) with memory of its own, and works at two jobs at once.
//! Everything a real one has is here in small:
//!
//! | file | what it shows |
//! |---|---|
//! | `backend` | [`nnhal::backend::Backend`]: what the driver asks of a vendor, and where each answer is |
//! | `plan` | which operations the device takes, and why not; one path for "is it supported" and "compile it" |
//! | `compile` | from a model to a command stream and constants in the device's layout; saving and loading both |
//! | `execute` | binding memory, submitting, completing, cancelling |
//! | `memory` | the device's own memory, imported client memory, and device buffers in the device's own layout |
//! | `link` | the device's life: start, command ring, completions out of order, death |
//! | `protocol`, `stream`, `layout` | what driver and device agree on |
//! | `device` | the device itself, which a vendor deletes: the hardware does this |
//!
//! A corpus of conformance models runs over it by nnhal's `tests/every_backend.sh CORPUS sample_npu`.
//!
//! Nothing outside of this crate was changed for it, and nothing in it is `unsafe`.

pub mod backend;
mod compile;
pub mod device;
mod execute;
mod layout;
mod link;
mod memory;
mod plan;
mod protocol;
mod stream;

pub use backend::{SampleNpu, EXTENSION, LOOKUP, TABLE};

/// What can fail here fails with the seam's error, unless it says otherwise.
type Result<T, E = nnhal::backend::BackendError> = std::result::Result<T, E>;
