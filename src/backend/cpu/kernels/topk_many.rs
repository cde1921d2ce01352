//! TOPK_V2 of many elements: the key that the last of the largest has is found by counting keys, some bits at a time; then
//! those that are larger are picked and sorted. However long a row is, its turn is given up between stretches of it.

use super::elementwise::Element;
use super::kernel::{elements, input};
use super::vector::{Level, Loop};
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::OpError;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Elements between two looks whether to stop: some tens of microseconds.
const STRETCH: usize = 1 << 14;
/// More are sorted digit by digit, which can be left in between.
const SORTED_AT_ONCE: usize = 1 << 13;
/// Where digits of a key begin, and how many bits they have, the highest first.
const DIGITS: [(u32, u32); 3] = [(21, 11), (10, 11), (0, 10)];
/// One for each value of a digit.
const COUNTS: usize = 1 << 11;

/// A kernel for rows of `row` elements, of which `k` are wanted.
pub struct Many<T, Key> {
    level: Level,
    row: usize,
    k: usize,
    key: Key,
    elements: PhantomData<fn(T)>,
}

impl<T, Key> Many<T, Key> {
    pub fn new(row: usize, k: usize, key: Key) -> Self {
        Many { level: Level::detect(), row, k, key, elements: PhantomData }
    }
}

impl<T: Element, Key: Fn(T) -> i32 + Send + Sync> Kernel for Many<T, Key> {
    fn name(&self) -> String {
        format!("top k by digits {}", self.level.name())
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
        let picoseconds = self.row.saturating_mul(4000).saturating_add(self.k.saturating_mul(40_000));
        let (stopped, owner) = (OnceLock::new(), std::thread::current().id());
        let pause = || work.pause(owner);
        work.for_each_range(values.len() / self.k, picoseconds, |rows| {
            let done = Memory::new(self.row, self.k).and_then(|mut memory| {
                for row in rows {
                    // SAFETY: each row is of one range.
                    let (values, indices) = unsafe {
                        (
                            values.disjoint_part(row * self.k, self.k),
                            indices.disjoint_part(row * self.k, self.k),
                        )
                    };
                    self.largest(
                        input.part(row * self.row, self.row),
                        &mut memory,
                        (values, indices),
                        &pause,
                    )?;
                }
                Ok(())
            });
            if let Err(why) = done {
                // Whoever was first has told already.
                let _ = stopped.set(why);
            }
        })?;
        stopped.into_inner().map_or(Ok(()), Err)
    }
}

/// What a row's largest elements are found in.
struct Memory {
    /// Of all elements as they were when they were read: a client may change those at any time.
    keys: Scratch<u32>,
    /// Keys of the largest elements, and their indices in the lower half.
    found: Scratch<u64>,
    /// As many, to sort them.
    sorted: Scratch<u64>,
}

impl Memory {
    fn new(row: usize, k: usize) -> Result<Self, OpError> {
        let sorted = if k > SORTED_AT_ONCE { k } else { 0 };
        Ok(Memory { keys: reserved(row)?, found: reserved(k)?, sorted: reserved(sorted)? })
    }
}

impl<T: Element, Key: Fn(T) -> i32> Many<T, Key> {
    fn largest(
        &self,
        from: View<T>,
        memory: &mut Memory,
        (mut values, mut indices): (Target<T>, Target<u32>),
        pause: &dyn Fn() -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let Memory { keys, found, sorted } = memory;
        for start in (0..self.row).step_by(STRETCH) {
            pause()?;
            let end = self.row.min(start + STRETCH);
            if keys.len() < end {
                keys.resize(end, 0);
            }
            let from = from.part(start, end - start);
            self.level.run(Keys { from, to: &mut keys[start..end], key: &self.key });
        }
        let (last, larger) = threshold(keys, self.k, pause)?;
        // Of equal elements those with larger indices come first, so they are looked for from the end.
        let mut equals = self.k - larger;
        found.clear();
        for (stretch, keys) in keys.chunks(STRETCH).enumerate().rev() {
            pause()?;
            for (i, &key) in keys.iter().enumerate().rev() {
                if key < last || (key == last && equals == 0) {
                    continue;
                }
                equals -= usize::from(key == last);
                found.push(u64::from(key) << 32 | (stretch * STRETCH + i) as u64);
            }
        }
        if self.k > SORTED_AT_ONCE {
            sort(found, sorted, pause)?;
        } else {
            found.sort_unstable_by(|a, b| b.cmp(a));
        }
        for (stretch, found) in found.chunks(STRETCH).enumerate() {
            pause()?;
            for (i, &found) in found.iter().enumerate() {
                let at = found as u32;
                values.set(stretch * STRETCH + i, from.get(at as usize));
                indices.set(stretch * STRETCH + i, at);
            }
        }
        Ok(())
    }
}

/// Keys of a stretch, so that they are in the order of unsigned numbers.
struct Keys<'a, T, Key> {
    from: View<'a, T>,
    to: &'a mut [u32],
    key: &'a Key,
}

impl<T: Element, Key: Fn(T) -> i32> Loop for Keys<'_, T, Key> {
    #[inline(always)]
    fn run(self) {
        let from = self.from.pointer(0, self.to.len());
        for (i, to) in self.to.iter_mut().enumerate() {
            // SAFETY: as many elements were asked for.
            *to = (self.key)(unsafe { from.add(i).read_unaligned() }) as u32 ^ 1 << 31;
        }
    }
}

/// The `k`th largest key, and how many are larger.
fn threshold(
    keys: &[u32],
    k: usize,
    pause: &dyn Fn() -> Result<(), OpError>,
) -> Result<(u32, usize), OpError> {
    let (mut above, mut larger) = (0u32, 0);
    for (shift, bits) in DIGITS {
        let mut counts = [0usize; COUNTS];
        for keys in keys.chunks(STRETCH) {
            pause()?;
            for &key in keys {
                let upto = key >> shift;
                // Only the first digit has none above it.
                if shift + bits == u32::BITS || upto >> bits == above {
                    counts[upto as usize & ((1 << bits) - 1)] += 1;
                }
            }
        }
        let mut digit = (1 << bits) - 1;
        while digit > 0 && larger + counts[digit] < k {
            larger += counts[digit];
            digit -= 1;
        }
        above = above << bits | digit as u32;
    }
    Ok((above, larger))
}

/// Sorts by descending key, with the help of memory for as many; equals stay in order.
fn sort(
    found: &mut Vec<u64>,
    sorted: &mut Vec<u64>,
    pause: &dyn Fn() -> Result<(), OpError>,
) -> Result<(), OpError> {
    while sorted.len() < found.len() {
        pause()?;
        sorted.resize(found.len().min(sorted.len() + STRETCH), 0);
    }
    for (shift, bits) in DIGITS.into_iter().rev() {
        let digit = |found: u64| (found >> (32 + shift)) as usize & ((1 << bits) - 1);
        let mut places = [0usize; COUNTS];
        for found in found.chunks(STRETCH) {
            pause()?;
            found.iter().for_each(|&found| places[digit(found)] += 1);
        }
        // The largest digit begins.
        places.iter_mut().rev().fold(0, |first, count| first + std::mem::replace(count, first));
        for found in found.chunks(STRETCH) {
            pause()?;
            for &found in found {
                let place = &mut places[digit(found)];
                sorted[*place] = found;
                *place += 1;
            }
        }
        std::mem::swap(found, sorted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::pool::ThreadPool;
    use crate::ops::Interrupt;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts how often the turn is offered to others, and may end the work at one of the offers.
    struct Offers(AtomicU32, u32);

    impl Interrupt for Offers {
        fn check(&self) -> Result<(), OpError> {
            Ok(())
        }

        fn yield_point(&self) -> Result<(), OpError> {
            match self.0.fetch_add(1, Ordering::Relaxed) == self.1 {
                true => Err(OpError::Cancelled),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn one_long_row_gives_its_turn_up_often() {
        let (row, k) = (40 * STRETCH, 10 * STRETCH);
        let from: Vec<i32> = (0..row as i32).map(|i| i.wrapping_mul(-1_640_531_527)).collect();
        let (mut values, mut indices) = (vec![0i32; k], vec![0u32; k]);
        let kernel = Many::new(row, k, |x: i32| x);
        let pool = ThreadPool::new(1).unwrap();
        let mut run = |offers: &Offers| {
            let work = Work::new(pool.team(1), offers);
            let bytes = View::of(bytemuck::cast_slice(&from));
            let mut outputs = [
                Target::of(bytemuck::cast_slice_mut(&mut values)),
                Target::of(bytemuck::cast_slice_mut(&mut indices)),
            ];
            kernel.run(&[Some(bytes)], &mut outputs, work)
        };
        let offers = Offers(AtomicU32::new(0), u32::MAX);
        run(&offers).unwrap();
        let count = offers.0.load(Ordering::Relaxed);
        // A pass for keys, three for digits, one to pick; of what is found, two for each digit, and one to write.
        assert!(count >= 5 * 40 + 7 * 10, "{count}");
        for at in [1, 50, 150, count - 1] {
            assert_eq!(run(&Offers(AtomicU32::new(0), at)), Err(OpError::Cancelled), "{at}");
        }
        let mut expected: Vec<_> = (0..row as u32).collect();
        expected.sort_unstable_by_key(|&i| std::cmp::Reverse((from[i as usize], i)));
        assert!(indices == expected[..k]);
        assert!(values.iter().zip(&indices).all(|(&value, &i)| value == from[i as usize]));
    }
}
