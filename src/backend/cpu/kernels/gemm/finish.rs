//! How the sums of 8-bit products become outputs, tile by tile.

use super::lanes::{Lanes, SUMMED};
use super::micro::{Block, Family, MAX_ROWS};
use super::requant::{Form, Requant};
use super::size::Panel;

/// Products of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Quant;

impl Family for Quant {
    type Input = u8;
    type Weight = i8;
    type Output = u8;
    type Bias = i32;
    /// How sums become bytes.
    type Scaling = Requant;
    /// The same, and the column of the first panel.
    type Finish<'a> = (&'a Requant, usize);

    fn finish(requant: &Self::Scaling, column: usize) -> Self::Finish<'_> {
        (requant, column)
    }
}

/// What sums of a block become outputs with, beside the multipliers.
pub struct Epilogue<V: Lanes> {
    /// By row: what is to be subtracted from each sum, its inputs' sum as often as the weights' zero point says.
    pub terms: [i32; MAX_ROWS],
    target: V::Target,
    /// Whether inputs and weights are signed, and nothing is to be subtracted.
    is_signed: bool,
}

impl<V: Lanes> Epilogue<V> {
    /// # Safety
    /// The machine must have the instruction set of `V`, and the block be as `Micro::run` demands.
    #[inline(always)]
    pub unsafe fn of<const SIGNED: bool>(block: &Block<Quant>) -> Self {
        let (requant, mut terms) = (block.finish.0, [0; MAX_ROWS]);
        // SAFETY: by contract.
        let target = unsafe { V::target(requant.target) };
        if requant.row_factor == 0 {
            return Epilogue { terms, target, is_signed: SIGNED };
        }
        let add = |term: &mut i32, sum: i32| *term = term.wrapping_add(sum.wrapping_mul(requant.row_factor));
        for inputs in block.inputs.chunks_exact(block.rows) {
            let (several, others) = inputs.as_chunks::<SUMMED>();
            let (terms_of_several, terms_of_others) = terms.split_at_mut(several.len() * SUMMED);
            for (terms, &rows) in terms_of_several.chunks_exact_mut(SUMMED).zip(several) {
                // SAFETY: by contract there are as many inputs.
                let sums = unsafe { V::sums::<SIGNED>(rows, block.depth) };
                terms.iter_mut().zip(sums).for_each(|(term, sum)| add(term, sum));
            }
            for (term, &row) in terms_of_others.iter_mut().zip(others) {
                // SAFETY: as above.
                add(term, unsafe { V::sum::<SIGNED>(row, block.depth) });
            }
        }
        Epilogue { terms, target, is_signed: false }
    }
}

/// How a panel's sums become outputs. All of it is at hand, as what lies in memory might change with each output.
#[derive(Clone, Copy)]
pub struct Finish<V: Lanes> {
    constants: V::Constants,
    target: V::Target,
    /// The panel's first output of the first row, and how many elements there are from one row to the next.
    outputs: *mut u8,
    stride: usize,
    /// As many as are left, from the panel's first on.
    columns: usize,
    pub way: Way,
}

/// How sums become outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Rows have all columns, are scaled as most are, to what is within 16 bits, and become the bytes that most do, the
    /// least of which is 0.
    Positive,
    /// The same but for that.
    Plain,
    /// The same but for the bytes and the 16 bits, and all that is below the zero point becomes one byte.
    OneSided,
    /// The same but for that byte, too. Nothing is chosen for each pair of rows here either.
    Usual,
    /// As it comes.
    Any,
}

impl<V: Lanes> Finish<V> {
    /// Which ways there are is known when this is compiled.
    const IS_NARROW: bool = matches!(V::FORM, Form::Narrow);

    /// # Safety
    /// The machine must have the instruction set of `V`, the block be as `Micro::run` demands, and have the panel.
    #[inline(always)]
    pub unsafe fn of(block: &Block<Quant>, epilogue: &Epilogue<V>, panel: usize) -> Self {
        let ((requant, first), column) = (block.finish, panel * 2 * V::LANES);
        let vector = (first + column) / V::LANES;
        let columns = block.columns - column;
        // A half is done with the rows of two halves at a time.
        let second = if Self::is_half(columns) { vector } else { vector + 1 };
        // SAFETY: by contract.
        let constants = unsafe { V::constants(&[requant.scales(vector), requant.scales(second)]) };
        let is_usual = V::is_usual(&constants) && columns >= 2 * V::LANES;
        let is_plain = is_usual && V::is_plain(&epilogue.target) && epilogue.is_signed;
        let weights = Panel {
            weights: block.panels.wrapping_add(panel * block.panel),
            len: block.panel,
            group: block.group,
            columns: 2 * V::LANES,
            bias: block.bias.wrapping_add(column),
        };
        // SAFETY: by contract the block has the panel, whose weights are signed, with their zero point in the bias.
        let way = match is_plain && unsafe { requant.is_short(first + column, &weights) } {
            true if V::is_positive(&epilogue.target) => Way::Positive,
            true => Way::Plain,
            false if is_usual && V::is_one_sided(&epilogue.target) => Way::OneSided,
            false if is_usual => Way::Usual,
            false => Way::Any,
        };
        Finish {
            way,
            constants,
            target: epilogue.target,
            outputs: block.outputs.wrapping_add(column),
            stride: block.stride,
            columns,
        }
    }

    /// Whether a panel's first vector has all columns that are left, and is worth being done alone: where vectors are short,
    /// there is little to save.
    #[inline(always)]
    pub fn is_half(columns: usize) -> bool {
        V::LANES > 4 && columns <= V::LANES
    }

    /// Where the outputs of a row go.
    #[inline(always)]
    pub fn output(&self, row: usize) -> *mut u8 {
        self.outputs.wrapping_add(row * self.stride)
    }

    /// Turns what `M` rows from `row` on, at most twelve, have of panel `p` into outputs.
    ///
    /// # Safety
    /// As for [`Self::of`], whose block must have the rows.
    #[inline(always)]
    pub unsafe fn tile<const M: usize, const P: usize>(
        &self,
        sums: &[[[V::I; 2]; P]; M],
        p: usize,
        row: usize,
    ) {
        let to = self.output(row);
        // SAFETY: by contract.
        unsafe {
            match self.way {
                Way::Positive if Self::IS_NARROW => {
                    self.loaded().usual_tile::<M, P, true, true>(sums, p, to);
                }
                Way::Plain if Self::IS_NARROW => {
                    self.loaded().usual_tile::<M, P, true, false>(sums, p, to);
                }
                Way::OneSided if !Self::IS_NARROW => {
                    self.usual_tile::<M, P, false, true>(sums, p, to);
                }
                Way::Positive | Way::Plain | Way::OneSided | Way::Usual if Self::IS_NARROW => {
                    self.loaded().usual_tile::<M, P, false, false>(sums, p, to);
                }
                Way::Positive | Way::Plain | Way::OneSided | Way::Usual => {
                    self.usual_tile::<M, P, false, false>(sums, p, to);
                }
                Way::Any => {
                    // Written out, as sums that are indexed by a variable would be kept in memory all along.
                    macro_rules! pairs {
                        ($($m:literal)*) => {
                            $(if M > $m {
                                let (m, other) = ($m.min(M - 1), ($m + 1).min(M - 1));
                                self.rows([sums[m][p], sums[other][p]], [row + m, row + other]);
                            })*
                        };
                    }
                    pairs!(0 2 4 6 8 10);
                }
            }
        }
    }

    /// The same with what it scales by in registers, from here on.
    ///
    /// # Safety
    /// As for [`Self::of`].
    #[inline(always)]
    pub unsafe fn loaded(&self) -> Self {
        // SAFETY: by contract.
        Finish { constants: unsafe { V::loaded(&self.constants) }, ..*self }
    }

    /// [`Self::tile`] of any way but [`Way::Any`], whose first row's outputs go `to`. Gives where the next row's go.
    ///
    /// # Safety
    /// As for [`Self::tile`].
    #[inline(always)]
    pub unsafe fn usual_tile<const M: usize, const P: usize, const PLAIN: bool, const POSITIVE: bool>(
        &self,
        sums: &[[[V::I; 2]; P]; M],
        p: usize,
        mut to: *mut u8,
    ) -> *mut u8 {
        // Written out, for the same reason.
        macro_rules! pairs {
            ($($m:literal)*) => {
                $(if M > $m + 1 {
                    // SAFETY: by contract.
                    to = unsafe { self.usual_rows::<PLAIN, POSITIVE>([sums[$m.min(M - 1)][p], sums[($m + 1).min(M - 1)][p]], to) };
                })*
            };
        }
        pairs!(0 2 4 6 8 10);
        if M % 2 == 1 {
            // SAFETY: by contract.
            unsafe { V::store_rows(self.usual_pair::<PLAIN, POSITIVE>([sums[M - 1][p]; 2]), to, 0) };
            to = to.wrapping_add(self.stride);
        }
        to
    }

    /// Turns the sums of two rows into outputs, from `to` on, as [`Self::way`] says. Gives where the next row's go.
    ///
    /// # Safety
    /// As for [`Self::of`], whose block must have the rows.
    #[inline(always)]
    pub unsafe fn usual_rows<const PLAIN: bool, const POSITIVE: bool>(
        &self,
        sums: [[V::I; 2]; 2],
        to: *mut u8,
    ) -> *mut u8 {
        // SAFETY: the outputs exist by contract.
        unsafe { V::store_rows(self.usual_pair::<PLAIN, POSITIVE>(sums), to, self.stride) }
    }

    /// The outputs of two rows.
    ///
    /// # Safety
    /// The machine must have the instruction set of `V`.
    #[inline(always)]
    unsafe fn usual_pair<const PLAIN: bool, const POSITIVE: bool>(
        &self,
        [[a, b], [c, d]]: [[V::I; 2]; 2],
    ) -> V::Packed {
        // SAFETY: by contract.
        unsafe { V::usual_bytes::<PLAIN, POSITIVE>([a, b, c, d], &self.constants, self.target) }
    }

    /// Turns the sums of two rows into outputs.
    ///
    /// # Safety
    /// As for [`Self::of`], whose block must have the rows.
    #[inline(always)]
    pub unsafe fn rows(&self, sums: [[V::I; 2]; 2], rows: [usize; 2]) {
        // SAFETY: the outputs exist by contract, as many as columns are left at least.
        unsafe {
            let [[a, b], [c, d]] = sums;
            let bytes = V::bytes([a, b, c, d], &self.constants, self.target);
            let to = rows.map(|row| self.output(row));
            V::store(bytes, to, self.columns);
        }
    }

    /// [`Self::tile`] of the first vector of a panel that [has no other](Self::is_half).
    ///
    /// # Safety
    /// As for [`Self::tile`].
    #[inline(always)]
    pub unsafe fn half_tile<const M: usize, const P: usize>(&self, sums: &[[[V::I; 2]; P]; M], row: usize) {
        // Written out, as there.
        macro_rules! fours {
            ($($m:literal)*) => {
                $(if M > $m {
                    let [a, b, c, d] = [$m.min(M - 1), ($m + 1).min(M - 1), ($m + 2).min(M - 1), ($m + 3).min(M - 1)];
                    let four = [sums[a][0][0], sums[b][0][0], sums[c][0][0], sums[d][0][0]];
                    let to = [self.output(row + a), self.output(row + b), self.output(row + c), self.output(row + d)];
                    // SAFETY: the outputs exist by contract, as many as columns are left at least.
                    unsafe { V::store_halves(V::bytes(four, &self.constants, self.target), to, self.columns) };
                })*
            };
        }
        fours!(0 4 8);
    }
}
