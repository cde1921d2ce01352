//! SLICE, STRIDED_SLICE and SPLIT_V.

use super::call::{dims, options, Call, Domain, Mapped};
use super::error::Refusal;
use super::graph::TensorType;
use super::schema::Options;
use super::shape::{self, around};
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;

/// What is taken along an axis: so many elements, each `step` from the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken {
    start: i32,
    step: i32,
    count: i32,
}

pub fn slice(call: &mut Call) -> Mapped {
    let size = dims(call.tensor(0)?)?;
    if size.len() <= shape::MOST {
        let steering = [call.ints(1)?, call.ints(2)?];
        return call.emit_in(Domain::Own, OperationType::SLICE, 1, &steering);
    }
    let (starts, counts) = (call.const_ints(1)?, call.const_ints(2)?);
    if starts.len() != size.len() || counts.len() != size.len() {
        return Err(format!("{} starts and {} sizes for {size:?}", starts.len(), counts.len()).into());
    }
    let axes = size.iter().zip(starts.into_iter().zip(counts)).map(|(&dim, (start, count))| {
        let rest = (dim as i32).saturating_sub(start);
        Taken { start, step: 1, count: if count == -1 { rest } else { count } }
    });
    let (data, output, axes) = (call.input(0)?, call.output(0)?, axes.collect::<Vec<_>>());
    take(call, data, &size, &axes, output)
}

pub fn strided_slice(call: &mut Call) -> Mapped {
    let masks = options!(call, StridedSlice(o) => Masks {
        begin: o.begin_mask,
        end: o.end_mask,
        ellipsis: o.ellipsis_mask,
        new_axis: o.new_axis_mask,
        shrink: o.shrink_axis_mask,
        offset: o.offset,
    });
    let size = dims(call.tensor(0)?)?;
    let is_plain = (masks.ellipsis, masks.new_axis, masks.offset) == (0, 0, false);
    // NNAPI's STRIDED_SLICE takes no integers.
    let are_integers = call.tensor(0)?.ty == TensorType::Int32;
    if is_plain && !are_integers && size.len() <= shape::MOST {
        let steering = if masks.shrink == 0 && dims(call.tensor(1)?)? == [size.len() as u32] {
            [call.ints(1)?, call.ints(2)?, call.ints(3)?]
        } else {
            let lists =
                masks.plain(&size, [call.const_ints(1)?, call.const_ints(2)?, call.const_ints(3)?])?;
            lists.map(|values| call.builder().ints(&[values.len() as u32], &values))
        };
        let kept = !masks.shrink;
        let of_axes = [masks.begin & kept, masks.end & kept, masks.shrink];
        let masks = of_axes.map(|mask| call.builder().int(mask));
        return call.emit_in(Domain::Own, OperationType::STRIDED_SLICE, 1, &[steering, masks].concat());
    }
    let axes = masks.taken(&size, [&call.const_ints(1)?, &call.const_ints(2)?, &call.const_ints(3)?])?;
    let (data, output) = (call.input(0)?, call.output(0)?);
    take(call, data, &size, &axes, output)
}

/// Which of a slice's entries, by their bits, are to be read otherwise.
struct Masks {
    begin: i32,
    end: i32,
    ellipsis: i32,
    new_axis: i32,
    shrink: i32,
    /// Whether ends are counted from the begins.
    offset: bool,
}

impl Masks {
    /// Begins, ends and strides of all dimensions, as NNAPI wants them: those without entries are taken as a whole.
    fn plain(&self, size: &[u32], mut lists: [Vec<i32>; 3]) -> Result<[Vec<i32>; 3], Refusal> {
        let [begins, ends, strides] = &mut lists;
        let entries = begins.len();
        if ends.len() != entries || strides.len() != entries || entries > size.len() {
            let counts = format!("{entries} begins, {} ends and {} strides", ends.len(), strides.len());
            return Err(format!("{counts} for {size:?}").into());
        }
        self.end_after_one(size, begins, ends);
        for &dim in &size[entries..] {
            begins.push(0);
            ends.push(dim as i32);
            strides.push(1);
        }
        Ok(lists)
    }

    /// Along an axis that is lost one element is taken, wherever the file has the end: NNAPI looks at that, too. Counted from
    /// the end, the last one's would be 0.
    fn end_after_one(&self, size: &[u32], begins: &mut [i32], ends: &mut [i32]) {
        for (i, ((begin, end), &dim)) in begins.iter_mut().zip(ends).zip(size).enumerate() {
            if self.shrink >> i & 1 != 0 {
                *begin = match *begin {
                    _ if self.begin >> i & 1 != 0 => 0,
                    from_end @ ..0 => from_end.saturating_add(dim as i32).max(0),
                    begin => begin,
                };
                *end = begin.saturating_add(1);
            }
        }
    }

    /// What is taken along each axis of a tensor, by begins, ends and strides.
    fn taken(&self, size: &[u32], [begins, ends, strides]: [&[i32]; 3]) -> Result<Vec<Taken>, Refusal> {
        let entries = begins.len();
        if ends.len() != entries || strides.len() != entries || entries > 31 {
            return Err(format!("{entries} begins, {} ends and {} strides", ends.len(), strides.len()).into());
        }
        let has = |mask: i32, i: usize| mask >> i & 1 != 0;
        let whole = |dim: u32| Taken { start: 0, step: 1, count: dim as i32 };
        let axes_of_entries = (0..entries).filter(|&i| !has(self.ellipsis | self.new_axis, i)).count();
        let mut left =
            size.len().checked_sub(axes_of_entries).ok_or("there are more entries than dimensions")?;
        let mut axes = Vec::with_capacity(size.len());
        for i in 0..entries {
            if has(self.ellipsis, i) {
                let so_far = axes.len();
                axes.extend(size[so_far..so_far + left].iter().map(|&dim| whole(dim)));
                left = 0;
                continue;
            }
            if has(self.new_axis, i) {
                continue;
            }
            let (dim, step) = (size[axes.len()] as i32, strides[i]);
            if step == 0 {
                return Err("a stride is 0".into());
            }
            // Negative ones count from the end; all are clamped to where a walk may begin or end.
            let (least, most) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
            let place = |at: i32| (if at < 0 { at.saturating_add(dim) } else { at }).clamp(least, most);
            let start = match has(self.begin, i) {
                true => {
                    if step > 0 {
                        0
                    } else {
                        dim - 1
                    }
                }
                false => place(begins[i]),
            };
            if has(self.shrink, i) {
                axes.push(Taken { start, step: 1, count: 1 });
                continue;
            }
            let end = match (has(self.end, i), self.offset) {
                (true, _) => {
                    if step > 0 {
                        dim
                    } else {
                        -1
                    }
                }
                (_, true) => place(start.saturating_add(ends[i])),
                _ => place(ends[i]),
            };
            let distance = (i64::from(end) - i64::from(start)) * i64::from(step.signum());
            let count = (distance.max(0) as u64).div_ceil(u64::from(step.unsigned_abs())) as i32;
            axes.push(Taken { start, step, count });
        }
        let so_far = axes.len();
        axes.extend(size[so_far..].iter().map(|&dim| whole(dim)));
        Ok(axes)
    }
}

/// Emits a slice along each axis that is not taken as a whole, and a RESHAPE to `to`.
fn take(call: &mut Call, mut data: OperandIndex, size: &[u32], axes: &[Taken], to: OperandIndex) -> Mapped {
    let mut size = size.to_vec();
    for (axis, taken) in axes.iter().enumerate() {
        let dim = size[axis] as i32;
        if *taken == (Taken { start: 0, step: 1, count: dim }) {
            continue;
        }
        let last = i64::from(taken.count - 1) * i64::from(taken.step) + i64::from(taken.start);
        if taken.count < 1 || !(0..dim).contains(&taken.start) || !(0..i64::from(dim)).contains(&last) {
            return Err(format!("a slice of dimension {axis} is empty or goes beyond it").into());
        }
        let view = around(&size, axis)?;
        size[axis] = taken.count as u32;
        let part = call.temporary_like(to, &[view[0], taken.count as u32, view[2]]);
        data = call.reshaped(data, &view);
        taken.emit(call, data, view, last as i32, part);
        data = part;
    }
    call.reshape(data, to);
    Ok(())
}

impl Taken {
    /// Emits what takes this along the middle one of three dimensions, up to the element `last`.
    fn emit(self, call: &mut Call, data: OperandIndex, view: [u32; 3], last: i32, part: OperandIndex) {
        let [before, _, after] = view.map(|dim| dim as i32);
        if self.step == 1 {
            let steering = [[0, self.start, 0], [before, self.count, after]];
            let [begins, counts] = steering.map(|values| call.builder().ints(&[3], &values));
            return call.emit(OperationType::SLICE, &[data, begins, counts], &[part]);
        }
        let (end, is_whole) = match last + self.step.signum() {
            // A walk down to the first element, which no number names.
            -1 => (0, 1 << 1),
            end => (end, 0),
        };
        let steering = [[0, self.start, 0], [before, end, after], [1, self.step, 1]];
        let mut operands = vec![data];
        operands.extend(steering.map(|values| call.builder().ints(&[3], &values)));
        operands.extend([0, is_whole, 0].map(|mask| call.builder().int(mask)));
        call.emit(OperationType::STRIDED_SLICE, &operands, &[part]);
    }
}

/// Inputs: data, the parts' sizes and the axis.
pub fn split_v(call: &mut Call) -> Mapped {
    let size = dims(call.tensor(0)?)?;
    let axis = call.axis(call.const_int(2)?, size.len())? as usize;
    let (sizes, count) = (call.const_ints(1)?, call.operator.outputs.len());
    if sizes.len() != count {
        return Err(format!("{} sizes for {count} parts", sizes.len()).into());
    }
    let data = call.input(0)?;
    let mut start = 0;
    for (i, told) in sizes.into_iter().enumerate() {
        // NNAPI has no tensors without elements: who reads this one is refused.
        let stated = call.output_tensor(i)?.dims.get(axis).ok_or("a part has too few dimensions")?;
        // The outputs tell also the one that may be left to be found.
        let count = *stated as i32;
        if told != -1 && told != count {
            return Err(format!("part {i} is told to be {told} long, the model states {count}").into());
        }
        if count == 0 {
            continue;
        }
        let mut axes: Vec<_> =
            size.iter().map(|&dim| Taken { start: 0, step: 1, count: dim as i32 }).collect();
        axes[axis] = Taken { start, step: 1, count };
        start = start.saturating_add(count);
        let output = call.output(i)?;
        take(call, data, &size, &axes, output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Masks = Masks { begin: 0, end: 0, ellipsis: 0, new_axis: 0, shrink: 0, offset: false };

    fn of(start: i32, step: i32, count: i32) -> Taken {
        Taken { start, step, count }
    }

    #[test]
    fn what_is_lost_has_one_element() {
        let masks = Masks { begin: 0b100, end: 0b010, shrink: 0b111, ..NONE };
        let (mut begins, mut ends) = ([-1, 1, 5], [0, 0, 0]);
        masks.end_after_one(&[4, 5, 6], &mut begins, &mut ends);
        assert_eq!((begins, ends), ([3, 1, 0], [4, 2, 1]));
        let (mut begins, mut ends) = ([i32::MIN, i32::MAX], [0, 0]);
        masks.end_after_one(&[4, 5], &mut begins, &mut ends);
        assert_eq!((begins, ends), ([0, i32::MAX], [1, i32::MAX]));
    }

    #[test]
    fn slices_are_read_as_the_format_says() {
        let plain = NONE.taken(&[5, 6, 7], [&[1, -1, -9], &[3, -7, 9], &[1, -2, 3]]).unwrap();
        assert_eq!(plain, [of(1, 1, 2), of(5, -2, 3), of(0, 3, 3)]);
        let masks = Masks { begin: 1, end: 2, ..NONE };
        assert_eq!(masks.taken(&[5, 6], [&[3, 4], &[4, 5], &[1, -1]]).unwrap(), [of(0, 1, 4), of(4, -1, 5)]);
        // x[..., None, 2]
        let masks = Masks { ellipsis: 1, new_axis: 2, shrink: 4, ..NONE };
        let taken = masks.taken(&[2, 3, 4], [&[0, 0, 2], &[0, 0, 3], &[1, 1, 1]]).unwrap();
        assert_eq!(taken, [of(0, 1, 2), of(0, 1, 3), of(2, 1, 1)]);
        let offset = Masks { offset: true, ..NONE };
        assert_eq!(offset.taken(&[9, 2], [&[4], &[3], &[1]]).unwrap(), [of(4, 1, 3), of(0, 1, 2)]);
        // A begin from the end: what is counted from it does not begin before the first element.
        let counted = offset.taken(&[9, 9], [&[-3, -12], &[3, 2], &[1, 1]]).unwrap();
        assert_eq!(counted, [of(6, 1, 3), of(0, 1, 2)]);
        // A begin that is not looked at, of an axis that is lost.
        let masks = Masks { begin: 0b11, shrink: 0b11, ellipsis: 0b100, ..NONE };
        let taken = masks.taken(&[4, 5, 2], [&[2, 2, 0], &[3, 3, 0], &[1, -1, 1]]).unwrap();
        assert_eq!(taken, [of(0, 1, 1), of(4, 1, 1), of(0, 1, 2)]);
        assert!(NONE.taken(&[2], [&[0, 0], &[1, 1], &[1, 1]]).is_err());
        assert!(NONE.taken(&[2], [&[0], &[1], &[0]]).is_err());
    }
}
