//! Who computes when, and how much one client may hold.
//!
//! - `control`: the terms of one compilation or run: deadline, cancellation, priority; `stop`: a flag that wakes
//! - `demand`: how urgent work is, and how much waits
//! - `turns`: turns at computing, in equal shares among clients; `workers`: threads for tasks, one for each client at the least
//! - `apart`: keeps those who compute on different cores
//! - `call_turns`: turns for what is done on a call's own thread before; `short_calls`: the same where each is short
//! - `computing`: by which turn a thread computes
//! - `copies`: long copies, by yield points
//! - `limits`: how much of everything there is for clients; `quotas`: what those of one driver hold
//! - `waiting`: threads that sleep until something has changed
//! - `errands`: what is done for clients on no thread that others need, as to close what they gave; `starter`: the thread that
//!   tries again where no thread could be had
//! - `watcher`: the thread that waits for descriptors and times; `life`: whether client processes live; `caller`: whether who
//!   called is there still
//! - `cores`: which core a thread runs on
//! - `slow_calls`: what calls that take long waited for
//! - `recorder`: what runs do when, for those who ask; `marks`: what the driver is about, in the kernel's trace
//! - `polling`: to look for what comes soon, rather than to sleep
//! - `time_slices`: for how long the kernel lets a thread compute
//! - `thread_cache`: threads for short tasks that may have to wait for a client
//!
//! Nothing here knows what is computed, nor of binder.

mod apart;
#[cfg(test)]
pub mod awake;
mod call_turns;
mod caller;
mod clock;
mod computing;
mod control;
mod copies;
pub mod cores;
mod demand;
mod errands;
mod life;
pub mod limits;
pub mod marks;
pub mod polling;
mod quotas;
mod recorder;
mod short_calls;
pub mod slow_calls;
mod starter;
mod stop;
mod thread_cache;
pub mod time_slices;
mod turns;
mod waiting;
mod watcher;
mod workers;

pub use crate::quota::{Exhausted, Permit, Quota};
pub use call_turns::{has_let_go, lets_go, was_read, CallTurns};
pub use caller::{caller_gone, serves};
pub use clock::boottime_ns;
pub use computing::{lend_turn, Computing};
pub use control::{Control, Held, Holds, Yield};
pub use copies::{Copier, CopyError, STRETCH};
pub use demand::{Load, Priority};
pub use errands::Errands;
pub use life::{Life, Lives};
pub use polling::{Poller, PollingBudget};
pub use quotas::{Quotas, Refused};
pub use recorder::{Activity, Noted, OperationId, Recorder, Span, Underway};
pub use short_calls::was_served;
pub use starter::Starter;
pub use stop::{Stop, Wake, Wakes};
pub use thread_cache::{Reserved, ThreadCache};
pub use turns::{InLine, Start, Turn, Turns};
pub use waiting::Waiting;
pub use watcher::{Event, Key, Watched, Watcher};
pub use workers::{Task, Workers};
