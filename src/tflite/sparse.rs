//! Constants that are stored without most of their zeros, made whole again. What says where values lie is a file's, and trusted in
//! nothing. It knows nothing of graphs.
//!
//! The format's levels go through the dimensions of a tensor in an order of their own; dimensions that are cut into blocks come twice,
//! as which block it is and, behind all others, as the place within it. A level either has all its places or lists those that it has.
//! Values follow each other as the levels are gone through.

/// Levels of a constant, at most: each is a call within a call.
const MOST_LEVELS: usize = 16;

/// Where the values of a constant lie.
pub struct Sparsity {
    /// The dimension of each level; from the tensor's rank on they are those of blocks.
    pub order: Vec<usize>,
    /// The tensor's dimension that each dimension of blocks cuts.
    pub blocks: Vec<usize>,
    pub levels: Vec<Level>,
}

pub enum Level {
    /// All of so many places.
    Dense(usize),
    /// Of the list of places, those from one of the bounds to the next, which place of the level before decides.
    Sparse { bounds: Vec<usize>, places: Vec<usize> },
}

impl Sparsity {
    /// The bytes of a constant of these dimensions, of which `stored` are given, if they are no more than `most`: how many there are
    /// does not go by the file's size. An error says what is wrong.
    pub fn whole(&self, dims: &[u32], element: usize, stored: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
        let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let size = count.and_then(|count| count.checked_mul(element)).filter(|&size| size <= most);
        let (Some(count), Some(size)) = (count, size) else {
            return Err(format!(
                "a sparse constant of {dims:?} is too large: {most} bytes are left for such"
            ));
        };
        let mut left: Vec<bool> = vec![true; dims.len() + self.blocks.len()];
        let is_known = |&dim: &usize| left.get_mut(dim).is_some_and(std::mem::take);
        let are_all = self.order.len() <= MOST_LEVELS
            && self.order.len() == self.levels.len()
            && self.order.len() == dims.len() + self.blocks.len()
            && self.order.iter().all(is_known);
        // A place within a block is of use once it is known which block it is.
        if !are_all || self.order[..dims.len()].iter().any(|&dim| dim >= dims.len()) {
            return Err("a sparse constant's dimensions have no order that is known".into());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| format!("memory for {size} bytes cannot be had"))?;
        bytes.resize(size, 0);
        // A level has as many places as the tensor has elements, at most.
        let steps = count.saturating_add(1).saturating_mul(self.levels.len());
        let stored = stored.chunks_exact(element);
        let places = vec![0; self.levels.len()];
        let mut walk = Walk { sparsity: self, dims: &dims, element, stored, places, steps, bytes };
        walk.level(0, 0)?;
        match walk.stored.next() {
            None => Ok(walk.bytes),
            Some(_) => Err("a sparse constant has more values than places".into()),
        }
    }
}

struct Walk<'a> {
    sparsity: &'a Sparsity,
    dims: &'a [usize],
    element: usize,
    stored: std::slice::ChunksExact<'a, u8>,
    /// The place at each level.
    places: Vec<usize>,
    /// How many places may still be gone to.
    steps: usize,
    bytes: Vec<u8>,
}

impl Walk<'_> {
    /// Goes through level `level`, at place number `above` of the one before.
    fn level(&mut self, level: usize, above: usize) -> Result<(), String> {
        let sparsity = self.sparsity;
        match sparsity.levels.get(level) {
            None => self.value(),
            Some(Level::Dense(count)) => (0..*count).try_for_each(|place| {
                let number = above.checked_mul(*count).and_then(|first| first.checked_add(place));
                self.place(level, place, number.ok_or("a sparse constant is too large")?)
            }),
            Some(Level::Sparse { bounds, places }) => {
                let range = bounds.get(above).zip(bounds.get(above + 1));
                let range = range.and_then(|(&start, &end)| Some((start, places.get(start..end)?)));
                let (start, listed) = range.ok_or("a sparse constant's lists have other lengths")?;
                let mut listed = listed.iter().enumerate();
                listed.try_for_each(|(i, &place)| self.place(level, place, start + i))
            }
        }
    }

    fn place(&mut self, level: usize, place: usize, number: usize) -> Result<(), String> {
        self.steps = self.steps.checked_sub(1).ok_or("a sparse constant has more places than elements")?;
        self.places[level] = place;
        self.level(level + 1, number)
    }

    /// Puts the next value to the place at which all levels are.
    fn value(&mut self) -> Result<(), String> {
        let value = self.stored.next().ok_or("a sparse constant has fewer values than places")?;
        let mut index = vec![0usize; self.dims.len()];
        for (&dim, (&place, level)) in
            self.sparsity.order.iter().zip(self.places.iter().zip(&self.sparsity.levels))
        {
            match dim.checked_sub(self.dims.len()) {
                None => index[dim] = place,
                Some(block) => {
                    let Level::Dense(size) = level else { return Err("a block has no size".into()) };
                    let cut = self.sparsity.blocks[block];
                    let at = index.get_mut(cut).ok_or("a block is of no dimension")?;
                    let within = at.checked_mul(*size).and_then(|first| first.checked_add(place));
                    *at = within.ok_or("a sparse constant is too large")?;
                }
            }
        }
        if index.iter().zip(self.dims).any(|(index, dim)| index >= dim) {
            return Err("a sparse constant has a place outside of its dimensions".into());
        }
        let number = index.iter().zip(self.dims).fold(0, |number, (index, dim)| number * dim + index);
        self.bytes[number * self.element..][..self.element].copy_from_slice(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(bounds: &[usize], places: &[usize]) -> Level {
        Level::Sparse { bounds: bounds.to_vec(), places: places.to_vec() }
    }

    #[test]
    fn rows_of_few_values_are_made_whole() {
        // Three rows of four: 5 . . 7, none, . . 9 .
        let levels = vec![Level::Dense(3), sparse(&[0, 2, 2, 3], &[0, 3, 2])];
        let sparsity = Sparsity { order: vec![0, 1], blocks: vec![], levels };
        assert_eq!(sparsity.whole(&[3, 4], 1, &[5, 7, 9], 12).unwrap(), [5, 0, 0, 7, 0, 0, 0, 0, 0, 0, 9, 0]);
        let halves = sparsity.whole(&[3, 4], 2, &[5, 0, 7, 1, 9, 2], 24).unwrap();
        assert_eq!(
            (halves.len(), &halves[..2], &halves[6..8], &halves[20..22]),
            (24, &[5, 0][..], &[7, 1][..], &[9, 2][..])
        );
    }

    #[test]
    fn dimensions_have_an_order_of_their_own_and_blocks() {
        // Columns first.
        let levels = vec![Level::Dense(2), sparse(&[0, 1, 3], &[1, 0, 2])];
        let sparsity = Sparsity { order: vec![1, 0], blocks: vec![], levels };
        assert_eq!(sparsity.whole(&[3, 2], 1, &[4, 5, 6], 6).unwrap(), [0, 5, 4, 0, 0, 6]);
        // Blocks of two columns: of row 0 the second, of row 1 the first.
        let levels = vec![Level::Dense(2), sparse(&[0, 1, 2], &[1, 0]), Level::Dense(2)];
        let sparsity = Sparsity { order: vec![0, 1, 2], blocks: vec![1], levels };
        assert_eq!(sparsity.whole(&[2, 4], 1, &[1, 2, 3, 4], 8).unwrap(), [0, 0, 1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn what_a_file_says_is_not_trusted() {
        let rows = || sparse(&[0, 2, 2, 3], &[0, 3, 2]);
        let whole = |order: &[usize], blocks: &[usize], levels, dims: &[u32], stored: &[u8]| {
            Sparsity { order: order.to_vec(), blocks: blocks.to_vec(), levels }.whole(
                dims,
                1,
                stored,
                1 << 28,
            )
        };
        let fails = |order: &[usize], blocks: &[usize], levels, dims: &[u32], stored: &[u8], why: &str| {
            let error = whole(order, blocks, levels, dims, stored).unwrap_err();
            assert!(error.contains(why), "{error}, expected {why}");
        };
        let three = || vec![Level::Dense(3), rows()];
        fails(&[0, 1], &[], three(), &[3, 4], &[1, 2], "fewer values");
        fails(&[0, 1], &[], three(), &[3, 4], &[1, 2, 3, 4], "more values");
        fails(&[0, 1], &[], three(), &[3, 3], &[1, 2, 3], "outside");
        fails(&[0, 1], &[], vec![Level::Dense(4), rows()], &[4, 4], &[1, 2, 3], "other lengths");
        fails(
            &[0, 1],
            &[],
            vec![Level::Dense(3), sparse(&[0, 2, 1, 3], &[0, 3, 2])],
            &[3, 4],
            &[1; 9],
            "other lengths",
        );
        fails(&[0, 0], &[], three(), &[3, 4], &[1; 3], "no order");
        fails(&[0, 7], &[], three(), &[3, 4], &[1; 3], "no order");
        fails(&[0], &[], vec![Level::Dense(3)], &[3, 4], &[1; 3], "no order");
        fails(
            &[1, 0, 2],
            &[5],
            vec![Level::Dense(4), Level::Dense(3), Level::Dense(1)],
            &[3, 4],
            &[1; 12],
            "no dimension",
        );
        fails(
            &[2, 0, 1],
            &[1],
            vec![Level::Dense(1), Level::Dense(3), rows()],
            &[3, 4],
            &[1; 12],
            "no order",
        );
        fails(&[0, 1], &[], vec![Level::Dense(usize::MAX), Level::Dense(0)], &[3, 4], &[], "more places");
        fails(
            &[0, 1],
            &[],
            vec![Level::Dense(1 << 20), Level::Dense(usize::MAX)],
            &[1 << 20, 4],
            &[],
            "fewer values",
        );
        fails(&[0, 1], &[], three(), &[1 << 20, 1 << 20], &[1; 3], "too large");
        let order: Vec<usize> = (0..100_000).collect();
        let levels = order.iter().map(|_| Level::Dense(1)).collect();
        fails(&order, &[], levels, &vec![1; 100_000], &[1], "no order");
    }
}
