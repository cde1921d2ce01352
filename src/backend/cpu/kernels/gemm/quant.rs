//! 8-bit products: exact integers, the same on every machine.
//!
//! With za and zw the zero points, the sum of (a - za)(w - zw) is sum(a w) - za sum(w) - zw sum(a) + k za zw: the second and
//! last terms are folded into the bias, the third is a term of its own for each row, left out where zw is 0. Inputs are
//! read as they lie, signed or not; weights are packed as the other where the instructions want it so, which moves zw.

use super::dot::Dot;
#[cfg(target_arch = "aarch64")]
use super::dot_neon::Dotprod;
#[cfg(target_arch = "x86_64")]
use super::dot_x86::{AvxVnni, Vnni};
use super::lanes::{Lanes, SUMMED};
use super::micro::{for_each_height, with_height, Block, Family, Micro, Tiles, MAX_ROWS};
use super::requant::Requant;
#[cfg(target_arch = "aarch64")]
use crate::backend::cpu::kernels::neon::Neon;
use crate::backend::cpu::kernels::simd;

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

/// The micro-kernels of `D` for unsigned and for signed inputs.
const fn of<D: Dot>(
    name: &'static str,
    rows: usize,
    run: [unsafe fn(&Block<Quant>); 2],
) -> [Micro<Quant>; 2] {
    let (columns, group) = (2 * D::V::LANES, D::GROUP);
    let padded = |depth: usize| depth.next_multiple_of(D::GROUP);
    let flip = [if D::FLIP[0] { 0x80 } else { 0 }, if D::FLIP[1] { 0x80 } else { 0 }];
    [
        Micro {
            name,
            rows,
            columns,
            group,
            padded,
            even: false,
            flip: flip[0],
            form: D::V::FORM,
            run: run[0],
        },
        Micro {
            name,
            rows,
            columns,
            group,
            padded,
            even: false,
            flip: flip[1],
            form: D::V::FORM,
            run: run[1],
        },
    ]
}

/// Defines the micro-kernels `$name`, called `$called`, of `$dot`, with tiles of these heights, of at most `$most`, compiled for `$features` or
/// for what every machine of the target has.
macro_rules! micro_kernels {
    ($name:ident = $called:literal, $dot:ty, [$($height:literal)*], $most:literal $(, $features:literal)?) => {
        pub static $name: [Micro<Quant>; 2] = {
            $(#[target_feature(enable = $features)])?
            unsafe fn unsigned(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, false>(block, $most, |epilogue, tiles, panel| {
                        with_height!(tiles.height, [$($height)*], M => tile::<$dot, false, M, 1>(block, epilogue, tiles, panel))
                    })
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn signed(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, true>(block, $most, |epilogue, tiles, panel| {
                        with_height!(tiles.height, [$($height)*], M => tile::<$dot, true, M, 1>(block, epilogue, tiles, panel))
                    })
                }
            }
            of::<$dot>($called, $most, [unsigned, signed])
        };
    };
}

micro_kernels!(BASE = "base 8-bit", simd::Base, [1 2 3 4], 4);
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX2 = "avx2 8-bit", simd::Avx2, [1 2 3 4], 4, "avx2,fma");
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX_VNNI = "avx-vnni 8-bit", AvxVnni, [1 2 3 4 5 6], 6, "avx2,fma,avxvnni");
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX512 = "avx512 8-bit", simd::Avx512, [1 2 3 4 5 6 7 8], 8, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
#[cfg(target_arch = "x86_64")]
micro_kernels!(
    VNNI = "vnni 8-bit",
    Vnni,
    [1 2 3 4 5 6 7 8 9 10 11 12],
    12,
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
);

#[cfg(target_arch = "aarch64")]
micro_kernels!(NEON = "neon 8-bit", Neon, [1 2 3 4 5 6 7 8], 8);
#[cfg(target_arch = "aarch64")]
micro_kernels!(DOTPROD = "dotprod 8-bit", Dotprod, [1 2 3 4 5 6 7 8], 8, "dotprod");

/// What sums of a block become outputs with, beside the multipliers.
pub struct Epilogue<V: Lanes> {
    /// By row: what is to be subtracted from each sum, its inputs' sum as often as the weights' zero point says.
    pub terms: [i32; MAX_ROWS],
    target: V::Target,
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
            return Epilogue { terms, target };
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
        Epilogue { terms, target }
    }
}

/// Goes through a block as the float product does.
///
/// # Safety
/// The machine must have the instruction set of `D`, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<D: Dot, const SIGNED: bool>(
    block: &Block<Quant>,
    most: usize,
    one: impl Fn(&Epilogue<D::V>, Tiles, usize),
) {
    // SAFETY: the same contract.
    let epilogue = unsafe { Epilogue::<D::V>::of::<SIGNED>(block) };
    let panels = block.columns.div_ceil(2 * D::V::LANES);
    let mut panel = 0;
    while panel < panels {
        let side = match (block.rows, panels - panel) {
            (1, 4..) => 4,
            (2, 2..) => 2,
            _ => 1,
        };
        match side {
            // SAFETY: as many panels are left, and the block has as many rows.
            4 => unsafe {
                tile::<D, SIGNED, 1, 4>(block, &epilogue, Tiles { first: 0, height: 1, count: 1 }, panel)
            },
            // SAFETY: as above.
            2 => unsafe {
                tile::<D, SIGNED, 2, 2>(block, &epilogue, Tiles { first: 0, height: 2, count: 1 }, panel)
            },
            _ => for_each_height(block.rows, most, |tiles| one(&epilogue, tiles, panel)),
        }
        panel += side;
    }
}

/// Computes tiles of `M` rows of `P` panels.
///
/// # Safety
/// The machine must have the instruction set of `D`, the block be as `Micro::run` demands, and have the tiles' rows, `M` in
/// each, and `P` panels from `panel` on.
#[inline(always)]
unsafe fn tile<D: Dot, const SIGNED: bool, const M: usize, const P: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<D::V>,
    tiles: Tiles,
    panel: usize,
) {
    let (lanes, width) = (D::V::LANES, 2 * D::V::LANES);
    let (group, several) = (D::GROUP, D::GROUP * D::STEP);
    let segments = block.segments();
    // SAFETY: the panels exist by contract.
    let mut finishes = [unsafe { Finish::of(block, epilogue, panel) }; P];
    for (p, finish) in finishes.iter_mut().enumerate().skip(1) {
        // SAFETY: as above.
        *finish = unsafe { Finish::of(block, epilogue, panel + p) };
    }
    for row in (tiles.first..).step_by(M).take(tiles.count) {
        // SAFETY: panels, bias and rows of inputs exist by contract.
        unsafe {
            let mut sums = [[[D::V::splat(0); 2]; P]; M];
            for p in 0..P {
                let bias = block.bias.add((panel + p) * width);
                let bias = [D::V::load(bias), D::V::load(bias.add(lanes))];
                for (m, sums) in sums.iter_mut().enumerate() {
                    sums[p] = match block.finish.0.row_factor {
                        0 => bias,
                        _ => {
                            let term = D::V::splat(*epilogue.terms.get_unchecked(row + m));
                            [D::V::sub(bias[0], term), D::V::sub(bias[1], term)]
                        }
                    };
                }
            }
            let mut weights = block.panels.add(panel * block.panel);
            for segment in 0..segments {
                let inputs = block.pointers::<M>(segment, row);
                let mut done = 0;
                if P == 1 {
                    done = D::products::<SIGNED, M, P>(&mut sums, inputs, weights, block.padded);
                    weights = weights.add(done * width);
                }
                let whole = if D::STEP > 1 { block.padded - block.padded % several } else { done };
                for i in (done..whole).step_by(several) {
                    let mut a = [D::several::<SIGNED>(inputs[0].add(i)); M];
                    // The first once more, as this loop would not be unrolled if it began with the second.
                    for (a, inputs) in a.iter_mut().zip(inputs) {
                        *a = D::several::<SIGNED>(inputs.add(i));
                    }
                    // Written out, as an instruction names the group that it takes.
                    macro_rules! products {
                        ($($at:literal)*) => {
                            $(for p in 0..P {
                                let b = D::weights(weights.add(p * block.panel + $at * width * group));
                                for (m, sums) in sums.iter_mut().enumerate() {
                                    sums[p] = [
                                        D::dot::<SIGNED, $at>(sums[p][0], a[m], b[0]),
                                        D::dot::<SIGNED, $at>(sums[p][1], a[m], b[1]),
                                    ];
                                }
                            })*
                        };
                    }
                    products!(0 1 2 3);
                    if D::STEP > 4 {
                        products!(4 5 6 7);
                    }
                    weights = weights.add(width * several);
                }
                for i in (whole..block.padded).step_by(group) {
                    for p in 0..P {
                        let b = D::weights(weights.add(p * block.panel));
                        for (m, sums) in sums.iter_mut().enumerate() {
                            let a = D::inputs::<SIGNED>(inputs[m].add(i));
                            sums[p] = [
                                D::dot::<SIGNED, 0>(sums[p][0], a, b[0]),
                                D::dot::<SIGNED, 0>(sums[p][1], a, b[1]),
                            ];
                        }
                    }
                    weights = weights.add(width * group);
                }
            }
            // Written out, as sums that are indexed by a variable would be kept in memory all along.
            macro_rules! finish_panels {
                ($($p:literal)*) => {
                    $(if P > $p {
                        let p = $p.min(P - 1);
                        finishes[p].tile(&sums, p, row);
                    })*
                };
            }
            finish_panels!(0 1 2 3);
        }
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
    /// Whether rows have all columns and are scaled as most are: then nothing is chosen for each pair of them.
    pub is_usual: bool,
}

impl<V: Lanes> Finish<V> {
    /// # Safety
    /// The machine must have the instruction set of `V`, the block be as `Micro::run` demands, and have the panel.
    #[inline(always)]
    pub unsafe fn of(block: &Block<Quant>, epilogue: &Epilogue<V>, panel: usize) -> Self {
        let ((requant, first), column) = (block.finish, panel * 2 * V::LANES);
        let vector = (first + column) / V::LANES;
        // SAFETY: by contract.
        let constants = unsafe { V::constants(&[requant.scales(vector), requant.scales(vector + 1)]) };
        let columns = block.columns - column;
        Finish {
            is_usual: V::is_usual(&constants) && columns >= 2 * V::LANES,
            constants,
            target: epilogue.target,
            outputs: block.outputs.wrapping_add(column),
            stride: block.stride,
            columns,
        }
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
    unsafe fn tile<const M: usize, const P: usize>(&self, sums: &[[[V::I; 2]; P]; M], p: usize, row: usize) {
        // Written out, as sums that are indexed by a variable would be kept in memory all along.
        macro_rules! pairs {
            ($($m:literal)*) => {
                // SAFETY: by contract.
                unsafe {
                    if self.is_usual {
                        let mut to = self.output(row);
                        $(if M > $m + 1 {
                            to = self.usual_rows([sums[$m.min(M - 1)][p], sums[($m + 1).min(M - 1)][p]], to);
                        })*
                        if M % 2 == 1 {
                            let [a, b] = sums[M - 1][p];
                            let packed = V::pack(V::requantise_usual([a, b, a, b], &self.constants), self.target);
                            V::store(packed, [to, to], 2 * V::LANES);
                        }
                    } else {
                        $(if M > $m {
                            let (m, other) = ($m.min(M - 1), ($m + 1).min(M - 1));
                            self.rows([sums[m][p], sums[other][p]], [row + m, row + other]);
                        })*
                    }
                }
            };
        }
        pairs!(0 2 4 6 8 10);
    }

    /// Turns the sums of two rows into outputs, from `to` on, where it [is usual](Self::is_usual). Gives where the next row's
    /// go.
    ///
    /// # Safety
    /// As for [`Self::of`], whose block must have the rows.
    #[inline(always)]
    pub unsafe fn usual_rows(&self, [[a, b], [c, d]]: [[V::I; 2]; 2], to: *mut u8) -> *mut u8 {
        let below = to.wrapping_add(self.stride);
        // SAFETY: the outputs exist by contract.
        unsafe {
            let scaled = V::requantise_usual([a, b, c, d], &self.constants);
            V::store(V::pack(scaled, self.target), [to, below], 2 * V::LANES);
        }
        below.wrapping_add(self.stride)
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
            let scaled = V::requantise_rows([a, b, c, d], &self.constants);
            let to = rows.map(|row| self.output(row));
            V::store(V::pack(scaled, self.target), to, self.columns);
        }
    }
}
