//! TOPK_V2 of few elements: the best so far are kept in order, and most elements are no better than the last of them, which
//! vectors tell for many at once.

use super::elementwise::half::widen;
use super::elementwise::Element;
use super::kernel::{elements, input};
use super::topk_many::Many;
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::search::float_key;
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType::*;
use std::marker::PhantomData;

/// Elements of a row that are kept: more are found by their digits.
const MOST: usize = 64;
/// Elements that are compared with the last of the best at once.
const BLOCK: usize = 64;
/// Elements of a row, times as many as are kept, that take under a millisecond should each be better than those before.
const MOST_MOVES: usize = 1 << 20;

/// A kernel for this call, if it is one of TOPK_V2.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    if ty != OperationType::TOPK_V2 {
        return None;
    }
    let input = args.get(0).ok()?;
    let (row, k) = (*input.dims().last()? as usize, usize::try_from(args.i32(1).ok()?).ok()?);
    if !(1..=row).contains(&k) || u32::try_from(row).is_err() {
        return None;
    }
    match input.ty() {
        TENSOR_FLOAT32 => kernel(row, k, float_key),
        TENSOR_FLOAT16 => kernel(row, k, |x| float_key(widen(x))),
        TENSOR_INT32 => kernel(row, k, |x: i32| x),
        TENSOR_QUANT8_ASYMM => kernel(row, k, |q: u8| q.into()),
        TENSOR_QUANT8_ASYMM_SIGNED => kernel(row, k, |q: i8| q.into()),
        _ => None,
    }
}

/// A kernel that goes by the `key` of elements.
fn kernel<T: Element + Default>(
    row: usize,
    k: usize,
    key: impl Fn(T) -> i32 + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    if k > MOST || row.saturating_mul(k) > MOST_MOVES {
        return Some(Box::new(Many::new(row, k, key)));
    }
    Some(Box::new(TopK { level: Level::detect(), row, k, key, elements: PhantomData }))
}

struct TopK<T, Key> {
    level: Level,
    /// Elements of a row, and how many of them are wanted.
    row: usize,
    k: usize,
    key: Key,
    elements: PhantomData<fn(T)>,
}

impl<T: Element + Default, Key: Fn(T) -> i32 + Send + Sync> Kernel for TopK<T, Key> {
    fn name(&self) -> String {
        format!("top k {}", self.level.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let input = input::<T>(inputs, 0)?;
        let [values, indices] = outputs else { return Err(OpError::Unresolved) };
        let (values, indices) = (elements::<T>(values)?, elements::<u32>(indices)?);
        let (count, picoseconds) = (values.len() / self.k, self.row * 300 + self.k * 20_000);
        // Elements are in any order: a task takes about a millisecond even where each is better than those before.
        let most = (MOST_MOVES / (self.row * self.k)).max(1);
        work.in_parts(count, work.units_per_task(count, picoseconds, 0).min(most), |rows| {
            let (first, count) = (rows.start, rows.len());
            // SAFETY: each row is of one range.
            let (values, indices) = unsafe {
                (
                    values.disjoint_part(first * self.k, count * self.k),
                    indices.disjoint_part(first * self.k, count * self.k),
                )
            };
            let input = input.part(first * self.row, count * self.row);
            self.level.run(Rows { top: self, input, values, indices });
        })
    }
}

/// Some rows, with their results.
struct Rows<'a, T, Key> {
    top: &'a TopK<T, Key>,
    input: View<'a, T>,
    values: Target<'a, T>,
    indices: Target<'a, u32>,
}

/// An element as it was when it was read: a client may change it at any time.
#[derive(Clone, Copy, Default)]
struct Found<T> {
    key: i32,
    at: u32,
    element: T,
}

impl<T: Element + Default, Key: Fn(T) -> i32> Loop for Rows<'_, T, Key> {
    #[inline(always)]
    fn run(mut self) {
        let TopK { row, k, ref key, .. } = *self.top;
        for i in 0..self.values.len() / k {
            let from = self.input.pointer(i * row, row);
            let mut best = [Found::<T>::default(); MOST];
            let mut found = 0;
            for block in (0..row).step_by(BLOCK) {
                let end = row.min(block + BLOCK);
                // SAFETY: a row was asked for.
                let at = |i: usize| unsafe { from.add(i).read_unaligned() };
                if found == k {
                    let largest = (block..end).fold(i32::MIN, |largest, i| largest.max(key(at(i))));
                    if largest < best[k - 1].key {
                        continue;
                    }
                }
                for i in block..end {
                    let element = at(i);
                    let next = Found { key: key(element), at: i as u32, element };
                    if found < k {
                        found += 1;
                    } else if next.key < best[k - 1].key {
                        continue;
                    }
                    // Of equal elements the one with the larger index comes first.
                    let mut place = found - 1;
                    while place > 0 && best[place - 1].key <= next.key {
                        best[place] = best[place - 1];
                        place -= 1;
                    }
                    best[place] = next;
                }
            }
            for (j, best) in best[..k].iter().enumerate() {
                self.values.set(i * k + j, best.element);
                self.indices.set(i * k + j, best.at);
            }
        }
    }
}
