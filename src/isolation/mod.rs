//! A backend in a process of its own, so that what crashes there costs the executions in flight and nothing else.
//!
//! - [`Isolated`] is the backend that the driver has; [`serve`] is what the process does, with the real one
//! - `supervisor`: starts the process again when it has ended; `life`: one life of it, seen from the service
//! - `executable`, `binding`, `memory`: what the driver holds; `instance`: what of it is in the process
//! - `answers`: what the process says that may be long
//! - `constants`: files of what models are made of
//! - `things`: what it has for clients; `body`: what goes with an order, as it gets that
//! - `message`: what they say to each other; `codec`, `encodings`, `model`: as which bytes
//!
//! Memory goes over by descriptor. The service believes nothing of what the process says; the process believes the service,
//! but for the memory of clients, which is as hostile there as here.

mod answers;
mod backend;
mod binding;
mod body;
mod codec;
mod constants;
mod encodings;
mod executable;
mod instance;
mod life;
mod memory;
mod message;
mod model;
mod serve;
mod supervisor;
mod things;

pub use backend::Isolated;
pub use serve::serve;
