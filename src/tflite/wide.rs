//! Operators on tensors of more than four dimensions, which NNAPI's operations do not take.
//!
//! Such a tensor is one row of elements in the model, and an operator sees it with those dimensions joined that it does not
//! tell apart.

use super::call::{dims, Call, Mapped};
use super::error::Refusal;
use super::graph::{Graph, Operator, Tensor};
use super::schema::Options;
use super::shape::{around, product, MOST};
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;

/// Which dimensions an operator does not tell apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// None that is known: it is refused.
    No,
    /// Those along which the same inputs are repeated: each element of the output is made of one of each input.
    Elementwise,
    /// All but the last, of input 0 and the output.
    Rows,
    /// The mapping takes any number of dimensions.
    Own,
}

/// Maps an operator some of whose tensors have more dimensions than NNAPI takes.
pub fn map(call: &mut Call, joined: Joined, map: &dyn Fn(&mut Call) -> Mapped) -> Mapped {
    match joined {
        Joined::Own => map(call),
        Joined::Elementwise => {
            let out = dims(call.output_tensor(0)?)?;
            let inputs = (0..call.operator.inputs.len()).map(|i| dims(call.tensor(i)?));
            let joined = alike(&out, inputs.collect::<Result<_, _>>()?)?;
            map_as(call, map, joined, None, &[])
        }
        Joined::Rows => {
            let of = dims(call.tensor(0)?)?;
            let [rows, depth, _] = around(&of, of.len() - 1)?;
            map_as(call, map, vec![vec![rows, depth]; 2], None, &[])
        }
        Joined::No => Err(format!("NNAPI takes tensors of at most {MOST} dimensions").into()),
    }
}

/// The dimensions of inputs and output, which is last, without those of one element, and with neighbours joined along
/// which the same inputs are repeated.
fn alike(out: &[u32], inputs: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, Refusal> {
    let mut all = Vec::with_capacity(inputs.len() + 1);
    for input in inputs {
        let missing =
            out.len().checked_sub(input.len()).ok_or("an input has more dimensions than the output")?;
        all.push([vec![1; missing], input].concat());
    }
    all.push(out.to_vec());
    let (mut joined, mut last) = (vec![Vec::<u32>::new(); all.len()], None);
    for axis in (0..out.len()).filter(|&axis| out[axis] != 1) {
        let going: Vec<bool> = all.iter().map(|dims| dims[axis] != 1).collect();
        let goes_on = last.as_ref() == Some(&going);
        for (joined, dims) in joined.iter_mut().zip(&all) {
            match joined.last_mut().filter(|_| goes_on) {
                Some(last) => *last = product(&[*last, dims[axis]])?,
                None => joined.push(dims[axis]),
            }
        }
        last = Some(going);
    }
    joined.iter_mut().filter(|dims| dims.is_empty()).for_each(|dims| dims.push(1));
    Ok(joined)
}

/// Maps the operator by `map`, on the same tensors with the dimensions `joined`, of which the output's are last.
/// Inputs without dimensions of their own there are `ints`.
pub fn map_as(
    call: &mut Call,
    map: &dyn Fn(&mut Call) -> Mapped,
    mut joined: Vec<Vec<u32>>,
    options: Option<Options>,
    ints: &[Vec<i32>],
) -> Mapped {
    let out = joined.pop().ok_or("no dimensions")?;
    let (mut tensors, mut operands): (Vec<Tensor>, Vec<Option<OperandIndex>>) = Default::default();
    for (i, dims) in joined.into_iter().enumerate() {
        let operand = call.input(i)?;
        operands.push(Some(call.reshaped(operand, &dims)));
        tensors.push(Tensor { dims, ..call.tensor(i)?.clone() });
    }
    for values in ints {
        let i = tensors.len();
        let dims = vec![values.len() as u32];
        operands.push(Some(call.builder().ints(&dims, values)));
        tensors.push(Tensor { dims, data: None, ..call.tensor(i)?.clone() });
    }
    let count = tensors.len();
    tensors.push(Tensor { dims: out, ..call.output_tensor(0)?.clone() });
    operands.push(None);
    let operator = Operator {
        name: call.operator.name.clone(),
        inputs: (0..count).map(Some).collect(),
        outputs: vec![count],
        options: options.or_else(|| call.operator.options.clone()),
        custom: Vec::new(),
    };
    let graph = Graph { tensors, ..Default::default() };
    let mut state = super::call::State::new(&graph, std::mem::take(&mut call.state.builder));
    state.operands = operands;
    let mapped = map(&mut Call { graph: &graph, operator: &operator, state: &mut state });
    let result = state.operands[count];
    call.state.builder = state.builder;
    mapped?;
    call.finish(0, result.ok_or("its mapping writes nothing")?)
}

/// Emits a transposition of `data`, which has the dimensions `dims`, by as few TRANSPOSEs as joined dimensions allow, and a
/// RESHAPE to `to`.
pub fn transpose(
    call: &mut Call,
    mut data: OperandIndex,
    (mut dims, mut order): (Vec<u32>, Vec<usize>),
    to: OperandIndex,
) -> Mapped {
    loop {
        (dims, order) = kept_together(&dims, &order)?;
        let step = match order.iter().enumerate().find(|(place, axis)| place != *axis) {
            None => break,
            Some(_) if dims.len() <= MOST => Step { dims: dims.clone(), order: order.clone() },
            // The first that is not in its place goes there, past those between.
            Some((place, &axis)) => {
                let parts = [&dims[..place], &dims[place..axis], &dims[axis..=axis], &dims[axis + 1..]];
                let parts = parts.into_iter().map(product).collect::<Result<_, _>>()?;
                Step { dims: parts, order: vec![0, 2, 1, 3] }
            }
        };
        let whole = step.dims.len() == dims.len() && step.order == order;
        data = step.emit(call, data);
        if whole {
            break;
        }
        if let Some((place, &axis)) = order.iter().enumerate().find(|(place, axis)| place != *axis) {
            let dim = dims.remove(axis);
            dims.insert(place, dim);
            let moved = |old: &usize| match *old {
                old if old == axis => place,
                old if (place..axis).contains(&old) => old + 1,
                old => old,
            };
            order = order.iter().map(moved).collect();
        }
    }
    call.reshape(data, to);
    Ok(())
}

/// A TRANSPOSE.
struct Step {
    dims: Vec<u32>,
    order: Vec<usize>,
}

impl Step {
    fn emit(self, call: &mut Call, data: OperandIndex) -> OperandIndex {
        let data = call.reshaped(data, &self.dims);
        let order: Vec<i32> = self.order.iter().map(|&axis| axis as i32).collect();
        let order = call.builder().ints(&[order.len() as u32], &order);
        let dims: Vec<u32> = self.order.iter().map(|&axis| self.dims[axis]).collect();
        let result = call.temporary_like(data, &dims);
        call.emit(OperationType::TRANSPOSE, &[data, order], &[result]);
        result
    }
}

/// Dimensions and their order without those of one element, and with neighbours joined that stay neighbours.
fn kept_together(dims: &[u32], order: &[usize]) -> Result<(Vec<u32>, Vec<usize>), Refusal> {
    let order: Vec<usize> = order.iter().copied().filter(|&axis| dims[axis] != 1).collect();
    // Which of the dimensions with more than one element each axis is.
    let number = |axis: usize| dims[..axis].iter().filter(|&&dim| dim != 1).count();
    let mut groups: Vec<(usize, u32)> = Vec::new();
    let mut last = None;
    for &axis in &order {
        let n = number(axis);
        match groups.last_mut().filter(|_| last.is_some_and(|last: usize| last + 1 == n)) {
            Some((_, dim)) => *dim = product(&[*dim, dims[axis]])?,
            None => groups.push((n, dims[axis])),
        }
        last = Some(n);
    }
    let mut sorted = groups.clone();
    sorted.sort_unstable();
    let place = |n: usize| sorted.iter().position(|&(first, _)| first == n).unwrap_or(0);
    let order = groups.iter().map(|&(n, _)| place(n)).collect();
    Ok((sorted.iter().map(|&(_, dim)| dim).collect(), order))
}

/// Emits what repeats `data`, which has the dimensions `from`, as often as `to` has it, whose dimensions those end in.
pub fn repeat(call: &mut Call, data: OperandIndex, from: &[u32], to: OperandIndex) -> Mapped {
    let dims = call.builder().info(to).dims.clone();
    repeat_to(call, data, from, (&dims, to))
}

/// The same where `to` is held in one row, and has these dimensions.
pub fn repeat_to(
    call: &mut Call,
    data: OperandIndex,
    from: &[u32],
    (dims, to): (&[u32], OperandIndex),
) -> Mapped {
    let missing =
        dims.len().checked_sub(from.len()).ok_or("the output has fewer dimensions than the input")?;
    let from = [vec![1; missing], from.to_vec()].concat();
    if dims.iter().zip(&from).any(|(to, from)| !to.is_multiple_of(*from)) {
        return Err(format!("{from:?} cannot be repeated to {dims:?}").into());
    }
    let times: Vec<u32> = dims.iter().zip(&from).map(|(to, from)| to / from).collect();
    tile(call, data, &from, &times, to)
}

/// Emits what repeats `data`, which has the dimensions `dims`, so often along each of them, and a RESHAPE to `to`.
fn tile(call: &mut Call, data: OperandIndex, dims: &[u32], times: &[u32], to: OperandIndex) -> Mapped {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (&dim, &times) in dims.iter().zip(times).filter(|&dim_times| dim_times != (&1, &1)) {
        match joined.last_mut() {
            // What is not repeated is repeated with what it is a part of.
            Some((outer, _)) if times == 1 => *outer = product(&[*outer, dim])?,
            Some((outer, repeated)) if *outer == 1 => {
                (*outer, *repeated) = (dim, product(&[*repeated, times])?);
            }
            _ => joined.push((dim, times)),
        }
    }
    if joined.iter().all(|&(_, times)| times == 1) {
        call.reshape(data, to);
        return Ok(());
    }
    let (dims, times): (Vec<u32>, Vec<u32>) = joined.into_iter().unzip();
    let repeated = dims.iter().zip(&times).map(|(&dim, &times)| product(&[dim, times]));
    let repeated: Vec<u32> = repeated.collect::<Result<_, _>>()?;
    let data = call.reshaped(data, &dims);
    let result = call.temporary_like(to, &repeated);
    let times: Vec<i32> = times.iter().map(|&times| times as i32).collect();
    let times = call.builder().ints(&[times.len() as u32], &times);
    call.emit(OperationType::TILE, &[data, times], &[result]);
    call.reshape(result, to);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_stay_so_are_one() {
        let joined = |dims: &[u32], order: &[usize]| kept_together(dims, order).unwrap();
        assert_eq!(joined(&[2, 3, 4, 5, 6], &[0, 1, 4, 2, 3]), (vec![6, 20, 6], vec![0, 2, 1]));
        assert_eq!(joined(&[1, 196, 3, 3, 64], &[2, 0, 3, 1, 4]), (vec![196, 9, 64], vec![1, 0, 2]));
        assert_eq!(joined(&[2, 3, 4, 5, 6], &[4, 2, 0, 3, 1]), (vec![2, 3, 4, 5, 6], vec![4, 2, 0, 3, 1]));
        assert_eq!(joined(&[2, 1, 3], &[0, 1, 2]), (vec![6], vec![0]));
        assert_eq!(joined(&[1, 1, 1], &[2, 1, 0]), (vec![], vec![]));
    }

    #[test]
    fn dimensions_along_which_inputs_are_alike_are_one() {
        let joined = |out: &[u32], inputs: &[&[u32]]| {
            alike(out, inputs.iter().map(|dims| dims.to_vec()).collect()).unwrap()
        };
        assert_eq!(
            joined(&[2, 3, 4, 5, 6], &[&[2, 3, 4, 5, 6], &[5, 6]]),
            [vec![24, 30], vec![1, 30], vec![24, 30]]
        );
        assert_eq!(
            joined(&[1, 2, 3, 1, 5], &[&[1, 2, 1, 1, 5], &[]]),
            [vec![2, 1, 5], vec![1, 1, 1], vec![2, 3, 5]]
        );
        assert_eq!(joined(&[1, 1, 1, 1, 1], &[&[1]]), [[1], [1]]);
        assert!(alike(&[2], vec![vec![1, 2]]).is_err());
    }
}
