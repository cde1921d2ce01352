//! How large the sums of a panel can be, whatever the inputs: where they are within 16 bits once they are scaled, their low
//! halves are all that there is to pack.
//!
//! A sum is at most as large as the bias and 128 times the sizes of all weights. Where even weights of 128 leave it short,
//! which is so for most products, the weights need not be looked at. Otherwise they are, once, if they stay.

use std::sync::atomic::{AtomicU8, Ordering};

/// Scaled sums up to this size are within 16 bits, however they are rounded.
pub const SHORT: f64 = 32000.0;
/// The size of a signed byte, at the most.
const MOST: f64 = 128.0;

/// What is known of a panel's sums.
#[derive(Default)]
pub struct Size(AtomicU8);

impl Size {
    const UNKNOWN: u8 = 0;
    const SHORT: u8 = 1;
    const LONG: u8 = 2;

    /// Whether they are short when they are scaled.
    #[inline(always)]
    pub fn known(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => None,
            size => Some(size == Self::SHORT),
        }
    }

    pub fn remember(&self, is_short: bool) {
        self.0.store(if is_short { Self::SHORT } else { Self::LONG }, Ordering::Relaxed);
    }
}

/// Signed weights of some columns, `[group][column][weight of the group]`, with the zero point in the bias.
pub struct Panel {
    pub weights: *const i8,
    /// All of them.
    pub len: usize,
    pub group: usize,
    pub columns: usize,
    pub bias: *const i32,
}

impl Panel {
    /// How large a column's sums are, at the most, whatever the weights.
    ///
    /// # Safety
    /// There must be the bias of all columns.
    pub unsafe fn largest(&self, column: usize) -> f64 {
        let inputs = self.len / self.columns;
        // SAFETY: by contract.
        unsafe { self.bias(column) + MOST * MOST * inputs as f64 }
    }

    /// The same with these weights.
    ///
    /// # Safety
    /// There must be all weights, in whole groups, and the bias of all columns.
    pub unsafe fn largest_by_weights(&self, column: usize) -> f64 {
        let mut sum = 0u64;
        for at in (column * self.group..self.len).step_by(self.columns * self.group) {
            for i in at..at + self.group {
                // SAFETY: by contract.
                sum += u64::from(unsafe { self.weights.add(i).read() }.unsigned_abs());
            }
        }
        // SAFETY: by contract.
        unsafe { self.bias(column) + MOST * sum as f64 }
    }

    /// # Safety
    /// There must be the bias of all columns.
    unsafe fn bias(&self, column: usize) -> f64 {
        // SAFETY: by contract.
        f64::from(unsafe { self.bias.add(column).read_unaligned() }).abs()
    }
}
