//! Matrix products with one packed side: what convolutions, fully connected layers and products of matrices become.
//!
//! - `micro`: the seam to the instruction sets: how weights are to be packed, and the function that multiplies a block.
//! - `float`, `quant`, `dynamic`: the families of products, with their micro-kernels; `rounded`: rows of floats as bytes, for the last; `amx_float` the tiles for floats, of `halves` of them; `dot` and `lanes` hold what differs between
//!   vectors, `products_x86` loops over words, `order_neon` inner loops in a fixed order, `amx` the tiles of bytes, `i8mm`, `i8mm_pairs` and `i8mm_finish` the small matrices of bytes, `eights_neon` bytes where there is no dot product, `fours_neon32` both families on 32-bit Arm, with loops of `order_neon32`; `choice` tells which an instruction set has.
//! - `requant`: from 32-bit sums to bytes, and `quick_x86` by floats; `size`: how large they can be; `finish`: the same of a panel's sums, tile by tile.
//! - `packed`: weights packed for a micro-kernel; `layout`: where each goes.
//! - `pairs`: products of matrices both of which only a run brings; `right`: how one is packed, as it is needed.
//! - `product`: the kernel of an operation: what it multiplies, shared out among threads by `share`.
//! - `image`: where the inputs of a convolution's output pixels lie; `lines`: the same for products that want them at one
//!   distance; `scratch`: the memory that it takes; `kept`: what is left of it for the next.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_float;
#[cfg(target_arch = "x86_64")]
mod amx_row;
mod choice;
mod dot;
#[cfg(target_arch = "aarch64")]
mod dot_neon;
#[cfg(target_arch = "x86_64")]
mod dot_x86;
mod dynamic;
#[cfg(test)]
mod dynamic_tests;
#[cfg(target_arch = "aarch64")]
mod eights_neon;
mod finish;
mod float;
#[cfg(target_arch = "arm")]
mod fours_neon32;
#[cfg(target_arch = "x86_64")]
mod halves;
#[cfg(target_arch = "aarch64")]
mod i8mm;
#[cfg(target_arch = "aarch64")]
mod i8mm_finish;
#[cfg(target_arch = "aarch64")]
mod i8mm_pairs;
mod image;
mod kept;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_avx2;
#[cfg(target_arch = "x86_64")]
mod lanes_avx512;
#[cfg(target_arch = "aarch64")]
mod lanes_neon;
#[cfg(target_arch = "arm")]
mod lanes_neon32;
mod layout;
mod lines;
mod micro;
#[cfg(test)]
mod once_tests;
#[cfg(target_arch = "aarch64")]
mod order_neon;
#[cfg(target_arch = "arm")]
mod order_neon32;
mod packed;
mod pairs;
mod product;
#[cfg(target_arch = "x86_64")]
mod products512_x86;
#[cfg(target_arch = "x86_64")]
mod products_x86;
mod quant;
#[cfg(all(test, target_arch = "x86_64"))]
mod quick_tests;
#[cfg(target_arch = "x86_64")]
mod quick_x86;
mod requant;
mod right;
mod rounded;
mod scratch;
mod share;
mod size;
#[cfg(test)]
mod tests;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod words_x86;

pub(super) use choice::{joins, padded, prefers_signed, simple_float};
pub(super) use dynamic::{Column, Dynamic};
pub(super) use float::Float;
pub(super) use image::{copies, is_matrix, shape as image_shape, Image};
pub(super) use lanes::Lanes;
pub(super) use micro::{Family, Micro, Shape, MAX_ROWS};
#[cfg(target_arch = "aarch64")]
pub(super) use order_neon::{load, load_two, multiply_floats};
pub(super) use packed::{Constants, Packed, Zeros};
pub(super) use pairs::Pairs;
pub(super) use product::{Outputs, Product, Rows};
#[cfg(target_arch = "x86_64")]
pub(super) use products512_x86::multiply_words_512;
#[cfg(target_arch = "x86_64")]
pub(super) use products_x86::multiply_words;
pub(super) use quant::Quant;
#[cfg(target_arch = "x86_64")]
pub(super) use quick_x86::{lanes_256, lanes_512, Bounds};
#[cfg(target_arch = "x86_64")]
pub(super) use requant::Form;
pub(super) use requant::{Requant, Requantisation, Scales};
pub(super) use scratch::{Few, Room, WORD};
pub(super) use share::{even_part, Cost, Grid, EACH, PICOSECONDS};
