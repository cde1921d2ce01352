//! What elementwise loops work at: elements, and functions of them.

use bytemuck::AnyBitPattern;

/// What an element is made of.
pub trait Element: AnyBitPattern + Send + Sync + 'static {}

impl<T: AnyBitPattern + Send + Sync + 'static> Element for T {}

/// What becomes of an element of each of two inputs.
///
/// # Safety
///
/// `run` gets and puts numbers below `len` only.
pub unsafe trait OfTwo<S, T>: Send + Sync {
    /// Puts what becomes of each of `len` pairs. It puts nothing before it has got the pair for the last time: the output may be
    /// an input as well.
    fn run(&self, len: usize, get: impl Fn(usize) -> (S, S), put: impl FnMut(usize, T));
}

// SAFETY: by the loop's range.
unsafe impl<S, T, F: Fn(S, S) -> T + Send + Sync> OfTwo<S, T> for F {
    #[inline(always)]
    fn run(&self, len: usize, get: impl Fn(usize) -> (S, S), mut put: impl FnMut(usize, T)) {
        for i in 0..len {
            let (a, b) = get(i);
            put(i, self(a, b));
        }
    }
}
