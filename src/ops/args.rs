//! What an operation sees of its operands: types, dimensions and, where they are known, values in private memory.
//!
//! The same view serves validation (dimensions may be unknown, only constants have values), shape rules at compilation
//! (dimensions known, some values not) and evaluation (everything known). Nothing here may refer to client memory.

use super::interrupt::Interrupt;
use super::scratch::{collected, Scratch, Values};
use super::OpError;
use crate::tensor::{ChannelQuant, OperandType, TensorInfo};
use bytemuck::AnyBitPattern;
use half::f16;

/// One input operand. `dims` follow [`TensorInfo`]'s reading: unknown where 0 in validation, real at execution.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a> {
    pub info: &'a TensorInfo,
    /// The value, in private memory aligned for its type; `None` where it is not known yet.
    pub data: Option<&'a [u8]>,
}

impl<'a> Arg<'a> {
    pub fn ty(&self) -> OperandType {
        self.info.ty
    }

    pub fn dims(&self) -> &'a [u32] {
        &self.info.dims
    }

    pub fn scale(&self) -> f32 {
        self.info.scale
    }

    pub fn zero_point(&self) -> i32 {
        self.info.zero_point
    }

    pub fn channel_quant(&self) -> Option<&'a ChannelQuant> {
        self.info.channel_quant.as_ref()
    }

    /// The rank, `None` for a tensor of unknown rank (validation only).
    pub fn rank(&self) -> Option<usize> {
        (self.ty().is_scalar() || !self.dims().is_empty()).then(|| self.dims().len())
    }

    /// Dimension `i`, 0 where it is unknown or there is none.
    pub fn dim(&self, i: usize) -> u32 {
        self.dims().get(i).copied().unwrap_or(0)
    }

    /// Number of elements of a value that exists or is about to.
    pub fn count(&self) -> Result<usize, OpError> {
        crate::tensor::element_count(self.dims()).ok_or_else(|| OpError::failed("tensor too large"))
    }

    pub fn bytes(&self) -> Result<&'a [u8], OpError> {
        self.data.ok_or(OpError::Unresolved)
    }

    /// The elements as they lie in memory; `T` must be of the operand type's size.
    pub fn elements<T: AnyBitPattern>(&self) -> Result<&'a [T], OpError> {
        bytemuck::try_cast_slice(self.bytes()?)
            .map_err(|_| OpError::failed("operand's bytes do not fit its type"))
    }

    /// The value of an INT32 scalar.
    pub fn i32(&self) -> Result<i32, OpError> {
        self.elements::<i32>()?.first().copied().ok_or_else(|| OpError::failed("empty scalar"))
    }

    /// The value of a BOOL scalar: any non-zero byte is true.
    pub fn bool(&self) -> Result<bool, OpError> {
        Ok(*self.bytes()?.first().ok_or_else(|| OpError::failed("empty scalar"))? != 0)
    }

    /// The value of a FLOAT32 or FLOAT16 scalar.
    pub fn f32(&self) -> Result<f32, OpError> {
        let first = match self.ty() {
            OperandType::TENSOR_FLOAT16 | OperandType::FLOAT16 => {
                self.elements::<f16>()?.first().map(|x| x.to_f32())
            }
            OperandType::TENSOR_FLOAT32 | OperandType::FLOAT32 => self.elements()?.first().copied(),
            ty => return Err(OpError::failed(format!("{ty} is not a float type"))),
        };
        first.ok_or_else(|| OpError::failed("empty scalar"))
    }
}

/// An operand of a call that is evaluated: what it is, and the values that have to be made of what it has.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    arg: Arg<'a>,
    interrupt: &'a dyn Interrupt,
}

impl<'a> std::ops::Deref for Input<'a> {
    type Target = Arg<'a>;

    fn deref(&self) -> &Arg<'a> {
        &self.arg
    }
}

impl<'a> Input<'a> {
    pub fn interrupt(&self) -> &'a dyn Interrupt {
        self.interrupt
    }

    /// A float tensor or scalar as f32, whatever its width.
    pub fn floats(&self) -> Result<Values<'a, f32>, OpError> {
        match self.ty() {
            OperandType::TENSOR_FLOAT32 | OperandType::FLOAT32 => Ok(Values::Given(self.elements()?)),
            OperandType::TENSOR_FLOAT16 | OperandType::FLOAT16 => self.converted(f16::to_f32),
            ty => Err(OpError::failed(format!("{ty} is not a float type"))),
        }
    }

    /// An integer, quantised or boolean tensor's raw elements, widened. The zero point is not subtracted.
    pub fn integers(&self) -> Result<Values<'a, i32>, OpError> {
        match self.ty() {
            OperandType::TENSOR_INT32 | OperandType::INT32 => Ok(Values::Given(self.elements()?)),
            _ => self.widened(|q| q),
        }
    }

    /// [`Self::integers`] with the zero point subtracted; scales per channel have none.
    pub fn centred(&self) -> Result<Scratch<i32>, OpError> {
        let zero_point = if self.channel_quant().is_some() { 0 } else { self.zero_point() };
        self.widened(|q| q.wrapping_sub(zero_point))?.into_owned(self.interrupt)
    }

    /// Any numeric tensor as real numbers: floats as they are, quantised types dequantised with their one scale.
    pub fn reals(&self) -> Result<Values<'a, f32>, OpError> {
        if self.ty().is_float() {
            return self.floats();
        }
        let (scale, zero) = match self.ty() {
            OperandType::TENSOR_INT32
            | OperandType::INT32
            | OperandType::TENSOR_BOOL8
            | OperandType::BOOL => (1.0, 0),
            _ => (self.scale(), self.zero_point()),
        };
        self.widened(|q| q.wrapping_sub(zero) as f32 * scale)
    }

    /// What `f` gives of each element, widened to i32 on the way.
    fn widened<U>(&self, f: impl Fn(i32) -> U) -> Result<Values<'a, U>, OpError> {
        use OperandType::*;
        match self.ty() {
            TENSOR_INT32 | INT32 => self.converted(f),
            TENSOR_QUANT8_ASYMM => self.converted(|x: u8| f(x.into())),
            TENSOR_BOOL8 | BOOL => self.converted(|x: u8| f(i32::from(x != 0))),
            TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL => {
                self.converted(|x: i8| f(x.into()))
            }
            TENSOR_QUANT16_SYMM => self.converted(|x: i16| f(x.into())),
            TENSOR_QUANT16_ASYMM => self.converted(|x: u16| f(x.into())),
            ty => Err(OpError::failed(format!("{ty} is not an integer type"))),
        }
    }

    fn converted<T: AnyBitPattern, U>(&self, f: impl Fn(T) -> U) -> Result<Values<'a, U>, OpError> {
        Ok(Values::Made(collected(self.interrupt, self.elements()?.iter().map(|&x| f(x)))?))
    }
}

/// A call of an operation: which of its signatures matched, its inputs, what its outputs are declared to be.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// Index of the matched [`super::Signature`] of the operation.
    pub signature_index: usize,
    /// `None`: an optional input that was left out (listed, but without value).
    pub inputs: &'a [Option<Arg<'a>>],
    /// Declared outputs. Only types and quantisation may be relied on; dimensions may be unknown.
    pub outputs: &'a [TensorInfo],
    /// Its yield points are come by at least every millisecond; an error must be passed on at once.
    pub interrupt: &'a dyn Interrupt,
}

impl<'a> Args<'a> {
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Input `i` if it is listed and has (or will have) a value.
    pub fn opt(&self, i: usize) -> Option<Input<'a>> {
        let arg = self.inputs.get(i).copied().flatten()?;
        Some(Input { arg, interrupt: self.interrupt })
    }

    /// Input `i`, an error if it was left out.
    pub fn get(&self, i: usize) -> Result<Input<'a>, OpError> {
        self.opt(i).ok_or_else(|| OpError::failed(format!("input {i} has no value")))
    }

    /// As [`get`](Self::get), for who only looks at what there is.
    pub fn arg(&self, i: usize) -> Result<Arg<'a>, OpError> {
        Ok(self.get(i)?.arg)
    }

    pub fn i32(&self, i: usize) -> Result<i32, OpError> {
        self.get(i)?.i32()
    }

    pub fn f32(&self, i: usize) -> Result<f32, OpError> {
        self.get(i)?.f32()
    }

    pub fn bool(&self, i: usize) -> Result<bool, OpError> {
        self.get(i)?.bool()
    }

    /// An INT32 scalar that may be left out.
    pub fn i32_or(&self, i: usize, default: i32) -> Result<i32, OpError> {
        self.opt(i).map_or(Ok(default), |arg| arg.i32())
    }

    /// A BOOL scalar that may be left out.
    pub fn bool_or(&self, i: usize, default: bool) -> Result<bool, OpError> {
        self.opt(i).map_or(Ok(default), |arg| arg.bool())
    }

    /// A fused activation code in input `i`.
    pub fn activation(&self, i: usize) -> Result<crate::tensor::requant::Activation, OpError> {
        let code = self.i32(i)?;
        crate::tensor::requant::Activation::from_code(code)
            .ok_or_else(|| OpError::failed(format!("input {i}: {code} is not a fused activation (0 to 3)")))
    }

    /// Declared output `i`.
    pub fn output(&self, i: usize) -> Result<&'a TensorInfo, OpError> {
        self.outputs.get(i).ok_or_else(|| OpError::failed(format!("output {i} is missing")))
    }
}

/// An output being written: dimensions are real, `data` is private, zeroed, of exactly the size they need.
#[derive(Debug)]
pub struct Out<'a> {
    pub info: &'a TensorInfo,
    pub data: &'a mut [u8],
}

impl Out<'_> {
    pub fn dims(&self) -> &[u32] {
        &self.info.dims
    }

    /// The elements in place; `T` must be of the operand type's size.
    pub fn elements<T: AnyBitPattern + bytemuck::NoUninit>(&mut self) -> Result<&mut [T], OpError> {
        bytemuck::try_cast_slice_mut(self.data)
            .map_err(|_| OpError::failed("output's bytes do not fit its type"))
    }

    /// Stores `values` in the output's float type, rounding for FLOAT16.
    pub fn store_floats(&mut self, interrupt: &dyn Interrupt, values: &[f32]) -> Result<(), OpError> {
        match self.info.ty {
            OperandType::TENSOR_FLOAT32 => store_each(interrupt, self.elements()?, values, |x| x),
            OperandType::TENSOR_FLOAT16 => store_each(interrupt, self.elements()?, values, f16::from_f32),
            ty => Err(OpError::failed(format!("{ty} is not a float tensor"))),
        }
    }

    /// Stores `values` in the output's integer, quantised or boolean type, saturating.
    pub fn store_integers(&mut self, interrupt: &dyn Interrupt, values: &[i32]) -> Result<(), OpError> {
        use OperandType::*;
        match self.info.ty {
            TENSOR_INT32 | INT32 => store_each(interrupt, self.elements()?, values, |x| x),
            TENSOR_QUANT8_ASYMM => store_each(interrupt, self.elements()?, values, |x| x.clamp(0, 255) as u8),
            TENSOR_BOOL8 | BOOL => store_each(interrupt, self.elements()?, values, |x| u8::from(x != 0)),
            TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL => {
                store_each(interrupt, self.elements()?, values, |x| x.clamp(-128, 127) as i8)
            }
            TENSOR_QUANT16_SYMM => {
                store_each(interrupt, self.elements()?, values, |x| x.clamp(-32768, 32767) as i16)
            }
            TENSOR_QUANT16_ASYMM => {
                store_each(interrupt, self.elements()?, values, |x| x.clamp(0, 65535) as u16)
            }
            ty => Err(OpError::failed(format!("{ty} is not an integer tensor"))),
        }
    }

    /// Stores real numbers: as they are in a float output, quantised with its scale and zero point otherwise.
    pub fn store_reals(&mut self, interrupt: &dyn Interrupt, values: &[f32]) -> Result<(), OpError> {
        let info = self.info;
        if info.ty.is_float() {
            return self.store_floats(interrupt, values);
        }
        let quantise = |&x: &f32| crate::tensor::requant::quantise(x, info.ty, info.scale, info.zero_point);
        self.store_integers(interrupt, &collected(interrupt, values.iter().map(quantise))?)
    }
}

fn store_each<S: Copy, T>(
    interrupt: &dyn Interrupt,
    to: &mut [T],
    from: &[S],
    convert: impl Fn(S) -> T,
) -> Result<(), OpError> {
    /// Elements stored in one go, between two yield points.
    const STRETCH: usize = 1 << 15;
    if to.len() != from.len() {
        return Err(OpError::failed(format!("{} values for an output of {}", from.len(), to.len())));
    }
    for (i, (to, from)) in to.chunks_mut(STRETCH).zip(from.chunks(STRETCH)).enumerate() {
        if i > 0 {
            interrupt.yield_point()?;
        }
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = convert(from));
    }
    Ok(())
}
