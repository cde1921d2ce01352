//! How the elements of inputs that broadcast go with those of the output: long runs, in each of which every input either
//! goes along or stands still.

use smallvec::{smallvec, SmallVec};

/// The walk through `N` inputs along an output.
pub struct Broadcast<const N: usize> {
    /// Sizes of the output's dimensions, innermost last; those that all inputs continue are one.
    dims: SmallVec<[usize; 2]>,
    /// How far each input goes with a step along each of them.
    steps: SmallVec<[[usize; N]; 2]>,
}

impl<const N: usize> Broadcast<N> {
    /// `None` unless the inputs' dimensions broadcast to `out`, which must not be empty.
    pub fn new(out: &[u32], inputs: [&[u32]; N]) -> Option<Self> {
        let mut steps: SmallVec<[[usize; N]; 4]> = smallvec![[0; N]; out.len()];
        for (n, dims) in inputs.into_iter().enumerate() {
            let (missing, mut stride) = (out.len().checked_sub(dims.len())?, 1usize);
            for (i, &dim) in dims.iter().enumerate().rev() {
                if dim != out[missing + i] && dim != 1 {
                    return None;
                }
                steps[missing + i][n] = if dim == 1 { 0 } else { stride };
                stride = stride.saturating_mul(dim as usize);
            }
        }
        let mut walk = Broadcast { dims: smallvec![], steps: smallvec![] };
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

    /// Whether all inputs are as large as the output, and go along with it.
    pub fn is_even(&self) -> bool {
        self.steps.len() == 1 && self.going() == [true; N]
    }

    /// How many elements the last input has, if it is repeated along all of the output, and the others are like the output.
    pub fn repeated(&self) -> Option<usize> {
        let (&[_, row], [outer, inner]) = (&self.dims[..], &self.steps[..]) else { return None };
        let goes = |n: usize| outer[n] == if n + 1 == N { 0 } else { row } && inner[n] == 1;
        (0..N).all(goes).then_some(row)
    }

    /// The runs in `len` elements of the output from `start` on.
    ///
    /// For loops, not for closures: what is called, rather than inlined, would not be compiled for the caller's vectors.
    #[inline(always)]
    pub fn runs(&self, start: usize, len: usize) -> Runs<'_, N> {
        let row = self.dims.last().map_or(1, |&row| row);
        // A division takes as long as many elements, and most begin with the first.
        let (row, column) = if start == 0 { (0, 0) } else { (start / row, start % row) };
        Runs { walk: self, at: start, end: start + len, row, column }
    }
}

/// A run: the first of the output's elements, of the inputs', and how many there are.
pub type RunOf<const N: usize> = (usize, [usize; N], usize);

pub struct Runs<'w, const N: usize> {
    walk: &'w Broadcast<N>,
    at: usize,
    end: usize,
    /// Which of the innermost rows comes next, and from which of its elements on.
    row: usize,
    column: usize,
}

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = RunOf<N>;

    #[inline(always)]
    fn next(&mut self) -> Option<RunOf<N>> {
        let (&row, outer) = self.walk.dims.split_last()?;
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let (mut rest, column) = (self.row, self.column);
        let count = (row - column).min(self.end - at);
        let mut places = self.walk.steps[outer.len()].map(|step| step * column);
        for (i, (&dim, steps)) in outer.iter().zip(&self.walk.steps).enumerate().rev() {
            // The outermost has what is left: a division takes as long as many elements.
            let position = if i == 0 { rest } else { rest % dim };
            rest = if i == 0 { 0 } else { rest / dim };
            for (place, step) in places.iter_mut().zip(steps) {
                *place += position * step;
            }
        }
        (self.at, self.row, self.column) = (at + count, self.row + 1, 0);
        Some((at, places, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(out: &[u32], a: &[u32], b: &[u32], start: usize, len: usize) -> Vec<RunOf<2>> {
        Broadcast::new(out, [a, b]).unwrap().runs(start, len).collect()
    }

    #[test]
    fn neighbours_are_one_run() {
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[2, 3, 4], 5, 10), [(5, [5, 5], 10)]);
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[], 0, 24), [(0, [0, 0], 24)]);
        assert_eq!(runs(&[2, 3, 4], &[2, 3, 4], &[2, 1, 1], 6, 12), [(6, [6, 0], 6), (12, [12, 1], 6)]);
        assert_eq!(runs(&[1, 1], &[1], &[1, 1], 0, 1), [(0, [0, 0], 1)]);
    }

    #[test]
    fn what_is_repeated_is_known() {
        let repeated = |out: &[u32], a: &[u32], b: &[u32]| Broadcast::new(out, [a, b]).unwrap().repeated();
        assert_eq!(repeated(&[2, 5, 3], &[2, 5, 3], &[3]), Some(3));
        assert_eq!(repeated(&[2, 5, 3], &[2, 5, 3], &[5, 3]), Some(15));
        assert_eq!(repeated(&[2, 5, 3], &[2, 5, 3], &[5, 1]), None);
        assert_eq!(repeated(&[2, 5, 3], &[2, 1, 3], &[3]), None);
        assert_eq!(repeated(&[2, 3], &[3], &[2, 3]), None);
        assert_eq!(repeated(&[2, 3], &[2, 3], &[2, 3]), None);
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
