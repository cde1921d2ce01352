//! The operators that can be mapped, and how.

use super::call::{Call, Mapped};
use super::{
    convolution, elementwise, image, matmul, movement, normalisation, recurrent, reduction, selection,
};
use crate::ops::OperationType::*;
use std::ops::RangeInclusive;

/// How one operator is mapped.
pub struct Mapping {
    name: &'static str,
    /// How many inputs and outputs it may have.
    pub inputs: RangeInclusive<usize>,
    pub outputs: RangeInclusive<usize>,
    pub map: fn(&mut Call) -> Mapped,
}

/// The mapping of the operator of this name.
pub fn find(name: &str) -> Option<&'static Mapping> {
    MAPPINGS.iter().find(|mapping| mapping.name == name)
}

/// Operators that take any number take no more than this.
const MANY: usize = 1024;

const fn row(
    name: &'static str,
    inputs: RangeInclusive<usize>,
    outputs: RangeInclusive<usize>,
    map: fn(&mut Call) -> Mapped,
) -> Mapping {
    Mapping { name, inputs, outputs, map }
}

#[rustfmt::skip] // a table
static MAPPINGS: &[Mapping] = &[
    row("ADD", 2..=2, 1..=1, |c| elementwise::arithmetic(c, ADD)),
    row("SUB", 2..=2, 1..=1, |c| elementwise::arithmetic(c, SUB)),
    row("MUL", 2..=2, 1..=1, |c| elementwise::arithmetic(c, MUL)),
    row("DIV", 2..=2, 1..=1, |c| elementwise::arithmetic(c, DIV)),
    row("FLOOR_DIV", 2..=2, 1..=1, elementwise::floor_div),
    row("MAXIMUM", 2..=2, 1..=1, |c| elementwise::binary(c, MAXIMUM)),
    row("MINIMUM", 2..=2, 1..=1, |c| elementwise::binary(c, MINIMUM)),
    row("POW", 2..=2, 1..=1, |c| elementwise::float_binary(c, POW)),
    row("SQUARED_DIFFERENCE", 2..=2, 1..=1, elementwise::squared_difference),
    row("SQUARE", 1..=1, 1..=1, elementwise::square),
    row("EQUAL", 2..=2, 1..=1, |c| elementwise::binary(c, EQUAL)),
    row("NOT_EQUAL", 2..=2, 1..=1, |c| elementwise::binary(c, NOT_EQUAL)),
    row("GREATER", 2..=2, 1..=1, |c| elementwise::binary(c, GREATER)),
    row("GREATER_EQUAL", 2..=2, 1..=1, |c| elementwise::binary(c, GREATER_EQUAL)),
    row("LESS", 2..=2, 1..=1, |c| elementwise::binary(c, LESS)),
    row("LESS_EQUAL", 2..=2, 1..=1, |c| elementwise::binary(c, LESS_EQUAL)),
    row("LOGICAL_AND", 2..=2, 1..=1, |c| elementwise::binary(c, LOGICAL_AND)),
    row("LOGICAL_OR", 2..=2, 1..=1, |c| elementwise::binary(c, LOGICAL_OR)),
    row("LOGICAL_NOT", 1..=1, 1..=1, |c| elementwise::unary(c, LOGICAL_NOT)),
    row("ABS", 1..=1, 1..=1, |c| elementwise::float_unary(c, ABS)),
    row("EXP", 1..=1, 1..=1, |c| elementwise::float_unary(c, EXP)),
    row("FLOOR", 1..=1, 1..=1, |c| elementwise::float_unary(c, FLOOR)),
    row("LOG", 1..=1, 1..=1, |c| elementwise::float_unary(c, LOG)),
    row("NEG", 1..=1, 1..=1, |c| elementwise::float_unary(c, NEG)),
    row("SIN", 1..=1, 1..=1, |c| elementwise::float_unary(c, SIN)),
    row("SQRT", 1..=1, 1..=1, |c| elementwise::float_unary(c, SQRT)),
    row("RSQRT", 1..=1, 1..=1, |c| elementwise::unary(c, RSQRT)),
    row("HARD_SWISH", 1..=1, 1..=1, |c| elementwise::unary(c, HARD_SWISH)),
    row("LOGISTIC", 1..=1, 1..=1, |c| elementwise::unary(c, LOGISTIC)),
    row("TANH", 1..=1, 1..=1, |c| elementwise::unary(c, TANH)),
    row("RELU", 1..=1, 1..=1, |c| elementwise::relu(c, RELU)),
    row("RELU_N1_TO_1", 1..=1, 1..=1, |c| elementwise::relu(c, RELU1)),
    row("RELU6", 1..=1, 1..=1, |c| elementwise::relu(c, RELU6)),
    row("ELU", 1..=1, 1..=1, elementwise::elu),
    row("LEAKY_RELU", 1..=1, 1..=1, elementwise::leaky_relu),
    row("PRELU", 2..=2, 1..=1, |c| elementwise::binary(c, PRELU)),
    row("QUANTIZE", 1..=1, 1..=1, elementwise::quantize),
    row("DEQUANTIZE", 1..=1, 1..=1, elementwise::dequantize),
    row("CONV_2D", 2..=3, 1..=1, convolution::conv_2d),
    row("DEPTHWISE_CONV_2D", 2..=3, 1..=1, convolution::depthwise_conv_2d),
    row("TRANSPOSE_CONV", 3..=4, 1..=1, convolution::transpose_conv),
    row("FULLY_CONNECTED", 2..=3, 1..=1, matmul::fully_connected),
    row("BATCH_MATMUL", 2..=2, 1..=1, matmul::batch_matmul),
    row("AVERAGE_POOL_2D", 1..=1, 1..=1, |c| image::pool(c, AVERAGE_POOL_2D)),
    row("MAX_POOL_2D", 1..=1, 1..=1, |c| image::pool(c, MAX_POOL_2D)),
    row("L2_POOL_2D", 1..=1, 1..=1, |c| image::pool(c, L2_POOL_2D)),
    row("RESIZE_BILINEAR", 2..=2, 1..=1, |c| image::resize(c, RESIZE_BILINEAR)),
    row("RESIZE_NEAREST_NEIGHBOR", 2..=2, 1..=1, |c| image::resize(c, RESIZE_NEAREST_NEIGHBOR)),
    row("SPACE_TO_DEPTH", 1..=1, 1..=1, |c| image::blocks(c, SPACE_TO_DEPTH)),
    row("DEPTH_TO_SPACE", 1..=1, 1..=1, |c| image::blocks(c, DEPTH_TO_SPACE)),
    row("SPACE_TO_BATCH_ND", 3..=3, 1..=1, image::space_to_batch),
    row("BATCH_TO_SPACE_ND", 3..=3, 1..=1, image::batch_to_space),
    row("SOFTMAX", 1..=1, 1..=1, normalisation::softmax),
    row("LOG_SOFTMAX", 1..=1, 1..=1, normalisation::log_softmax),
    row("L2_NORMALIZATION", 1..=1, 1..=1, normalisation::l2_normalization),
    row("LOCAL_RESPONSE_NORMALIZATION", 1..=1, 1..=1, normalisation::local_response),
    row("MEAN", 2..=2, 1..=1, reduction::mean),
    row("REDUCE_MAX", 2..=2, 1..=1, |c| reduction::pick(c, REDUCE_MAX)),
    row("REDUCE_MIN", 2..=2, 1..=1, |c| reduction::pick(c, REDUCE_MIN)),
    row("SUM", 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_SUM)),
    row("REDUCE_PROD", 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_PROD)),
    row("REDUCE_ANY", 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_ANY)),
    row("REDUCE_ALL", 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_ALL)),
    row("RESHAPE", 1..=2, 1..=1, movement::reshape),
    row("SQUEEZE", 1..=1, 1..=1, movement::reshape),
    row("EXPAND_DIMS", 2..=2, 1..=1, movement::reshape),
    row("TRANSPOSE", 2..=2, 1..=1, |c| movement::steered(c, TRANSPOSE)),
    row("PAD", 2..=2, 1..=1, |c| movement::steered(c, PAD)),
    row("PADV2", 3..=3, 1..=1, movement::pad_v2),
    row("MIRROR_PAD", 2..=2, 1..=1, movement::mirror_pad),
    row("TILE", 2..=2, 1..=1, |c| movement::steered(c, TILE)),
    row("REVERSE_V2", 2..=2, 1..=1, |c| movement::steered(c, REVERSE)),
    row("CONCATENATION", 1..=MANY, 1..=1, movement::concatenation),
    row("SPLIT", 2..=2, 1..=MANY, movement::split),
    row("SLICE", 3..=3, 1..=1, movement::slice),
    row("STRIDED_SLICE", 4..=4, 1..=1, movement::strided_slice),
    row("PACK", 1..=MANY, 1..=1, movement::pack),
    row("UNPACK", 1..=1, 1..=MANY, movement::unpack),
    row("GATHER", 2..=2, 1..=1, selection::gather),
    row("EMBEDDING_LOOKUP", 2..=2, 1..=1, selection::embedding_lookup),
    row("ARG_MAX", 2..=2, 1..=1, |c| selection::arg(c, ARGMAX)),
    row("ARG_MIN", 2..=2, 1..=1, |c| selection::arg(c, ARGMIN)),
    row("TOPK_V2", 2..=2, 2..=2, selection::top_k),
    row("CAST", 1..=1, 1..=1, selection::cast),
    row("SELECT", 3..=3, 1..=1, selection::select),
    row("SELECT_V2", 3..=3, 1..=1, selection::select),
    row("UNIDIRECTIONAL_SEQUENCE_LSTM", 20..=24, 1..=1, recurrent::unidirectional_lstm),
];

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    #[test]
    fn every_mapping_has_the_name_of_one_operator() {
        let builtin: Vec<String> = (0..162).map(names::name).collect();
        for mapping in MAPPINGS {
            assert!(builtin.iter().any(|name| name == mapping.name), "{} is not an operator", mapping.name);
            let same = MAPPINGS.iter().filter(|other| other.name == mapping.name).count();
            assert_eq!(same, 1, "{} is mapped twice", mapping.name);
        }
    }
}
