//! The one copying loop: elements walk along strided axes from a source to a destination.
//!
//! A walk is built from a client's dimensions, so it proves that it stays inside both buffers before it takes a step.
//! It must not interpret elements: only their size counts.

use crate::ops::pace::{Pace, PAGE};
use crate::ops::{Args, OpError, Out};
use crate::tensor::{OperandType, TensorInfo};
use bytemuck::{AnyBitPattern, NoUninit};

/// Elements moved in one go, between notes of the work done.
const CHUNK: usize = 1 << 16;
/// What moving an element costs that does not lie beside the one before, and one that lies a page from it or more: that page may be
/// touched for the first time.
const APART: usize = 16;
const ON_A_PAGE: usize = 1024;

/// Elements of input `input` that go to output `output`.
#[derive(Clone, Debug)]
pub struct Move {
    pub input: usize,
    pub output: usize,
    pub walk: Walk,
}

impl Move {
    /// From the first input that `walk` tells of to the only output.
    pub fn only(walk: Walk) -> Moves {
        Ok(vec![Move { input: 0, output: 0, walk }])
    }
}

pub type Moves = Result<Vec<Move>, OpError>;

/// Makes the moves of a call, whose outputs `infos` describe.
pub fn make(args: &Args, outs: &mut [Out], moves: fn(&Args, &[&TensorInfo]) -> Moves) -> Result<(), OpError> {
    if outs.iter().all(|out| out.data.is_empty()) {
        return Ok(());
    }
    let infos: Vec<&TensorInfo> = outs.iter().map(|out| out.info).collect();
    for Move { input, output, walk } in moves(args, &infos)? {
        let (input, out) = (args.get(input)?, &mut outs[output]);
        walk.run(args, out.info.ty, input.bytes()?, out.data)?;
    }
    Ok(())
}

/// How often to step along an axis, and how far one step goes in source and destination, in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    pub count: i64,
    pub from: i64,
    pub to: i64,
}

/// Which elements go where.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// First element in source and destination.
    start: (i64, i64),
    axes: Vec<Axis>,
}

impl Walk {
    /// A walk along `axes`, each `(count, step in the source, step in the destination)`, in whatever order.
    pub fn new(axes: impl IntoIterator<Item = (i64, i64, i64)>) -> Self {
        let axes = axes.into_iter().map(|(count, from, to)| Axis { count, from, to }).collect();
        Walk { start: (0, 0), axes }
    }

    /// This walk, starting at these elements.
    pub fn start(self, from: i64, to: i64) -> Self {
        Walk { start: (from, to), ..self }
    }

    /// The walk back: source and destination change places.
    pub fn reversed(self) -> Self {
        let axes = self.axes.iter().map(|a| Axis { count: a.count, from: a.to, to: a.from }).collect();
        Walk { start: (self.start.1, self.start.0), axes }
    }

    /// First elements, and the axes as they are [merged](Self::merged), if all of `from` and `to` elements are inside; no
    /// axes for a walk that goes nowhere.
    pub fn checked(&self, from: usize, to: usize) -> Option<((usize, usize), Vec<Axis>)> {
        if self.axes.iter().any(|axis| axis.count <= 0) {
            return Some(((0, 0), vec![]));
        }
        let inside = stays_inside(self.start.0, self.axes.iter().map(|a| (a.count, a.from)), from)
            && stays_inside(self.start.1, self.axes.iter().map(|a| (a.count, a.to)), to);
        let mut axes = self.merged();
        if axes.is_empty() {
            axes.push(Axis { count: 1, from: 1, to: 1 });
        }
        inside.then_some(((self.start.0 as usize, self.start.1 as usize), axes))
    }

    /// Copies elements of type `ty`. The destination's elements that the walk does not reach stay as they are.
    pub fn run(&self, args: &Args, ty: OperandType, from: &[u8], to: &mut [u8]) -> Result<(), OpError> {
        match ty.element_size() {
            Some(1) => self.run_typed::<u8>(args, from, to),
            Some(2) => self.run_typed::<u16>(args, from, to),
            Some(4) => self.run_typed::<u32>(args, from, to),
            _ => Err(OpError::failed(format!("elements of {ty} cannot be moved"))),
        }
    }

    fn run_typed<T: AnyBitPattern + NoUninit>(
        &self,
        args: &Args,
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), OpError> {
        if self.axes.iter().any(|axis| axis.count <= 0) {
            return Ok(());
        }
        let misfit = |_| OpError::failed("a tensor's bytes do not fit its type");
        let from: &[T] = bytemuck::try_cast_slice(from).map_err(misfit)?;
        let to: &mut [T] = bytemuck::try_cast_slice_mut(to).map_err(misfit)?;
        let inside = stays_inside(self.start.0, self.axes.iter().map(|a| (a.count, a.from)), from.len())
            && stays_inside(self.start.1, self.axes.iter().map(|a| (a.count, a.to)), to.len());
        if !inside {
            return Err(OpError::failed("a copy would leave its tensor"));
        }
        Run { pace: Pace::new(args), from, to }.axes(&self.merged(), self.start.0, self.start.1)
    }

    /// The axes in the destination's order, outermost first, with those that continue one another made one. What
    /// remains takes at least two steps each, so there are few.
    fn merged(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = self.axes.iter().copied().filter(|axis| axis.count > 1).collect();
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.to.unsigned_abs()));
        let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
        for inner in axes {
            match merged.last_mut() {
                Some(outer)
                    if outer.from == inner.count * inner.from && outer.to == inner.count * inner.to =>
                {
                    *outer = Axis { count: outer.count * inner.count, ..inner };
                }
                _ => merged.push(inner),
            }
        }
        merged
    }
}

/// Whether a walk from `start` along `(count, step)` axes touches only elements below `len`. Counts are positive.
fn stays_inside(start: i64, axes: impl Iterator<Item = (i64, i64)>, len: usize) -> bool {
    let reach = axes.into_iter().try_fold((start, start), |(low, high), (count, step)| {
        let span = (count - 1).checked_mul(step)?;
        Some((low.checked_add(span.min(0))?, high.checked_add(span.max(0))?))
    });
    reach.is_some_and(|(low, high)| low >= 0 && usize::try_from(high).is_ok_and(|high| high < len))
}

/// A walk under way over elements of type `T`.
struct Run<'r, T> {
    pace: Pace<'r>,
    from: &'r [T],
    to: &'r mut [T],
}

impl<T: Copy> Run<'_, T> {
    fn axes(&mut self, axes: &[Axis], from: i64, to: i64) -> Result<(), OpError> {
        match axes {
            [] => self.row(Axis { count: 1, from: 1, to: 1 }, from, to),
            [row] => self.row(*row, from, to),
            [outer, inner @ ..] => (0..outer.count).try_for_each(|i| {
                self.pace.spend(Self::apart(outer))?;
                self.axes(inner, from + i * outer.from, to + i * outer.to)
            }),
        }
    }

    /// What it costs to go one step along an axis.
    fn apart(axis: &Axis) -> usize {
        let step = axis.from.unsigned_abs().max(axis.to.unsigned_abs()).min(PAGE as u64) as usize;
        APART + ON_A_PAGE * (step * size_of::<T>()).min(PAGE) / PAGE
    }

    fn row(&mut self, axis: Axis, from: i64, to: i64) -> Result<(), OpError> {
        let steps = if (axis.from, axis.to) == (1, 1) { 1 } else { Self::apart(&axis) };
        let most = CHUNK.div_ceil(steps) as i64;
        for first in (0..axis.count).step_by(most as usize) {
            let count = most.min(axis.count - first);
            let (mut from, mut to) = (from + first * axis.from, to + first * axis.to);
            if (axis.from, axis.to) == (1, 1) {
                let (from, to, count) = (from as usize, to as usize, count as usize);
                self.to[to..to + count].copy_from_slice(&self.from[from..from + count]);
            } else {
                for _ in 0..count {
                    self.to[to as usize] = self.from[from as usize];
                    from += axis.from;
                    to += axis.to;
                }
            }
            self.pace.spend(count as usize * steps)?;
        }
        Ok(())
    }
}

/// Steps of row-major `dims`, for a walk. Meaningless for an empty tensor, which no walk may touch.
pub fn steps(dims: &[u32]) -> Vec<i64> {
    crate::tensor::strides(dims).into_iter().map(|stride| stride as i64).collect()
}

/// Numbers of elements before and behind `axis` in a tensor that is not empty.
pub fn around_axis(dims: &[u32], axis: usize) -> (usize, usize) {
    let product = |dims: &[u32]| dims.iter().fold(1usize, |n, &d| n.saturating_mul(d as usize));
    (product(dims.get(..axis).unwrap_or_default()), product(dims.get(axis + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Interrupt, NeverInterrupted};

    fn run(walk: &Walk, from: &[u8], to: &mut [u8], interrupt: &dyn Interrupt) -> Result<(), OpError> {
        walk.run(
            &Args { signature_index: 0, inputs: &[], outputs: &[], interrupt },
            OperandType::TENSOR_BOOL8,
            from,
            to,
        )
    }

    #[test]
    fn walks_both_ways_whatever_the_order_of_axes() {
        let walk = Walk::new([(2, 3, 1), (3, 1, 2)]);
        let mut to = [0; 6];
        run(&walk, &[1, 2, 3, 4, 5, 6], &mut to, &NeverInterrupted).unwrap();
        assert_eq!(to, [1, 4, 2, 5, 3, 6]);
        let mut back = [0; 6];
        run(&walk.reversed(), &to, &mut back, &NeverInterrupted).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn axes_that_continue_one_another_merge() {
        let walk = Walk::new([(2, 12, 12), (1, 99, 99), (3, 4, 4), (4, 1, 1)]);
        assert_eq!(walk.merged(), [Axis { count: 24, from: 1, to: 1 }]);
    }

    #[test]
    fn never_leaves_its_tensors() {
        for walk in [
            Walk::new([(3, 1, 1)]).start(0, 2),
            Walk::new([(3, -1, 1)]).start(1, 0),
            Walk::new([(i64::MAX, i64::MAX, 1)]),
            Walk::new([(2, 1, 1)]).start(i64::MAX, 0),
            Walk::new([]).start(-1, 0),
        ] {
            assert!(run(&walk, &[1; 4], &mut [0; 4], &NeverInterrupted).is_err(), "{walk:?}");
        }
        assert_eq!(run(&Walk::new([(0, i64::MAX, 1)]), &[], &mut [], &NeverInterrupted), Ok(()));
    }

    #[test]
    fn long_copies_can_be_interrupted() {
        struct Cancelled;
        impl Interrupt for Cancelled {
            fn check(&self) -> Result<(), OpError> {
                Err(OpError::Cancelled)
            }
        }
        let n = 2 * CHUNK as i64;
        let (from, mut to) = (vec![1; n as usize], vec![0; n as usize]);
        assert_eq!(run(&Walk::new([(n, 1, 1)]), &from, &mut to, &Cancelled), Err(OpError::Cancelled));
        assert_eq!(to[CHUNK], 0);
    }
}
