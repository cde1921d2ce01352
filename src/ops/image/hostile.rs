//! Hostile calls for tests: random operands, sane and insane, of which none may make an operation panic.

use crate::ops::evaluate::{run, with_dims};
use crate::ops::signature::{self, Operand};
use crate::ops::testing::{tensor, Tensor};
use crate::ops::{Arg, Args, NeverInterrupted, Operation, Run};
use crate::tensor::{element_count, ChannelQuant, OperandType, TensorInfo};

/// A small deterministic generator (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A dimension, mostly small, sometimes zero or huge.
    pub fn dim(&mut self) -> u32 {
        self.pick(&[1, 1, 2, 2, 3, 3, 4, 5, 0, 7, 1 << 16, i32::MAX as u32, u32::MAX])
    }

    pub fn dims(&mut self, rank: usize) -> Vec<u32> {
        (0..rank).map(|_| self.dim()).collect()
    }

    /// A scalar, mostly plausible, sometimes negative or at the ends of its range.
    pub fn scalar(&mut self) -> i32 {
        self.pick(&[1, 1, 1, 2, 2, 3, 0, 4, -1, 1 << 20, i32::MAX, i32::MIN])
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
            (info.scale, info.zero_point) = (self.scale(), self.pick(&[0, 127, -128, 255, i32::MIN]));
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
    let outputs = [with_dims(output, &vec![])];
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
