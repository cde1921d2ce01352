//! Where the elements of an image lie: dimensions by name, and turning channels-first data to channels-last and back.

use super::{exactly, expect_rank};
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Values};
use crate::ops::{Arg, OpError, Out};
use crate::tensor::{Dims, OperandType};
use bytemuck::{AnyBitPattern, NoUninit};
use half::f16;

/// Values for batches, height, width and channels out of values in the order of the layout.
pub fn named<T>([n, a, b, c]: [T; 4], nchw: bool) -> [T; 4] {
    if nchw {
        [n, b, c, a]
    } else {
        [n, a, b, c]
    }
}

/// Values in the order of the layout out of those for batches, height, width and channels.
pub fn ordered<T>([n, h, w, c]: [T; 4], nchw: bool) -> [T; 4] {
    if nchw {
        [n, c, h, w]
    } else {
        [n, h, w, c]
    }
}

/// Dimensions of an image tensor, whatever its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageDims {
    /// May be 0.
    pub batches: usize,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl ImageDims {
    /// Elements of all images; as many as there are numbers for, where a client says that there are more.
    pub fn elements(&self) -> usize {
        let ImageDims { batches, height, width, channels } = *self;
        [height, width, channels].into_iter().fold(batches, usize::saturating_mul)
    }

    /// Dimensions of `arg`. Only the number of batches may be 0, as in NNAPI's reference.
    pub fn of(arg: &Arg, nchw: bool) -> Result<Self, OpError> {
        expect_rank(arg, "input", 4)?;
        let [batches, height, width, channels] = named([0, 1, 2, 3].map(|i| arg.dim(i) as usize), nchw);
        if height == 0 || width == 0 || channels == 0 {
            return Err(OpError::failed(format!("input of {:?}: only batches may be zero", arg.dims())));
        }
        Ok(ImageDims { batches, height, width, channels })
    }

    /// The dimensions in the order of the layout; an error if one does not fit 32 bits.
    pub fn to_dims(self, nchw: bool) -> Result<Dims, OpError> {
        let ImageDims { batches, height, width, channels } = self;
        ordered([batches, height, width, channels], nchw)
            .into_iter()
            .map(|d| {
                u32::try_from(d)
                    .map_err(|_| OpError::failed(format!("an output dimension of {d} is too large")))
            })
            .collect()
    }
}

/// `values` of the image `arg`, channels last whatever their layout was.
pub fn channels_last<'a, T: Copy>(
    arg: &Arg,
    values: Values<'a, T>,
    nchw: bool,
    pace: &mut Pace,
) -> Result<Values<'a, T>, OpError> {
    let values = exactly(arg, values)?;
    if !nchw || values.is_empty() {
        return Ok(values);
    }
    let dims = ImageDims::of(arg, nchw)?;
    // The tensor is not empty, so no product of its dimensions overflows.
    let plane = dims.height * dims.width;
    let mut turned = reserved(values.len())?;
    for image in values.chunks_exact(plane * dims.channels) {
        for pixel in 0..plane {
            let mut channels = image.iter().skip(pixel).step_by(plane);
            pace.in_stretches(dims.channels, 1, |part| turned.extend(channels.by_ref().take(part.len())))?;
        }
    }
    Ok(Values::Made(turned))
}

/// An output written pixel by pixel: all channels of one place at a time.
pub struct Pixels<'o, 'd> {
    out: &'o mut Out<'d>,
    channels: usize,
    /// Pixels of one image; channels lie this far apart if they come first.
    plane: usize,
    nchw: bool,
}

impl<'o, 'd> Pixels<'o, 'd> {
    /// An image of the given layout.
    pub fn image(out: &'o mut Out<'d>, nchw: bool) -> Self {
        let dim = |i: usize| out.dims().get(i).map_or(0, |&d| d as usize);
        let [_, height, width, channels] = named([0, 1, 2, 3].map(dim), nchw);
        Pixels { out, channels, plane: height.saturating_mul(width), nchw }
    }

    /// Rows of a matrix, or of many: the last dimension takes the place of the channels.
    pub fn rows(out: &'o mut Out<'d>) -> Self {
        let channels = out.dims().last().map_or(0, |&d| d as usize);
        Pixels { out, channels, plane: 0, nchw: false }
    }

    /// Stores the channels of pixel `pixel` (counted row by row, image by image) in the output's float type.
    pub fn put_floats(&mut self, pixel: usize, values: &[f32], pace: &mut Pace) -> Result<(), OpError> {
        match self.out.info.ty {
            OperandType::TENSOR_FLOAT32 => self.put(pixel, values, |x| x, pace),
            OperandType::TENSOR_FLOAT16 => self.put(pixel, values, f16::from_f32, pace),
            ty => Err(OpError::failed(format!("{ty} is not a float tensor"))),
        }
    }

    /// Stores the channels of pixel `pixel` in the output's integer type, saturating.
    pub fn put_integers(&mut self, pixel: usize, values: &[i32], pace: &mut Pace) -> Result<(), OpError> {
        match self.out.info.ty {
            OperandType::TENSOR_QUANT8_ASYMM => self.put(pixel, values, |x| x.clamp(0, 255) as u8, pace),
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
                self.put(pixel, values, |x| x.clamp(-128, 127) as i8, pace)
            }
            OperandType::TENSOR_INT32 => self.put(pixel, values, |x| x, pace),
            ty => Err(OpError::failed(format!("{ty} is not an integer tensor"))),
        }
    }

    fn put<V: Copy, E: AnyBitPattern + NoUninit>(
        &mut self,
        pixel: usize,
        values: &[V],
        convert: impl Fn(V) -> E,
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        let (start, step) = if self.nchw {
            (pixel / self.plane * self.plane * self.channels + pixel % self.plane, self.plane)
        } else {
            (pixel * self.channels, 1)
        };
        let mut places = self.out.elements::<E>()?.iter_mut().skip(start).step_by(step);
        pace.in_stretches(values.len(), 1, |part| {
            // The values first: one more place would be taken and left out where they end.
            values[part].iter().zip(places.by_ref()).for_each(|(&value, place)| *place = convert(value));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::f32s;
    use crate::ops::{Args, NeverInterrupted};
    use crate::tensor::TensorInfo;

    #[test]
    fn layouts_turn_and_turn_back() {
        let nchw = f32s(&[1, 2, 1, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let inputs = [Some(Arg { info: &nchw.info, data: Some(&nchw.data) })];
        let args = Args { signature_index: 0, inputs: &inputs, outputs: &[], interrupt: &NeverInterrupted };
        let arg = args.get(0).unwrap();
        let turned = channels_last(&arg, arg.floats().unwrap(), true, &mut Pace::new(&args)).unwrap();
        assert_eq!(*turned, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);

        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1, 2, 1, 3]);
        let mut data = nchw.data.clone();
        data.fill(0);
        let mut out = Out { info: &info, data: &mut data };
        let mut pixels = Pixels::image(&mut out, true);
        for (i, pixel) in turned.chunks(2).enumerate() {
            pixels.put_floats(i, pixel, &mut Pace::new(&args)).unwrap();
        }
        assert_eq!(data[..], nchw.data[..]);
    }

    #[test]
    fn only_batches_may_be_zero() {
        let of = |dims: &[u32], nchw| {
            let tensor = f32s(dims, &[]);
            ImageDims::of(&Arg { info: &tensor.info, data: None }, nchw)
        };
        let empty = ImageDims { batches: 0, height: 2, width: 3, channels: 4 };
        assert_eq!(of(&[0, 2, 3, 4], false), Ok(empty));
        assert_eq!(of(&[0, 4, 2, 3], true), Ok(empty));
        assert!(of(&[1, 0, 3, 4], false).is_err());
        assert!(of(&[2, 3, 4], false).is_err());
    }
}
