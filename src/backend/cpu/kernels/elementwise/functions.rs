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
pub unsafe trait OfTwo<S: Element, T>: Send + Sync {
    /// Puts what becomes of each of `len` pairs. It puts nothing before it has got the pair for the last time: the output may be
    /// an input as well.
    fn run(&self, len: usize, get: impl Fn(usize) -> (S, S), put: impl FnMut(usize, T));

    /// The same where the elements of each input lie one after the other, and the output's do.
    ///
    /// # Safety
    /// There must be `len` of each.
    #[inline(always)]
    unsafe fn along(&self, len: usize, [a, b]: [*const S; 2], to: *mut T) {
        // SAFETY: by contract, for numbers below `len`.
        let read = |from: *const S, i| unsafe { from.add(i).read_unaligned() };
        // SAFETY: as above.
        self.run(
            len,
            |i| (read(a, i), read(b, i)),
            |i, element| unsafe { to.add(i).write_unaligned(element) },
        );
    }
}

// SAFETY: by the loop's range.
unsafe impl<S: Element, T, F: Fn(S, S) -> T + Send + Sync> OfTwo<S, T> for F {
    #[inline(always)]
    fn run(&self, len: usize, get: impl Fn(usize) -> (S, S), mut put: impl FnMut(usize, T)) {
        for i in 0..len {
            let (a, b) = get(i);
            put(i, self(a, b));
        }
    }
}
