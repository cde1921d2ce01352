//! What threads of a model have done, in that order, for one that waits until so much of it is.
//!
//! Must not unpark who waits: to the checker that ends any other wait, too, as one for a lock.

use loom::sync::Notify;
use std::sync::{Arc, Mutex};

pub struct Done<T> {
    said: Mutex<Vec<T>>,
    notify: Notify,
}

impl<T: Clone> Done<T> {
    /// For one thread that waits.
    pub fn new() -> Arc<Self> {
        Arc::new(Done { said: Mutex::default(), notify: Notify::new() })
    }

    pub fn say(&self, what: T) {
        self.said.lock().expect("no panic").push(what);
        self.notify.notify();
    }

    /// Waits until so much was said: a thread that waits for what is never done waits for ever, and the checker finds it.
    pub fn wait_for(&self, count: usize) -> Vec<T> {
        loop {
            let said = self.said.lock().expect("no panic").clone();
            if said.len() >= count {
                return said;
            }
            self.notify.wait();
        }
    }
}
