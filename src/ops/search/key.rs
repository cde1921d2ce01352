//! One order for all element types, so that no NaN can confuse a search.

use crate::ops::scratch::{collected, Values};
use crate::ops::{Input, OpError};

/// For each element a key that orders like it. Both zeros are equal; NaNs lie beyond the infinities, by their sign.
pub fn keys<'a>(input: &Input<'a>) -> Result<Values<'a, i32>, OpError> {
    if !input.ty().is_float() {
        return input.integers();
    }
    Ok(Values::Made(collected(input.interrupt(), input.floats()?.iter().map(|&x| float_key(x)))?))
}

/// The key of a number.
#[inline(always)]
pub fn float_key(x: f32) -> i32 {
    // Adding 0 makes -0 into 0. Below it, larger bits are smaller numbers.
    let bits = (x + 0.0).to_bits() as i32;
    if bits < 0 {
        bits ^ i32::MAX
    } else {
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_like_numbers() {
        let rising =
            [-f32::NAN, f32::NEG_INFINITY, -1e9, -1.0, -1e-40, 0.0, 1e-40, 2.0, f32::INFINITY, f32::NAN];
        assert!(rising.windows(2).all(|pair| float_key(pair[0]) < float_key(pair[1])));
        assert_eq!(float_key(-0.0), float_key(0.0));
    }
}
