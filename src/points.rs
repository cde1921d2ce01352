//! Points that a thread passes in code that knows nothing of the driver: one with each parcelable that is read out of a message, and
//! with each that is freed of a model.
//!
//! It must not know what is done there: who has a message read says it.

use std::cell::Cell;

thread_local! {
    static THEN: Cell<Option<fn()>> = const { Cell::new(None) };
    static PASSED: Cell<u32> = const { Cell::new(0) };
}

/// A message may have hundreds of thousands of them, a fraction of a microsecond apart: at one of so many something is done.
const EVERY: u32 = 16;

/// What the calling thread does at points from here on; mostly nothing.
pub fn at_each(then: Option<fn()>) {
    let _ = THEN.try_with(|to_do| to_do.set(then)); // a thread that ends passes none
}

/// The calling thread passes one.
pub fn passed() {
    let Ok(Some(then)) = THEN.try_with(Cell::get) else { return };
    let passed = PASSED.get().wrapping_add(1);
    PASSED.set(passed);
    if passed.is_multiple_of(EVERY) {
        then();
    }
}
