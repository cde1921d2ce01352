//! Watches on the death of a client's object, which end when they are no longer needed.

use crate::ipc::{DeathLink, Object};

/// Calls a function once, should an object's process die before this is dropped, or be dead already.
///
/// A client that hands over the same object with each call must not make a list grow: the link goes with this.
pub(super) struct DeathWatch {
    _link: DeathLink,
}

impl DeathWatch {
    /// `None` where there is nothing to watch: an object of this very process does not die, and one that is dead is told of at once.
    pub fn new(object: Object, died: Box<dyn Fn() + Send + Sync>) -> Option<Self> {
        match DeathLink::new(object, died) {
            Ok(link) => Some(DeathWatch { _link: link }),
            Err(why) => {
                log::debug!("an object is not watched: {why:?}");
                None
            }
        }
    }
}
