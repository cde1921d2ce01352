//! Whether whoever made the call that a thread serves is there still: a connection that was closed amid a call is no longer
//! waited on by anybody, though its client's process may live. It must not know what a connection is.

use super::stop::Stop;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Set when the caller whom the thread serves has gone.
    static GONE: RefCell<Option<Arc<Stop>>> = const { RefCell::new(None) };
}

/// Says that the thread serves a call from here on, whose caller has gone once `gone` is set.
pub fn serves(gone: &Arc<Stop>) {
    // A thread that ends serves nobody.
    let _ = GONE.try_with(|known| {
        let mut known = known.borrow_mut();
        if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, gone)) {
            *known = Some(gone.clone());
        }
    });
}

/// Set when whoever made the call that the thread serves hangs up; never where the transport does not tell.
pub fn caller_gone() -> Arc<Stop> {
    GONE.try_with(|known| known.borrow().clone()).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_last_caller_and_no_others() {
        assert!(!Arc::ptr_eq(&caller_gone(), &caller_gone()), "nobody calls yet");
        let [first, second] = [(); 2].map(|()| Arc::<Stop>::default());
        for gone in [&first, &first, &second] {
            serves(gone);
            assert!(Arc::ptr_eq(&caller_gone(), gone));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!Arc::ptr_eq(&caller_gone(), &second)));
        });
        second.set();
        assert!(caller_gone().is_set() && !first.is_set());
    }
}
