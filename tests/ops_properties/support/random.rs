//! Random choices from a seed.

use super::{is_quantised, quantisation, OperandType, TensorInfo, Value};

/// xorshift64*: the same calls each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// 0 to `n` - 1; 0 for an `n` of 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// `low` to `high`, both included.
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    pub fn size(&mut self, low: usize, high: usize) -> usize {
        self.range(low as i64, high as i64) as usize
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn coin(&mut self) -> bool {
        self.one_in(2)
    }

    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    /// A number of images or rows, which may be none.
    pub fn batch(&mut self, largest: usize) -> usize {
        if self.one_in(12) {
            0
        } else {
            self.size(1, largest)
        }
    }

    pub fn dims(&mut self, rank: usize, largest: usize) -> Vec<usize> {
        (0..rank).map(|_| self.size(1, largest)).collect()
    }

    /// 0 to `n` - 1 in some order.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// `axis` as the interface takes it: as it is, or counted from the end.
    pub fn signed_axis(&mut self, axis: usize, rank: usize) -> i32 {
        axis as i32 - if self.coin() { rank as i32 } else { 0 }
    }

    /// A tensor of `ty` with values all over a moderate range and, if quantised, some quantisation.
    pub fn tensor(&mut self, ty: OperandType, dims: &[usize]) -> Value {
        let (scale, zero_point) = quantisation(ty, self);
        self.fill(ty, dims, scale, zero_point)
    }

    /// A tensor of `ty` of known quantisation: floats between -4 and 4 (exact in half precision), integers of any
    /// value below 1000, quantised values all over their range.
    pub fn fill(&mut self, ty: OperandType, dims: &[usize], scale: f32, zero_point: i32) -> Value {
        let dims: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
        let info = TensorInfo::quantised(ty, &dims, scale, zero_point);
        let count = dims.iter().product::<u32>() as usize;
        match ty.integer_range() {
            _ if ty.is_float() => {
                let values: Vec<f64> = (0..count).map(|_| self.range(-256, 256) as f64 / 64.0).collect();
                Value::of_reals(info, &values)
            }
            Some((low, high)) if is_quantised(ty) => {
                let raw: Vec<i64> = (0..count).map(|_| self.range(low.into(), high.into())).collect();
                Value::of_raw(info, &raw)
            }
            _ if ty == OperandType::TENSOR_BOOL8 => {
                let raw: Vec<i64> = (0..count).map(|_| self.range(0, 1)).collect();
                Value::of_raw(info, &raw)
            }
            _ => {
                let raw: Vec<i64> = (0..count).map(|_| self.range(-999, 999)).collect();
                Value::of_raw(info, &raw)
            }
        }
    }

    /// A float tensor with values from `low` to `high`, rounded to its type.
    pub fn floats(&mut self, ty: OperandType, dims: &[usize], low: f64, high: f64) -> Value {
        let count = dims.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.real(low, high)).collect();
        let dims: Vec<u32> = dims.iter().map(|&d| d as u32).collect();
        Value::of_reals(TensorInfo::new(ty, &dims), &values)
    }
}
