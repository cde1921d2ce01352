//! Fast message queues: rings in shared memory, woken by a futex, as libfmq lays them out, and bursts over them.
//!
//! The peer can write all of a queue's memory at any time, so whatever is read from it is copied out, checked, and only
//! then used. A queue that lies is refused or ends with an error; it never makes us fault, hang or allocate at its word.
//!
//! - `descriptor`: what one side tells the other of where a queue lies, checked
//! - `event_flag`: the word that both sides sleep on
//! - `mapped`: a queue's memory, as its protocol uses it
//! - `queue`: the ring, with an end to read from and an end to write to
//! - `codec`: the packets of a burst; `slots`: its memories by name
//! - `burst`: the driver's side of a burst (the client's is in `client`)

mod burst;
pub mod codec;
mod descriptor;
mod error;
mod event_flag;
mod mapped;
#[cfg(all(test, target_pointer_width = "64"))]
mod model_tests;
mod queue;
mod slots;

pub use burst::{Burst, Executor};
pub use descriptor::{Descriptor, Grantor, SharedQueue};
pub use error::FmqError;
pub use queue::{Limit, Queue, ReadTransaction, Reader, Waker, WriteTransaction, Writer};
pub use slots::MAX_KEPT;
