//! Hostile calls for tests: random operands, sane and insane, of which none may make an operation panic.

use crate::ops::evaluate::{run, with_dims};
use crate::ops::signature::{self, Operand};
use crate::ops::testing::{tensor, Tensor};
use crate::ops::{Arg, Args, NeverInterrupted, Operation, Run};
use crate::tensor::{element_count, ChannelQuant, OperandType, TensorInfo};

/// A small deterministic generator (xorshift), which makes about every second call of plausible values only.
pub struct Dice {
    state: u64,
    tame: bool,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice { state: seed | 1, tame: false }
    }

    /// Decides what the next call is made of.
    pub fn next_call(&mut self) -> &mut Self {
        self.tame = self.below(2) == 0;
        self
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A dimension, mostly small, sometimes zero or huge.
    pub fn dim(&mut self) -> u32 {
        if self.tame {
            return self.pick(&[1, 2, 2, 3, 3, 4, 5]);
        }
        self.pick(&[1, 1, 2, 2, 3, 3, 4, 5, 0, 7, 1 << 16, i32::MAX as u32, u32::MAX])
    }

    pub fn dims(&mut self, rank: usize) -> Vec<u32> {
        (0..rank).map(|_| self.dim()).collect()
    }

    /// A scalar, mostly plausible, sometimes negative or at the ends of its range.
    pub fn scalar(&mut self) -> i32 {
        if self.tame {
            return self.pick(&[1, 1, 1, 2, 2, 3]);
        }
        self.pick(&[1, 1, 1, 2, 2, 3, 0, 4, -1, 1 << 20, i32::MAX, i32::MIN])
    }

    /// One side's padding.
    pub fn padding(&mut self) -> i32 {
        if self.tame {
            return self.pick(&[0, 0, 1]);
        }
        self.pick(&[0, 0, 1, 1, 2, -1, i32::MAX, i32::MIN])
    }

    /// The code of a fused activation.
    pub fn activation(&mut self) -> i32 {
        if self.tame {
            return self.pick(&[0, 1, 2, 3]);
        }
        self.pick(&[0, 1, 2, 3, 3, -1])
    }

    /// A zero point of an 8-bit type, or none of it.
    pub fn zero_point(&mut self) -> i32 {
        self.pick(&[0, 127, -128, 255, i32::MIN, i32::MAX])
    }

    /// A tensor of random bytes, so with NaNs and infinities among floats; `None` where it would be too large.
    pub fn tensor(&mut self, ty: OperandType, dims: &[u32]) -> Option<Tensor> {
        let count = element_count(dims).filter(|&n| n <= 4096)?;
        let bytes: Vec<u8> = (0..count * ty.element_size()?).map(|_| self.below(256) as u8).collect();
        let mut info = TensorInfo::new(ty, dims);
        if ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL {
            let dim = self.pick(&[0, 3, 0, 3, 9]);
            let scales = vec![self.scale(); dims.get(dim as usize).map_or(1, |&d| d.min(4096) as usize)];
            info.channel_quant = Some(ChannelQuant { scales, dim });
        } else if ty.is_quant8_asymm() {
            (info.scale, info.zero_point) = (self.scale(), self.zero_point());
        }
        Some(tensor(info, &bytes))
    }

    pub fn scale(&mut self) -> f32 {
        self.pick(&[1.0, 0.5, 1.0, 0.5, 0.0, 1e-30, 1e30, f32::MAX])
    }
}

/// Calls `operation` as a backend would, unless its outputs are too large for a test. Whether it ran.
pub fn attack(operation: &Operation, inputs: &[Tensor], output: &TensorInfo) -> bool {
    let args: Vec<_> = inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let in_operands: Vec<_> = inputs.iter().map(|t| Operand::Present(&t.info)).collect();
    let Ok(found) = signature::find(operation, &in_operands, &[Operand::Present(output)]) else {
        return false;
    };
    let outputs = [with_dims(output, &[])];
    let args = Args { form: found.form, inputs: &args, outputs: &outputs, interrupt: &NeverInterrupted };
    let Run::Shaped { shapes, .. } = operation.run else { panic!("an operation with shapes") };
    if (operation.check)(&args).is_err() {
        return false;
    }
    let Ok(dims) = shapes(&args) else { return false };
    if element_count(&dims[0]).is_none_or(|n| n > 20_000) {
        return false;
    }
    let result = run(operation, &args);
    assert!(result.is_ok(), "shapes accepted what eval refuses: {result:?}");
    true
}
