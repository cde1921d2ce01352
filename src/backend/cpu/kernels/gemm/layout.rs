//! How weights are moved to where a micro-kernel reads them: panel by panel, groups of columns side by side.

use super::micro::Shape;
use crate::memory::View;
use crate::ops::Interrupt;

/// Where weights go, whatever their type: depths are in bytes.
pub struct Layout {
    pub shape: Shape,
    pub padded: usize,
    /// Of a panel.
    pub columns: usize,
    /// What all bytes are xored with.
    pub flip: u8,
}

/// Groups of one column that are moved before the next column's: a cache line's worth.
const RUN: usize = 16;
/// Columns that are moved together, so that they are written by few instructions.
const SIDE: usize = 4;

impl Layout {
    /// Packs weights in groups of `G` bytes, up to 8; `None` where it was interrupted.
    pub fn pack<const G: usize>(&self, weights: View<u8>, to: &mut [u8], pace: &mut Pace) -> Option<()> {
        let Shape { segments, depth, columns } = self.shape;
        let inputs = segments * depth;
        for (p, panel) in to.chunks_exact_mut(self.columns * segments * self.padded).enumerate() {
            let first = p * self.columns;
            let count = self.columns.min(columns - first);
            let columns = weights.part(first * inputs, count * inputs);
            for (segment, panel) in panel.chunks_exact_mut(self.columns * self.padded).enumerate() {
                let (groups, _) = panel.as_chunks_mut::<G>();
                let (whole, part) = (depth / G, depth % G);
                // Of short segments there may be no whole group.
                pace.spend(count * part + 1)?;
                for first in (0..whole).step_by(RUN) {
                    pace.spend(RUN * G * self.columns)?;
                    let run = first..whole.min(first + RUN);
                    let to = &mut groups[run.start * self.columns..run.end * self.columns];
                    let row = |column| {
                        columns.part(column * inputs + segment * depth + run.start * G, run.len() * G)
                    };
                    for column in (0..count / SIDE * SIDE).step_by(SIDE) {
                        let rows = std::array::from_fn(|i| row(column + i));
                        self.place::<G, SIDE>(rows, &mut to[column..]);
                    }
                    for column in count / SIDE * SIDE..count {
                        self.place::<G, 1>([row(column)], &mut to[column..]);
                    }
                }
                for column in (0..count).filter(|_| part > 0) {
                    let rest = columns.part(column * inputs + segment * depth + whole * G, part);
                    let group = &mut groups[whole * self.columns + column];
                    group[..part].iter_mut().enumerate().for_each(|(i, to)| *to = rest.get(i) ^ self.flip);
                }
            }
        }
        Some(())
    }

    /// Puts groups of `N` columns side by side, and the columns' next ones a line of all columns further.
    fn place<const G: usize, const N: usize>(&self, columns: [View<u8>; N], to: &mut [[u8; G]]) {
        let count = columns[0].len() / G;
        let columns: [_; N] = std::array::from_fn(|i| columns[i].pointer(0, count * G).cast::<[u8; G]>());
        for (i, to) in to.chunks_mut(self.columns).take(count).enumerate() {
            // SAFETY: bytes of so many groups were asked for.
            let groups = columns.map(|column| unsafe { column.add(i).read_unaligned() });
            to[..N].copy_from_slice(&groups.map(|group| flipped(&group, self.flip)));
        }
    }
}

/// A group in one word: byte by byte, it takes three times as long.
#[inline(always)]
fn flipped<const G: usize>(group: &[u8; G], flip: u8) -> [u8; G] {
    let mut word = [0; 8];
    word[..G].copy_from_slice(group);
    let word = (u64::from_ne_bytes(word) ^ u64::from_ne_bytes([flip; 8])).to_ne_bytes();
    std::array::from_fn(|i| word[i])
}

/// Asks the interrupt every now and then, and gives a turn up to others: a fraction of a millisecond's work.
pub struct Pace<'a> {
    interrupt: &'a dyn Interrupt,
    done: usize,
}

impl<'a> Pace<'a> {
    pub fn of(interrupt: &'a dyn Interrupt) -> Self {
        Pace { interrupt, done: 0 }
    }

    /// Notes work on so many bytes. `None` where it is to stop.
    pub fn spend(&mut self, bytes: usize) -> Option<()> {
        self.done = self.done.saturating_add(bytes);
        if self.done >= 1 << 16 {
            self.done = 0;
            self.interrupt.yield_point().ok()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Counting;

    #[test]
    fn segments_without_a_whole_group_are_packed_with_pauses() {
        const COLUMNS: usize = 1 << 20;
        let shape = Shape { columns: COLUMNS, segments: 1, depth: 1 };
        let layout = Layout { shape, padded: 4, columns: 16, flip: 0 };
        let (weights, mut to, interrupt) = (vec![1; COLUMNS], vec![0; 4 * COLUMNS], Counting::default());
        layout.pack::<4>(View::of(&weights), &mut to, &mut Pace::of(&interrupt)).expect("all of it");
        assert!(to.chunks(64).all(|group| group[0] == 1 && group[1] == 0));
        let passed = interrupt.take();
        assert!(passed >= 16, "{passed} yield points");
    }
}
