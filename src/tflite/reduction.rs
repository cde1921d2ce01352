//! Reductions over axes.

use super::call::{dims, is_quantised, options, Call, Domain, Mapped};
use super::convolution::zero_bias;
use super::elementwise::same_quantisation;
use super::error::Refusal;
use super::schema::{Options, ReducerOptions};
use super::{shape, wide};
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::{element_count, TensorInfo};

fn keep_dims(call: &Call) -> Result<bool, Refusal> {
    Ok(options!(call, Reducer(o) => o.keep_dims))
}

/// NNAPI's MEAN gives its output the input's quantisation. If the file has another, the mean becomes a convolution where that
/// is possible, and is taken in floats elsewhere: at the input's scale, a mean could be all rounding.
pub fn mean(call: &mut Call) -> Mapped {
    let keep = keep_dims(call)?;
    let same = same_quantisation(call)?;
    if !same && is_quantised(call.tensor(0)?) && is_quantised(call.output_tensor(0)?) {
        if let Some((data, window)) = Window::new(call)? {
            return window.convolve(call, data);
        }
    }
    if dims(call.tensor(0)?)?.len() > shape::MOST {
        return joined(call, &mean);
    }
    let domain = if same { Domain::Own } else { Domain::Float };
    let operands = [call.ints(1)?, call.builder().int(keep.into())];
    call.emit_in(domain, OperationType::MEAN, 1, &operands)
}

/// A mean over pixels, or over what goes last, as a convolution with weights of 1/n: the sums, and the rounding of
/// their rescaling, are those of TensorFlow Lite's mean.
struct Window {
    /// The data as an image.
    image: [u32; 4],
    /// Whether the window is the whole image, channel by channel; else it is one pixel, all channels together.
    depthwise: bool,
}

impl Window {
    /// Sums of more elements than this could overflow 32 bits.
    const MAX_ELEMENTS: u64 = 1 << 23;

    /// The data, and the window over it; `None` where there is no such window.
    fn new(call: &mut Call) -> Result<Option<(OperandIndex, Self)>, Refusal> {
        if call.tensor(1)?.data.is_none() {
            return Ok(None);
        }
        let size = dims(call.tensor(0)?)?;
        let axes = reduced(call, &size)?;
        let image = |kept: &[u32]| {
            Ok::<_, Refusal>([1, 1, shape::product(kept)?, shape::product(&size)? / shape::product(kept)?])
        };
        let (kept, taken): (Vec<usize>, Vec<usize>) = (0..size.len()).partition(|&axis| !axes[axis]);
        let kept_dims: Vec<u32> = kept.iter().map(|&axis| size[axis]).collect();
        let window = match (&size[..], &taken[..]) {
            (&[batch, height, width, depth], [1, 2]) => {
                Window { image: [batch, height, width, depth], depthwise: true }
            }
            _ => Window { image: image(&kept_dims)?, depthwise: false },
        };
        if window.elements() > Self::MAX_ELEMENTS {
            return Ok(None);
        }
        let data = call.input(0)?;
        if window.depthwise || kept.last() < taken.first() {
            return Ok(Some((data, window)));
        }
        // What is taken the mean of goes last.
        let moved = call.temporary_like(data, &window.image);
        wide::transpose(call, data, (size, [kept, taken].concat()), moved)?;
        Ok(Some((moved, window)))
    }

    fn elements(&self) -> u64 {
        let [_, height, width, depth] = self.image.map(u64::from);
        if self.depthwise {
            height.saturating_mul(width)
        } else {
            depth
        }
    }

    fn convolve(&self, call: &mut Call, data: OperandIndex) -> Mapped {
        let [batch, height, width, depth] = self.image;
        let (kernel, result, units, ty) = if self.depthwise {
            ([1, height, width, depth], [batch, 1, 1, depth], depth, OperationType::DEPTHWISE_CONV_2D)
        } else {
            ([1, 1, 1, depth], [batch, height, width, 1], 1, OperationType::CONV_2D)
        };
        let info = call.builder().info(data).clone();
        let count = element_count(&kernel).ok_or("it is too large")?;
        let filter = TensorInfo::quantised(info.ty, &kernel, 1.0 / self.elements() as f32, 0);
        let filter = call.builder().uniform(filter, 1, count);
        let bias = zero_bias(call, data, filter, units)?;
        let data = call.reshaped(data, &self.image);
        let mut operands = vec![data, filter, bias, call.padding(1)?];
        operands.extend([call.builder().int(1), call.builder().int(1)]);
        if self.depthwise {
            operands.push(call.builder().int(1)); // one output for each channel
        }
        operands.push(call.activation(0)?);
        call.emit_reshaped(ty, &operands, &result)
    }
}

/// Reductions that pick one of their inputs.
pub fn pick(call: &mut Call, ty: OperationType) -> Mapped {
    let domain = if same_quantisation(call)? { Domain::Own } else { Domain::Float };
    reduce(call, domain, ty)
}

/// Reductions that NNAPI does not have quantised.
pub fn combine(call: &mut Call, ty: OperationType) -> Mapped {
    reduce(call, Domain::Float, ty)
}

fn reduce(call: &mut Call, domain: Domain, ty: OperationType) -> Mapped {
    if dims(call.tensor(0)?)?.len() > shape::MOST {
        return joined(call, &|call| reduce(call, domain, ty));
    }
    let keep = keep_dims(call)?;
    let operands = [call.ints(1)?, call.builder().boolean(keep)];
    call.emit_in(domain, ty, 1, &operands)
}

/// Whether each dimension is reduced, by axes that are a constant.
fn reduced(call: &Call, size: &[u32]) -> Result<Vec<bool>, Refusal> {
    let mut reduced = vec![false; size.len()];
    for axis in call.const_ints(1)? {
        reduced[call.axis(axis, size.len())? as usize] = true;
    }
    Ok(reduced)
}

/// A reduction of a tensor with more dimensions than NNAPI takes: neighbours that are all reduced, or none of them, are one.
fn joined(call: &mut Call, map: &dyn Fn(&mut Call) -> Mapped) -> Mapped {
    let size = dims(call.tensor(0)?)?;
    let reduced = reduced(call, &size)?;
    let mut groups: Vec<(u32, bool)> = Vec::new();
    for (&dim, &reduced) in size.iter().zip(&reduced).filter(|(dim, _)| **dim != 1) {
        match groups.last_mut() {
            Some((last, same)) if *same == reduced => *last = shape::product(&[*last, dim])?,
            _ => groups.push((dim, reduced)),
        }
    }
    if groups.is_empty() {
        groups.push((1, true));
    }
    let axes = (0..groups.len() as i32).filter(|&i| groups[i as usize].1).collect();
    let inputs = groups.iter().map(|&(dim, _)| dim).collect();
    let output = groups.iter().map(|&(dim, reduced)| if reduced { 1 } else { dim }).collect();
    let keep = Options::Reducer(Box::new(ReducerOptions { keep_dims: true }));
    wide::map_as(call, map, vec![inputs, output], Some(keep), &[axes])
}
