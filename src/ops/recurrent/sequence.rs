//! Sequences: tensors [time, batch, size], or [batch, time, size], walked through step by step.

use super::operands;
use crate::ops::{Args, Interrupt, OpError};
use crate::tensor::Dims;
use smallvec::smallvec;

#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    pub steps: u32,
    pub batch: u32,
    pub time_major: bool,
}

impl Sequence {
    /// A single step, of a tensor [batch, size].
    pub fn single(batch: u32) -> Self {
        Sequence { steps: 1, batch, time_major: true }
    }

    /// The sequence in input `i` of rank 3, and the size of its innermost dimension.
    pub fn of_input(args: &Args, i: usize, time_major: bool) -> Result<(Self, u32), OpError> {
        let [outer, inner, size] = operands::dims(args, i)?;
        let (steps, batch) = if time_major { (outer, inner) } else { (inner, outer) };
        Ok((Sequence { steps, batch, time_major }, size))
    }

    /// Dimensions of a sequence of vectors of `size` elements that goes along with this one.
    pub fn dims(&self, size: u32) -> Dims {
        match self.time_major {
            true => smallvec![self.steps, self.batch, size],
            false => smallvec![self.batch, self.steps, size],
        }
    }

    /// Number of vectors. They are in memory, and none is empty: [`not_empty`](operands::not_empty) says so of their size.
    pub fn rows(&self) -> usize {
        self.steps as usize * self.batch as usize
    }

    /// Index of the vector of step `time` of element `b` of the batch.
    pub fn row(&self, time: usize, b: usize) -> usize {
        match self.time_major {
            true => time * self.batch as usize + b,
            false => b * self.steps as usize + time,
        }
    }

    /// Calls `step(index in the batch, index of the vector)` for all vectors in order of time, or against it.
    pub fn walk(
        &self,
        reversed: bool,
        interrupt: &dyn Interrupt,
        mut step: impl FnMut(usize, usize) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let (steps, batch) = (self.steps as usize, self.batch as usize);
        if batch == 0 {
            // Else the client would choose the number of turns without having to send anything.
            return Ok(());
        }
        for turn in 0..steps {
            let time = if reversed { steps - 1 - turn } else { turn };
            for b in 0..batch {
                interrupt.yield_point()?;
                step(b, self.row(time, b))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;

    fn walked(sequence: Sequence, reversed: bool) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        let see = |b, row| {
            seen.push((b, row));
            Ok(())
        };
        sequence.walk(reversed, &NeverInterrupted, see).unwrap();
        seen
    }

    #[test]
    fn walks_in_order_of_time() {
        let time_major = Sequence { steps: 3, batch: 2, time_major: true };
        assert_eq!(walked(time_major, false), [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5)]);
        let batch_major = Sequence { time_major: false, ..time_major };
        assert_eq!(walked(batch_major, true), [(0, 2), (1, 5), (0, 1), (1, 4), (0, 0), (1, 3)]);
    }

    #[test]
    fn an_empty_batch_takes_no_time() {
        assert_eq!(walked(Sequence { steps: u32::MAX, batch: 0, time_major: true }, false), []);
    }
}
