//! By which turn a thread computes, or checks what a client sent: for what takes long on its way and needs no core, as to free
//! large memory.
//!
//! It must not know what is computed.

use super::control::{Control, Yield};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

thread_local! {
    static TURN: RefCell<Option<Arc<dyn Yield>>> = const { RefCell::new(None) };
    /// The last turn that it took for a check, which ends where its holder drops it.
    static CHECK: RefCell<Option<Weak<dyn Yield>>> = const { RefCell::new(None) };
}

/// See [`Control::computes`].
#[must_use]
pub struct Computing {
    before: Option<Arc<dyn Yield>>,
    /// It is the thread's own.
    _not_send: PhantomData<*const ()>,
}

impl Control {
    /// Says that the calling thread computes by this turn, until what this gives is dropped.
    pub fn computes(&self) -> Computing {
        let before = TURN.try_with(|turn| turn.replace(self.turn.clone())).ok().flatten();
        Computing { before, _not_send: PhantomData }
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = TURN.try_with(|turn| turn.replace(before)); // a thread that ends computes nothing
    }
}

/// Notes the turn by which the calling thread checks from here on.
pub(super) fn checks(turn: Weak<dyn Yield>) {
    let _ = CHECK.try_with(|check| check.replace(Some(turn))); // a thread that ends checks nothing
}

/// Gives back the turns by which the calling thread computes or checks, if there are any: it has them again from its next yield
/// point on.
pub fn lend_turn() {
    let turn = TURN.try_with(|turn| turn.borrow().clone()).ok().flatten();
    let check = CHECK.try_with(|check| check.borrow().as_ref().and_then(Weak::upgrade)).ok().flatten();
    turn.iter().chain(&check).for_each(|turn| turn.lend());
}
