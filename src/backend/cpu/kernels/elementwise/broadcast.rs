//! How the elements of inputs that broadcast go with those of the output: long runs, in each of which every input either
//! goes along or stands still.

use crate::tensor::strides;

/// The walk through `N` inputs along an output.
pub struct Broadcast<const N: usize> {
    /// Sizes of the output's dimensions, innermost last; those that all inputs continue are one.
    dims: Vec<usize>,
    /// How far each input goes with a step along each of them.
    steps: Vec<[usize; N]>,
}

impl<const N: usize> Broadcast<N> {
    /// `None` unless the inputs' dimensions broadcast to `out`, which must not be empty.
    pub fn new(out: &[u32], inputs: [&[u32]; N]) -> Option<Self> {
        let mut steps = vec![[0; N]; out.len()];
        for (n, dims) in inputs.into_iter().enumerate() {
            let missing = out.len().checked_sub(dims.len())?;
            for (i, (&dim, stride)) in dims.iter().zip(strides(dims)).enumerate() {
                if dim != out[missing + i] && dim != 1 {
                    return None;
                }
                steps[missing + i][n] = if dim == 1 { 0 } else { stride };
            }
        }
        let mut walk = Broadcast { dims: vec![], steps: vec![] };
        for (&dim, steps) in out.iter().zip(steps) {
            match dim {
                0 => return None,
                1 => {}
                _ => walk.push(dim as usize, steps),
            }
        }
        if walk.dims.is_empty() {
            walk.push(1, [0; N]);
        }
        Some(walk)
    }

    /// Appends an innermost dimension, as a part of the last one where every input continues it.
    fn push(&mut self, dim: usize, steps: [usize; N]) {
        if let (Some(last), Some(outer)) = (self.dims.last_mut(), self.steps.last_mut()) {
            if outer.iter().zip(steps).all(|(&outer, inner)| outer == inner * dim) {
                (*last, *outer) = (*last * dim, steps);
                return;
            }
        }
        self.dims.push(dim);
        self.steps.push(steps);
    }

    /// Which inputs go along in a run; the others stand still.
    pub fn going(&self) -> [bool; N] {
        self.steps.last().map_or([false; N], |steps| steps.map(|step| step != 0))
    }

    /// Calls `f(first of the output's elements, of the inputs', number)` for the runs in `len` elements of the output from
    /// `start` on.
    #[inline(always)]
    pub fn for_each_run(&self, start: usize, len: usize, mut f: impl FnMut(usize, [usize; N], usize)) {
        let Some((&row, outer)) = self.dims.split_last() else { return };
        let (mut at, end) = (start, start + len);
        while at < end {
            let (mut rest, column) = (at / row, at % row);
            let count = (row - column).min(end - at);
            let mut places = self.steps[outer.len()].map(|step| step * column);
            for (&dim, steps) in outer.iter().zip(&self.steps).rev() {
                let position = rest % dim;
                rest /= dim;
                places.iter_mut().zip(steps).for_each(|(place, step)| *place += position * step);
            }
            f(at, places, count);
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(out: &[u32], a: &[u32], b: &[u32], start: usize, len: usize) -> Vec<(usize, [usize; 2], usize)> {
        let mut runs = Vec::new();
        Broadcast::new(out, [a, b]).unwrap().for_each_run(start, len, |at, from, n| runs.push((at, from, n)));
        runs
    }

    #[test]
    fn neighbours_are_one_run() {
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[2, 3, 4], 5, 10), [(5, [5, 5], 10)]);
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[], 0, 24), [(0, [0, 0], 24)]);
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[2, 1, 1], 6, 12), [(6, [6, 0], 6), (12, [12, 1], 6)]);
        assert_eq!(runs(&[1, 1], &[1], &[1, 1], 0, 1), [(0, [0, 0], 1)]);
    }

    #[test]
    fn each_input_broadcasts_by_itself() {
        assert_eq!(
            runs(&[2, 2, 3], &[2, 1, 3], &[2, 1], 2, 5),
            [(2, [2, 0], 1), (3, [0, 1], 3), (6, [3, 0], 1)]
        );
        assert!(Broadcast::new(&[2, 3], [&[2, 3], &[2]]).is_none());
        assert!(Broadcast::new(&[0, 3], [&[0, 3]]).is_none());
    }
}
