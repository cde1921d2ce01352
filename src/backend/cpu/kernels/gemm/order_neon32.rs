//! Inner loops of products on 32-bit Arm with NEON.
//!
//! The compiler's intrinsics for it are not stable, nor does it know NEON's registers unless all of the driver is compiled
//! for them. So these are whole functions by C's calling convention, with all that they compute in memory.
//!
//! NEON takes denormal floats for 0 here, as operands and as results, and makes one NaN of all. A product is rounded before
//! it is added. Sums are formed in the order of depth.

use std::arch::naked_asm;

/// The sums of four lines: rows of one panel, or panels of one row.
pub type Lines<T> = [[[T; 4]; 2]; 4];

/// Adds products to two vectors of sums: what two registers of weights and one lane give.
macro_rules! add {
    ($add:literal, $low:literal, $high:literal, $b:literal, $c:literal, $x:literal, $lane:literal) => {
        concat!(
            $add, " ", $low, ", ", $b, ", ", $x, $lane, "\n", //
            $add, " ", $high, ", ", $c, ", ", $x, $lane, "\n",
        )
    };
}

/// The same for four rows, each of which has an input in this lane of its register.
macro_rules! add_rows {
    ($add:literal, $b:literal, $c:literal, [$p:literal $q:literal $r:literal $s:literal], $lane:literal) => {
        concat!(
            add!($add, "q8", "q9", $b, $c, $p, $lane),
            add!($add, "q10", "q11", $b, $c, $q, $lane),
            add!($add, "q12", "q13", $b, $c, $r, $lane),
            add!($add, "q14", "q15", $b, $c, $s, $lane),
        )
    };
}

/// Adds the products of a float of one row with the next weights of four panels.
macro_rules! floats_of_panels {
    ($x:literal, $lane:literal) => {
        concat!(
            "vld1.8 {{d8-d11}}, [r2]!\n",
            "vld1.8 {{d12-d15}}, [r4]!\n",
            add!("vmla.f32", "q8", "q9", "q4", "q5", $x, $lane),
            "vld1.8 {{d8-d11}}, [r5]!\n",
            add!("vmla.f32", "q10", "q11", "q6", "q7", $x, $lane),
            "vld1.8 {{d12-d15}}, [r12]!\n",
            add!("vmla.f32", "q12", "q13", "q4", "q5", $x, $lane),
            add!("vmla.f32", "q14", "q15", "q6", "q7", $x, $lane),
        )
    };
}

/// Adds the products of four bytes of each row, widened, with the next weights of a panel.
macro_rules! bytes_of_rows {
    ($x:tt) => {
        concat!(
            "vld1.8 {{d8-d11}}, [r2]!\n",
            "vmovl.s8 q6, d8\n",
            "vmovl.s8 q7, d9\n",
            add_rows!("vmlal.s16", "d12", "d13", $x, "[0]"),
            "vmovl.s8 q6, d10\n",
            add_rows!("vmlal.s16", "d14", "d15", $x, "[1]"),
            "vmovl.s8 q7, d11\n",
            add_rows!("vmlal.s16", "d12", "d13", $x, "[2]"),
            add_rows!("vmlal.s16", "d14", "d15", $x, "[3]"),
        )
    };
}

/// Adds the products of four bytes of one row, widened, with the next weights of one of four panels.
macro_rules! bytes_of_panel {
    ($from:literal, $low:literal, $high:literal, $x:literal) => {
        concat!(
            "vld1.8 {{d8-d11}}, [",
            $from,
            "]!\n",
            "vmovl.s8 q6, d8\n",
            "vmovl.s8 q7, d9\n",
            add!("vmlal.s16", $low, $high, "d12", "d13", $x, "[0]"),
            "vmovl.s8 q6, d10\n",
            add!("vmlal.s16", $low, $high, "d14", "d15", $x, "[1]"),
            "vmovl.s8 q7, d11\n",
            add!("vmlal.s16", $low, $high, "d12", "d13", $x, "[2]"),
            add!("vmlal.s16", $low, $high, "d14", "d15", $x, "[3]"),
        )
    };
}

/// The same of all four.
macro_rules! bytes_of_panels {
    ($x:literal) => {
        concat!(
            bytes_of_panel!("r2", "q8", "q9", $x),
            bytes_of_panel!("r4", "q10", "q11", $x),
            bytes_of_panel!("r5", "q12", "q13", $x),
            bytes_of_panel!("r12", "q14", "q15", $x),
        )
    };
}

/// A function for sums, from r0, in q8 to q15: `pointers`, r1 or r2, become r4, r5 and r12 besides. Each of its two loops
/// goes on while there are so many of r3 left.
macro_rules! products {
    ($pointers:literal, $many:literal: [$($of_many:expr),* $(,)?], $few:literal: [$($of_few:expr),* $(,)?]) => {
        naked_asm!(
            ".fpu neon",
            "push {{r4, r5}}",
            "vpush {{d8-d15}}",
            concat!("ldm ", $pointers, ", {{", $pointers, ", r4, r5, r12}}"),
            "vldm r0, {{d16-d31}}",
            concat!("subs r3, r3, #", $many),
            "blo 3f",
            "2:",
            $($of_many,)*
            concat!("subs r3, r3, #", $many),
            "bhs 2b",
            "3:",
            concat!("adds r3, r3, #", $many),
            "beq 5f",
            "4:",
            $($of_few,)*
            concat!("subs r3, r3, #", $few),
            "bne 4b",
            "5:",
            "vstm r0, {{d16-d31}}",
            "vpop {{d8-d15}}",
            "pop {{r4, r5}}",
            "bx lr",
        )
    };
}

/// Adds the products of four rows with a panel to their sums.
///
/// # Safety
/// The machine must have NEON; there must be `depth` inputs of each row, and as many weights of eight columns.
#[unsafe(naked)]
pub unsafe extern "C" fn floats_of_four_rows(
    sums: *mut Lines<f32>,
    inputs: &[*const f32; 4],
    weights: *const f32,
    depth: usize,
) {
    products!(
        "r1",
        "4": [
            "vld1.8 {{d0-d1}}, [r1]!",
            "vld1.8 {{d2-d3}}, [r4]!",
            "vld1.8 {{d4-d5}}, [r5]!",
            "vld1.8 {{d6-d7}}, [r12]!",
            "vld1.8 {{d8-d11}}, [r2]!",
            "vld1.8 {{d12-d15}}, [r2]!",
            add_rows!("vmla.f32", "q4", "q5", ["d0" "d2" "d4" "d6"], "[0]"),
            "vld1.8 {{d8-d11}}, [r2]!",
            add_rows!("vmla.f32", "q6", "q7", ["d0" "d2" "d4" "d6"], "[1]"),
            "vld1.8 {{d12-d15}}, [r2]!",
            add_rows!("vmla.f32", "q4", "q5", ["d1" "d3" "d5" "d7"], "[0]"),
            add_rows!("vmla.f32", "q6", "q7", ["d1" "d3" "d5" "d7"], "[1]"),
        ],
        "1": [
            "vld1.32 {{d0[0]}}, [r1]!",
            "vld1.32 {{d2[0]}}, [r4]!",
            "vld1.32 {{d4[0]}}, [r5]!",
            "vld1.32 {{d6[0]}}, [r12]!",
            "vld1.8 {{d8-d11}}, [r2]!",
            add_rows!("vmla.f32", "q4", "q5", ["d0" "d2" "d4" "d6"], "[0]"),
        ]
    )
}

/// Adds the products of a row with four panels to their sums.
///
/// # Safety
/// As for [`floats_of_four_rows`], of each panel.
#[unsafe(naked)]
pub unsafe extern "C" fn floats_of_four_panels(
    sums: *mut Lines<f32>,
    input: *const f32,
    weights: &[*const f32; 4],
    depth: usize,
) {
    products!(
        "r2",
        "4": [
            "vld1.8 {{d0-d1}}, [r1]!",
            floats_of_panels!("d0", "[0]"),
            floats_of_panels!("d0", "[1]"),
            floats_of_panels!("d1", "[0]"),
            floats_of_panels!("d1", "[1]"),
        ],
        "1": ["vld1.32 {{d0[0]}}, [r1]!", floats_of_panels!("d0", "[0]")]
    )
}

/// Defines [`floats_of_four_rows`] and [`floats_of_four_panels`] of bytes, which are widened so: `depth` is a multiple of four.
macro_rules! of_bytes {
    ($rows:ident, $panels:ident, $widen:literal) => {
        /// Adds the products of four rows with a panel to their sums.
        ///
        /// # Safety
        /// As for [`floats_of_four_rows`]; `depth` must be a multiple of four.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $rows(
            sums: *mut Lines<i32>,
            inputs: &[*const u8; 4],
            weights: *const i8,
            depth: usize,
        ) {
            products!(
                "r1",
                "8": [
                    "vld1.8 {{d0}}, [r1]!",
                    "vld1.8 {{d2}}, [r4]!",
                    "vld1.8 {{d4}}, [r5]!",
                    "vld1.8 {{d6}}, [r12]!",
                    concat!($widen, " q0, d0"),
                    concat!($widen, " q1, d2"),
                    concat!($widen, " q2, d4"),
                    concat!($widen, " q3, d6"),
                    bytes_of_rows!(["d0" "d2" "d4" "d6"]),
                    bytes_of_rows!(["d1" "d3" "d5" "d7"]),
                ],
                "4": [
                    "vld1.32 {{d0[0]}}, [r1]!",
                    "vld1.32 {{d2[0]}}, [r4]!",
                    "vld1.32 {{d4[0]}}, [r5]!",
                    "vld1.32 {{d6[0]}}, [r12]!",
                    concat!($widen, " q0, d0"),
                    concat!($widen, " q1, d2"),
                    concat!($widen, " q2, d4"),
                    concat!($widen, " q3, d6"),
                    bytes_of_rows!(["d0" "d2" "d4" "d6"]),
                ]
            )
        }

        /// Adds the products of a row with four panels to their sums.
        ///
        /// # Safety
        /// As for [`floats_of_four_panels`]; `depth` must be a multiple of four.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $panels(
            sums: *mut Lines<i32>,
            input: *const u8,
            weights: &[*const i8; 4],
            depth: usize,
        ) {
            products!(
                "r2",
                "8": [
                    "vld1.8 {{d0}}, [r1]!",
                    concat!($widen, " q0, d0"),
                    bytes_of_panels!("d0"),
                    bytes_of_panels!("d1"),
                ],
                "4": ["vld1.32 {{d0[0]}}, [r1]!", concat!($widen, " q0, d0"), bytes_of_panels!("d0")]
            )
        }
    };
}

of_bytes!(signed_of_four_rows, signed_of_four_panels, "vmovl.s8");
of_bytes!(unsigned_of_four_rows, unsigned_of_four_panels, "vmovl.u8");

/// Bounds sums; NaN stays NaN, and a zero below a bound of zero gets the bound's sign.
///
/// # Safety
/// The machine must have NEON.
#[unsafe(naked)]
pub unsafe extern "C" fn bound(sums: *mut Lines<f32>, bounds: &[f32; 2]) {
    naked_asm!(
        ".fpu neon",
        "vld1.32 {{d0[], d1[]}}, [r1]!",
        "vld1.32 {{d2[], d3[]}}, [r1]",
        "vldm r0, {{d16-d31}}",
        "vmax.f32 q8, q8, q0",
        "vmax.f32 q9, q9, q0",
        "vmax.f32 q10, q10, q0",
        "vmax.f32 q11, q11, q0",
        "vmax.f32 q12, q12, q0",
        "vmax.f32 q13, q13, q0",
        "vmax.f32 q14, q14, q0",
        "vmax.f32 q15, q15, q0",
        "vmin.f32 q8, q8, q1",
        "vmin.f32 q9, q9, q1",
        "vmin.f32 q10, q10, q1",
        "vmin.f32 q11, q11, q1",
        "vmin.f32 q12, q12, q1",
        "vmin.f32 q13, q13, q1",
        "vmin.f32 q14, q14, q1",
        "vmin.f32 q15, q15, q1",
        "vstm r0, {{d16-d31}}",
        "bx lr",
    )
}
