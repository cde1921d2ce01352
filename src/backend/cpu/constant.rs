//! Constants of a graph under compilation: private, the client's still, or widened from narrower ones when they are needed.

use super::routine::is_data;
use crate::backend::BackendError;
use crate::memory::{AlignedBuf, ClientSlice, MemoryError};
use crate::model;
use crate::ops::{by_parts, in_common, Arg, Args, Interrupt, OpError, Operation, OperationType, Out, Run};
use crate::tensor::{OperandType, TensorInfo};
use std::sync::Arc;

/// A constant's bytes, wherever they are. To clone it copies none.
#[derive(Clone)]
pub enum Constant {
    Private(Arc<AlignedBuf>),
    /// Mere data that are the client's still.
    Client(ClientSlice),
    /// What an operation gives of another one. Weights are stored narrow and packed wide, and nobody needs all of them
    /// unpacked at once.
    Widened(Arc<Widened>),
}

/// A constant made of one that has fewer bytes.
pub struct Widened {
    operation: &'static Operation,
    signature_index: usize,
    from: (TensorInfo, Constant),
    to: TensorInfo,
    len: usize,
}

/// Of copies in a scratch: of any element, and of a cache line.
const ALIGNMENT: usize = 64;

impl From<model::Constant> for Constant {
    fn from(constant: model::Constant) -> Self {
        match constant {
            model::Constant::Private(bytes) => Constant::Private(bytes),
            model::Constant::Client(slice) => Constant::Client(slice),
        }
    }
}

impl Constant {
    /// What a call gives whose one input is `from`, if that can wait until it is needed: all dimensions must be known.
    pub fn widened(
        (operation, signature_index): (&'static Operation, usize),
        (info, from): (&TensorInfo, &Constant),
        to: &TensorInfo,
    ) -> Option<Self> {
        let narrower = match operation.ty {
            OperationType::DEQUANTIZE => true,
            OperationType::CAST => info.ty == OperandType::TENSOR_FLOAT16,
            _ => false,
        };
        let len = to.byte_size().filter(|&len| narrower && from.len() < len && is_data(to, len))?;
        if matches!(from, Constant::Widened(_)) {
            return None;
        }
        let from = (info.clone(), from.clone());
        Some(Constant::Widened(Arc::new(Widened { operation, signature_index, from, to: to.clone(), len })))
    }

    pub fn len(&self) -> usize {
        match self {
            Constant::Private(bytes) => bytes.len(),
            Constant::Client(slice) => slice.len(),
            Constant::Widened(widened) => widened.len,
        }
    }

    /// The narrower constant that it is to be made of.
    pub fn narrow(&self) -> Option<(&TensorInfo, &Constant)> {
        match self {
            Constant::Widened(widened) => Some((&widened.from.0, &widened.from.1)),
            _ => None,
        }
    }

    /// The bytes, if they are private.
    pub fn bytes(&self) -> Option<&Arc<AlignedBuf>> {
        match self {
            Constant::Private(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The bytes, copied or made if they are not private.
    pub fn private(&self, interrupt: &dyn Interrupt) -> Result<Arc<AlignedBuf>, BackendError> {
        if let Constant::Private(bytes) = self {
            return Ok(bytes.clone());
        }
        let zeroed = |len| AlignedBuf::zeroed(len).ok_or_else(|| failed(MemoryError::OutOfMemory(len)));
        let mut copy = zeroed(self.len())?;
        match self {
            Constant::Widened(widened) => {
                let mut narrow = zeroed(widened.scratch())?;
                widened.make(&mut copy, &mut narrow, interrupt)?;
            }
            Constant::Client(slice) => read(slice, &mut copy, interrupt)?,
            Constant::Private(_) => {}
        }
        Ok(Arc::new(in_common(copy, interrupt)?))
    }

    /// Bytes of scratch that [`Constant::copied`] takes.
    pub fn scratch(&self) -> usize {
        let whole = self.len().next_multiple_of(ALIGNMENT);
        match self {
            Constant::Widened(widened) => whole.saturating_add(widened.scratch()),
            _ => whole,
        }
    }

    /// The bytes in a scratch of as many as [`Constant::scratch`] says, aligned for any element.
    pub fn copied<'s>(
        &self,
        scratch: &'s mut [u8],
        interrupt: &dyn Interrupt,
    ) -> Result<&'s [u8], BackendError> {
        let len = self.len();
        let (to, rest) = scratch.split_at_mut(len.next_multiple_of(ALIGNMENT));
        let to = &mut to[..len];
        match self {
            Constant::Private(bytes) => to.copy_from_slice(bytes),
            Constant::Client(slice) => read(slice, to, interrupt)?,
            Constant::Widened(widened) => widened.make(to, rest, interrupt)?,
        }
        Ok(to)
    }
}

impl Widened {
    /// Bytes of scratch that it takes to make the wide ones.
    fn scratch(&self) -> usize {
        match &self.from.1 {
            Constant::Client(slice) => slice.len().next_multiple_of(ALIGNMENT),
            _ => 0,
        }
    }

    fn make(&self, to: &mut [u8], scratch: &mut [u8], interrupt: &dyn Interrupt) -> Result<(), BackendError> {
        let (info, from) = &self.from;
        let from = match from {
            Constant::Private(bytes) => &bytes[..],
            Constant::Client(slice) => {
                let copy = &mut scratch[..slice.len()];
                read(slice, copy, interrupt)?;
                copy
            }
            Constant::Widened(_) => return Err(OpError::failed("it was widened twice").into()),
        };
        let Run::Shaped { eval, .. } = self.operation.run else {
            return Err(OpError::failed("it has no evaluation").into());
        };
        let args = Args {
            signature_index: self.signature_index,
            inputs: &[Some(Arg { info, data: Some(from) })],
            outputs: std::slice::from_ref(&self.to),
            interrupt,
        };
        Ok(eval(&args, &mut [Out { info: &self.to, data: to }])?)
    }
}

fn failed(source: MemoryError) -> BackendError {
    BackendError::memory("a constant")(source)
}

/// Copies what is the client's, part by part.
fn read(slice: &ClientSlice, to: &mut [u8], interrupt: &dyn Interrupt) -> Result<(), BackendError> {
    by_parts(interrupt, slice.len(), |part| {
        let from = slice.part(part.start, part.len());
        from.and_then(|from| from.read(&mut to[part])).map_err(failed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::routine::Place;
    use crate::backend::cpu::samples::{compile, f32_info, floats, made_up, programs_of, run, Build};
    use crate::memory::Mapping;
    use crate::model::{Lifetime, Subgraph};
    use half::f16;

    const DIMS: [u32; 2] = [40, 50];

    /// A fully connected layer of these weights.
    fn layer(weights: impl FnOnce(&mut Build) -> usize) -> Subgraph {
        let mut b = Build::new();
        let input = b.input(f32_info(&[3, DIMS[1]]));
        let weights = weights(&mut b);
        let bias = b.constant(f32_info(&[DIMS[0]]), &floats(40, 2.0));
        let none = b.ints(&[0])[0];
        let operands = [input, weights, bias, none];
        let out = b.call(OperationType::FULLY_CONNECTED, 0, &operands, f32_info(&[3, DIMS[0]]));
        b.finish(out)
    }

    fn signature(ty: OperationType, from: &TensorInfo) -> usize {
        use crate::ops::signature::{find, Operand};
        let (inputs, to) = ([Operand::Present(from)], f32_info(&DIMS));
        find(ty.operation().unwrap().signatures, &inputs, &[Operand::Present(&to)]).unwrap().signature_index
    }

    #[test]
    fn weights_are_widened_as_they_are_packed_wherever_the_narrow_ones_lie() {
        let bytes: Vec<u8> = (0..2000).map(|i| (i * 7 % 256) as u8).collect();
        let halves: Vec<u8> =
            floats(2000, 3.0).iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        let quantised = TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM, &DIMS, 0.25, 100);
        let (half, wide_info) = (TensorInfo::new(OperandType::TENSOR_FLOAT16, &DIMS), f32_info(&DIMS));
        let of_bytes = bytes.iter().map(|&q| (f32::from(q) - 100.0) * 0.25).collect::<Vec<_>>();
        let of_halves =
            halves.chunks(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect::<Vec<_>>();
        for (ty, info, narrow, wide) in [
            (OperationType::DEQUANTIZE, quantised, bytes, of_bytes),
            (OperationType::CAST, half, halves, of_halves),
        ] {
            let expected = run(&compile(&layer(|b| b.constant(wide_info.clone(), &wide)), 1, None));
            let private = model::Constant::Private(Arc::new(AlignedBuf::copy_of(&narrow).unwrap()));
            let slice =
                ClientSlice::new(Arc::new(Mapping::anonymous(5000).unwrap()), 1, narrow.len()).unwrap();
            slice.write(&narrow).unwrap();
            for constant in [private, model::Constant::Client(slice)] {
                let model = layer(|b| {
                    let narrow = b.operand(info.clone(), Lifetime::Constant(constant));
                    b.call(ty, signature(ty, &info), &[narrow], wide_info.clone())
                });
                for program in programs_of(&model, 2) {
                    let routine = &program.routines()[0];
                    assert_eq!(routine.steps.len(), 1, "{ty}");
                    let weights = routine.steps[0].inputs[1].unwrap();
                    assert!(matches!(routine.values[weights].place, Place::Packed(_)), "{ty}: kept");
                    assert_eq!(run(&program), expected, "{ty}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_packed_is_widened_once() {
        let bytes: Vec<u8> = (0..2000).map(|i| (i * 7 % 256) as u8).collect();
        let info = TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM, &DIMS, 0.25, 100);
        let mut b = Build::new();
        let (input, narrow) = (b.input(f32_info(&DIMS)), b.constant(info.clone(), &bytes));
        let signature = signature(OperationType::DEQUANTIZE, &info);
        let wide = b.call(OperationType::DEQUANTIZE, signature, &[narrow], f32_info(&DIMS));
        let none = b.ints(&[0])[0];
        let sum = b.call(OperationType::ADD, 0, &[input, wide, none], f32_info(&DIMS));
        let [compiled, loaded] = programs_of(&b.finish(sum), 1);
        let addends = made_up(&f32_info(&DIMS));
        let expected: Vec<f32> = bytemuck::pod_collect_to_vec::<u8, f32>(&addends)
            .iter()
            .zip(&bytes)
            .map(|(x, &q)| x + (f32::from(q) - 100.0) * 0.25)
            .collect();
        assert_eq!(compiled.routines()[0].steps.len(), 1);
        assert_eq!(run(&compiled), bytemuck::cast_slice::<f32, u8>(&expected));
        assert_eq!(run(&loaded), bytemuck::cast_slice::<f32, u8>(&expected));
    }
}
