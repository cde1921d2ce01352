//! MEAN and the REDUCE operations, where the axes they fold are neighbours, ARGMAX and ARGMIN. Sums of floats have double
//! precision; where the elements of one lie side by side they are folded in sixteen parts, in an order that is the same on
//! every machine.

use super::elementwise::half::{narrow, widen};
use super::elementwise::Element;
use super::kernel::{elements, input, output};
use super::vector::{Level, Loop};
use super::{Kernel, Tiled, Work};
use crate::memory::{Target, View};
use crate::ops::reduce::folded;
use crate::ops::search::float_key;
use crate::ops::{axis_index, Arg, Args, OpError, OperationType};
use crate::tensor::element_count;
use crate::tensor::OperandType::*;
use std::marker::PhantomData;

/// Results, or parts of one, that are folded side by side.
const SIDE_BY_SIDE: usize = 16;
/// Elements of a result that take well under a millisecond, sixteen times over.
const MAX_FOLDED: usize = 1 << 16;
/// Elements of a result between two looks whether to stop, where they lie apart: each may be on a page of its own, touched for
/// the first time.
const MOST_APART: usize = 1 << 11;

/// Dimensions of an input: before, along and behind the folded axes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    outer: usize,
    folded: usize,
    inner: usize,
}

impl Shape {
    /// `None` where kept axes lie between folded ones, or there is nothing to fold, or much.
    fn new(dims: &[u32], folded: &[bool]) -> Option<Self> {
        // Others may be of any size beside a dimension of nothing, and their product beyond all integers.
        if dims.contains(&0) {
            return None;
        }
        let axes: Vec<(usize, bool)> = dims
            .iter()
            .zip(folded)
            .filter(|(&dim, _)| dim != 1)
            .map(|(&dim, &folded)| (dim as usize, folded))
            .collect();
        let first = axes.iter().position(|axis| axis.1).unwrap_or(axes.len());
        let last = axes.iter().rposition(|axis| axis.1).map_or(first, |last| last + 1);
        let product = |axes: &[(usize, bool)]| axes.iter().map(|axis| axis.0).product::<usize>();
        let shape = Shape {
            outer: product(&axes[..first]),
            folded: product(&axes[first..last]),
            inner: product(&axes[last..]),
        };
        let together = axes[first..last].iter().all(|axis| axis.1);
        (together && shape.folded <= MAX_FOLDED).then_some(shape)
    }
}

/// A kernel for this call, if it is one of a reduction.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    use OperationType::*;
    const REDUCTIONS: [OperationType; 7] =
        [MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM];
    let input = args.get(0).ok()?;
    if [ARGMAX, ARGMIN].contains(&ty) {
        return search(ty, args, &input);
    }
    if !REDUCTIONS.contains(&ty) {
        return None;
    }
    let shape = Shape::new(input.dims(), &folded(args).ok()?)?;
    if element_count(&args.output(0).ok()?.dims) != Some(shape.outer * shape.inner) {
        return None;
    }
    match input.ty() {
        TENSOR_FLOAT32 => floats(ty, shape, |x: f32| x.into(), |x| x as f32),
        TENSOR_FLOAT16 => floats(ty, shape, |x| widen(x).into(), |x| narrow(x as f32)),
        TENSOR_BOOL8 if ty == REDUCE_ALL => {
            fold(shape, 1, |x: u8, _| u8::from(x != 0), |a: u8, x| a & x, |x: u8| x)
        }
        TENSOR_BOOL8 => fold(shape, 0, |x: u8, _| u8::from(x != 0), |a: u8, x| a | x, |x: u8| x),
        _ => bytes(ty, shape, &input),
    }
}

fn floats<T: Element>(
    ty: OperationType,
    shape: Shape,
    number: impl Fn(T) -> f64 + Send + Sync + 'static,
    element: impl Fn(f64) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let (count, number) = (shape.folded as f64, move |x: T, _| number(x));
    match ty {
        OperationType::MEAN => fold(shape, 0.0, number, |a, x| a + x, move |sum: f64| element(sum / count)),
        OperationType::REDUCE_SUM => fold(shape, 0.0, number, |a, x| a + x, element),
        OperationType::REDUCE_MAX => fold(shape, f64::NEG_INFINITY, number, f64::max, element),
        OperationType::REDUCE_MIN => fold(shape, f64::INFINITY, number, f64::min, element),
        // Zero wins over infinity and NaN.
        OperationType::REDUCE_PROD => {
            let product = |a: f64, x: f64| if a == 0.0 || x == 0.0 { 0.0 } else { a * x };
            fold(shape, 1.0, number, product, element)
        }
        _ => None,
    }
}

fn bytes(ty: OperationType, shape: Shape, input: &Arg) -> Option<Box<dyn Kernel>> {
    let flip = match input.ty() {
        TENSOR_QUANT8_ASYMM => 0,
        TENSOR_QUANT8_ASYMM_SIGNED => 0x80,
        _ => return None,
    };
    let number = move |byte: u8, _| i32::from(byte ^ flip);
    let count = shape.folded as f64;
    let offset = i32::from(flip);
    match ty {
        OperationType::MEAN => fold(
            shape,
            0,
            number,
            |a, x| a + x,
            move |sum: i32| {
                // Halves go away from zero, as the type counts.
                let sum = sum - offset * count as i32;
                (f64::from(sum) / count).round() as i32 as u8
            },
        ),
        OperationType::REDUCE_MAX => fold(shape, 0, number, i32::max, move |x| x as u8 ^ flip),
        OperationType::REDUCE_MIN => fold(shape, 255, number, i32::min, move |x| x as u8 ^ flip),
        _ => None,
    }
}

/// The index along an axis of the first largest or smallest element.
fn search(ty: OperationType, args: &Args, input: &Arg) -> Option<Box<dyn Kernel>> {
    let axis = axis_index(args.i32(1).ok()?, input.dims().len()).ok()?;
    let searched: Vec<bool> = (0..input.dims().len()).map(|i| i == axis).collect();
    let (shape, least) = (Shape::new(input.dims(), &searched)?, ty == OperationType::ARGMIN);
    match input.ty() {
        TENSOR_FLOAT32 => first_largest(shape, least, float_key),
        TENSOR_FLOAT16 => first_largest(shape, least, |x| float_key(widen(x))),
        TENSOR_INT32 => first_largest(shape, least, |x: i32| x),
        TENSOR_QUANT8_ASYMM => first_largest(shape, least, |q: u8| q.into()),
        TENSOR_QUANT8_ASYMM_SIGNED => first_largest(shape, least, |q: i8| q.into()),
        _ => None,
    }
}

/// The index of the first element with the largest key, or with the smallest.
fn first_largest<T: Element>(
    shape: Shape,
    least: bool,
    key: impl Fn(T) -> i32 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let turned = if least { -1 } else { 0 };
    // Above, what orders by the key; below, what is the larger the earlier the element comes.
    let number = move |x: T, i: usize| (i64::from(key(x) ^ turned) << 32) | i64::from(!(i as u32));
    fold(shape, i64::MIN, number, i64::max, |found: i64| !(found as u32))
}

/// A kernel that folds numbers, each made of an element and of its index among those of a result, from `start` on; `f` may
/// be applied in any order.
fn fold<T: Element, U: Element, A: Copy + Send + Sync + 'static>(
    shape: Shape,
    start: A,
    number: impl Fn(T, usize) -> A + Send + Sync + 'static,
    f: impl Fn(A, A) -> A + Send + Sync + 'static,
    finish: impl Fn(A) -> U + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let level = Level::detect();
    Some(Box::new(Reduction { level, shape, start, number, f, finish, elements: PhantomData }))
}

struct Reduction<T, U, A, Number, F, Finish> {
    level: Level,
    shape: Shape,
    start: A,
    number: Number,
    f: F,
    finish: Finish,
    elements: PhantomData<fn(T) -> U>,
}

impl<T, U, A, Number, F, Finish> Kernel for Reduction<T, U, A, Number, F, Finish>
where
    T: Element,
    U: Element,
    A: Copy + Send + Sync,
    Number: Fn(T, usize) -> A + Send + Sync,
    F: Fn(A, A) -> A + Send + Sync,
    Finish: Fn(A) -> U + Send + Sync,
{
    fn name(&self) -> String {
        format!("reduction {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, output::<U>(outputs, 0)?);
        let results = work.units_per_task(out.len(), self.picoseconds(), self.shape.folded * size_of::<T>());
        // Blocks of results side by side stay whole.
        let results = if self.shape.inner > 1 { results.next_multiple_of(SIDE_BY_SIDE) } else { results };
        let owner = std::thread::current().id();
        let pause = || work.pause(owner);
        work.try_for_each_chunk(out, results, |first, out| {
            let mut done = Ok(());
            self.level.run(Results { reduction: self, input, first, out, pause: &pause, done: &mut done });
            done
        })
    }

    fn picoseconds(&self) -> usize {
        self.shape.folded * 500 + 2000
    }

    fn tiled(&self) -> Option<&dyn Tiled> {
        (self.shape.inner == 1).then_some(self)
    }
}

impl<T, U, A, Number, F, Finish> Tiled for Reduction<T, U, A, Number, F, Finish>
where
    T: Element,
    U: Element,
    A: Copy + Send + Sync,
    Number: Fn(T, usize) -> A + Send + Sync,
    F: Fn(A, A) -> A + Send + Sync,
    Finish: Fn(A) -> U + Send + Sync,
{
    fn tile(&self, inputs: &[Option<View<u8>>], out: &mut Target<u8>) -> Result<(), OpError> {
        let (input, out) = (input::<T>(inputs, 0)?, elements::<U>(out)?);
        // Elements of a result lie side by side: there is no need to pause.
        let (pause, mut done) = (|| Ok(()), Ok(()));
        self.level.run(Results { reduction: self, input, first: 0, out, pause: &pause, done: &mut done });
        done
    }
}

struct Results<'a, T, U, A, Number, F, Finish> {
    reduction: &'a Reduction<T, U, A, Number, F, Finish>,
    input: View<'a, T>,
    /// The first result.
    first: usize,
    out: Target<'a, U>,
    pause: &'a dyn Fn() -> Result<(), OpError>,
    /// Why there are not all results.
    done: &'a mut Result<(), OpError>,
}

impl<T, U, A, Number, F, Finish> Loop for Results<'_, T, U, A, Number, F, Finish>
where
    T: Element,
    U: Element,
    A: Copy,
    Number: Fn(T, usize) -> A,
    F: Fn(A, A) -> A,
    Finish: Fn(A) -> U,
{
    #[inline(always)]
    fn run(mut self) {
        let Shape { folded, inner, .. } = self.reduction.shape;
        if inner == 1 {
            return match folded {
                ..SIDE_BY_SIDE => self.short(folded),
                _ => self.rows(folded),
            };
        }
        let (mut done, len) = (0, self.out.len());
        while done < len {
            let (outer, column) = ((self.first + done) / inner, (self.first + done) % inner);
            let width = (inner - column).min(len - done).min(SIDE_BY_SIDE);
            *self.done = self.columns(outer * folded * inner + column, width, done);
            if self.done.is_err() {
                return;
            }
            done += width;
        }
    }
}

impl<T, U, A, Number, F, Finish> Results<'_, T, U, A, Number, F, Finish>
where
    T: Element,
    U: Element,
    A: Copy,
    Number: Fn(T, usize) -> A,
    F: Fn(A, A) -> A,
    Finish: Fn(A) -> U,
{
    /// Folds elements that lie side by side, too few for parts.
    #[inline(always)]
    fn short(&mut self, folded: usize) {
        let Reduction { start: neutral, number, f, finish, .. } = self.reduction;
        let len = self.out.len();
        let (from, to) = (self.input.pointer(self.first * folded, len * folded), self.out.pointer(0, len));
        for i in 0..len {
            // SAFETY: the elements of as many results were asked for.
            let at = |j: usize| number(unsafe { from.add(i * folded + j).read_unaligned() }, j);
            let result = (0..folded).fold(*neutral, |folded, j| f(folded, at(j)));
            // SAFETY: as many results were asked for.
            unsafe { to.add(i).write_unaligned(finish(result)) };
        }
    }

    /// The same of more elements.
    #[inline(always)]
    fn rows(&mut self, folded: usize) {
        for i in 0..self.out.len() {
            let result = self.row((self.first + i) * folded);
            self.out.set(i, (self.reduction.finish)(result));
        }
    }

    /// Folds elements that lie side by side, from `start` on.
    #[inline(always)]
    fn row(&self, start: usize) -> A {
        let Reduction { shape, start: neutral, number, f, .. } = self.reduction;
        let from = self.input.pointer(start, shape.folded);
        // SAFETY: the elements of a result were asked for.
        let at = |i: usize| number(unsafe { from.add(i).read_unaligned() }, i);
        let mut parts = [*neutral; SIDE_BY_SIDE];
        let whole = shape.folded - shape.folded % SIDE_BY_SIDE;
        for block in (0..whole).step_by(SIDE_BY_SIDE) {
            for (i, part) in parts.iter_mut().enumerate() {
                *part = f(*part, at(block + i));
            }
        }
        for (i, part) in (whole..shape.folded).zip(&mut parts) {
            *part = f(*part, at(i));
        }
        parts.into_iter().fold(*neutral, f)
    }

    /// Folds `width` results side by side, at most sixteen, each in the order of its elements.
    #[inline(always)]
    fn columns(&mut self, start: usize, width: usize, to: usize) -> Result<(), OpError> {
        let Reduction { shape, start: neutral, number, f, finish, .. } = self.reduction;
        let mut results = [*neutral; SIDE_BY_SIDE];
        for first in (0..shape.folded).step_by(MOST_APART) {
            if first > 0 {
                (self.pause)()?;
            }
            for i in first..shape.folded.min(first + MOST_APART) {
                let from = self.input.pointer(start + i * shape.inner, width);
                // SAFETY: `width` elements were asked for.
                let at = |c: usize| number(unsafe { from.add(c).read_unaligned() }, i);
                // A length known to the compiler makes one loop of vectors.
                if width == SIDE_BY_SIDE {
                    for (c, result) in results.iter_mut().enumerate() {
                        *result = f(*result, at(c));
                    }
                } else {
                    for (c, result) in results[..width].iter_mut().enumerate() {
                        *result = f(*result, at(c));
                    }
                }
            }
        }
        for (c, &result) in results[..width].iter().enumerate() {
            self.out.set(to + c, finish(result));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_are_neighbours_are_one() {
        let shape =
            |dims: &[u32], folded: &[bool]| Shape::new(dims, folded).map(|s| (s.outer, s.folded, s.inner));
        assert_eq!(shape(&[2, 7, 5, 3], &[false, true, true, false]), Some((2, 35, 3)));
        assert_eq!(shape(&[4, 6], &[false, true]), Some((4, 6, 1)));
        assert_eq!(shape(&[4, 6], &[false, false]), Some((24, 1, 1)));
        assert_eq!(shape(&[4, 6], &[true, true]), Some((1, 24, 1)));
        assert_eq!(shape(&[4, 1, 6], &[true, false, true]), Some((1, 24, 1)));
        assert_eq!(shape(&[4, 2, 6], &[true, false, true]), None);
        assert_eq!(shape(&[4, 0], &[true, false]), None);
    }
}
