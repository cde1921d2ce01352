//! Elementwise operations: a function of one element, or of an element of each of two inputs that broadcast.
//!
//! Results are those of the plain evaluation, byte for byte, but for exponentials and their kin, whose last bits differ.

mod binary;
mod broadcast;
pub(super) mod half;
mod loops;
pub(super) mod math;
mod quantised;
mod round;
#[cfg(test)]
mod tests;
mod unary;

use super::vector::Level;
use super::{Kernel, Source};
use crate::ops::{Args, Operation};
use broadcast::Broadcast;
pub(super) use loops::Element;
use loops::{Map, Zip};
pub(super) use round::round;
use std::marker::PhantomData;

/// A kernel for this call, if it is of an elementwise operation.
pub(super) fn select(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    binary::select(operation.ty, args).or_else(|| unary::select(operation, args, source))
}

/// A kernel that gives `f` of input 0.
fn map<S: Element, T: Element>(
    picoseconds: usize,
    f: impl Fn(S) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    Some(Box::new(Map { level: Level::detect(), f, picoseconds, types: PhantomData }))
}

/// A kernel that gives `f` of inputs 0 and 1, which broadcast.
fn zip<S: Element, T: Element>(
    args: &Args,
    picoseconds: usize,
    f: impl Fn(S, S) -> T + Send + Sync + 'static,
) -> Option<Box<dyn Kernel>> {
    let inputs = [args.get(0).ok()?.dims(), args.get(1).ok()?.dims()];
    let walk = Broadcast::new(&args.output(0).ok()?.dims, inputs)?;
    Some(Box::new(Zip { level: Level::detect(), walk, f, picoseconds, types: PhantomData }))
}
