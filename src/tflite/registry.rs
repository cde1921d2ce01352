//! The operators that can be mapped, and how.

use super::call::{Call, Mapped};
use super::wide::Joined::{self, *};
use super::{
    convolution, detection, elementwise, gelu, image, known, matmul, movement, normalisation, recurrent,
    reduction, selection, slice,
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
    /// How it takes tensors of more dimensions than NNAPI does.
    pub joined: Joined,
}

/// The mapping of the operator of this name.
pub fn find(name: &str) -> Option<&'static Mapping> {
    MAPPINGS.iter().find(|mapping| mapping.name == name)
}

/// Why the operator of this name has no mapping.
pub fn why_not(name: &str) -> &'static str {
    let known = UNMAPPED.iter().find(|(names, _)| names.contains(&name));
    match known {
        Some((_, why)) => why,
        None if name.starts_with("custom Flex") => "it is one of TensorFlow's own operators",
        None if name.starts_with("STABLEHLO_") => "StableHLO's operators are not mapped",
        None => "NNAPI has nothing that does this",
    }
}

#[rustfmt::skip] // a table
static UNMAPPED: &[(&[&str], &str)] = &[
    (&["IF", "WHILE"], "it runs another graph, which is known from files alone: a delegate is told of one graph"),
    (&["CALL"], "it runs another of the file's graphs"),
    (&["CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"], "NNAPI keeps no variables between runs"),
    (&["HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"], "NNAPI keeps no tables between runs"),
    (&["CONV_3D", "CONV_3D_TRANSPOSE"], "NNAPI's convolutions have two dimensions"),
    (&["WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"],
        "how large its output is depends on its input's values"),
    (&["RFFT2D", "REAL", "IMAG", "COMPLEX_ABS"], "NNAPI has no complex numbers"),
    (&["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"], "NNAPI would draw other numbers"),
    (&["LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN", "HASHTABLE_LOOKUP", "LSH_PROJECTION"],
        "it is not mapped yet, though NNAPI has one that is alike"),
    (&["ROUND"], "NNAPI rounds down only, and halves to even would take more"),
];

/// Operators that take any number take no more than this.
pub const MANY: usize = 1024;

const fn row(
    name: &'static str,
    joined: Joined,
    inputs: RangeInclusive<usize>,
    outputs: RangeInclusive<usize>,
    map: fn(&mut Call) -> Mapped,
) -> Mapping {
    Mapping { name, inputs, outputs, map, joined }
}

#[rustfmt::skip] // a table
static MAPPINGS: &[Mapping] = &[
    row("ADD", Elementwise, 2..=2, 1..=1, |c| elementwise::arithmetic(c, ADD)),
    row("SUB", Elementwise, 2..=2, 1..=1, |c| elementwise::arithmetic(c, SUB)),
    row("MUL", Elementwise, 2..=2, 1..=1, |c| elementwise::arithmetic(c, MUL)),
    row("DIV", Elementwise, 2..=2, 1..=1, |c| elementwise::arithmetic(c, DIV)),
    row("FLOOR_DIV", Elementwise, 2..=2, 1..=1, elementwise::floor_div),
    row("MAXIMUM", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, MAXIMUM)),
    row("MINIMUM", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, MINIMUM)),
    row("POW", Elementwise, 2..=2, 1..=1, |c| elementwise::float_binary(c, POW)),
    row("SQUARED_DIFFERENCE", Elementwise, 2..=2, 1..=1, elementwise::squared_difference),
    row("SQUARE", Elementwise, 1..=1, 1..=1, elementwise::square),
    row("EQUAL", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, EQUAL)),
    row("NOT_EQUAL", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, NOT_EQUAL)),
    row("GREATER", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, GREATER)),
    row("GREATER_EQUAL", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, GREATER_EQUAL)),
    row("LESS", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, LESS)),
    row("LESS_EQUAL", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, LESS_EQUAL)),
    row("LOGICAL_AND", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, LOGICAL_AND)),
    row("LOGICAL_OR", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, LOGICAL_OR)),
    row("LOGICAL_NOT", Elementwise, 1..=1, 1..=1, |c| elementwise::unary(c, LOGICAL_NOT)),
    row("ABS", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, ABS)),
    row("EXP", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, EXP)),
    row("FLOOR", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, FLOOR)),
    row("LOG", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, LOG)),
    row("NEG", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, NEG)),
    row("SIN", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, SIN)),
    row("SQRT", Elementwise, 1..=1, 1..=1, |c| elementwise::float_unary(c, SQRT)),
    row("RSQRT", Elementwise, 1..=1, 1..=1, |c| elementwise::unary(c, RSQRT)),
    row("HARD_SWISH", Elementwise, 1..=1, 1..=1, |c| elementwise::unary(c, HARD_SWISH)),
    row("LOGISTIC", Elementwise, 1..=1, 1..=1, |c| elementwise::unary(c, LOGISTIC)),
    row("TANH", Elementwise, 1..=1, 1..=1, |c| elementwise::unary(c, TANH)),
    row("RELU", Elementwise, 1..=1, 1..=1, |c| elementwise::relu(c, RELU)),
    row("RELU_N1_TO_1", Elementwise, 1..=1, 1..=1, |c| elementwise::relu(c, RELU1)),
    row("RELU6", Elementwise, 1..=1, 1..=1, |c| elementwise::relu(c, RELU6)),
    row("RELU_0_TO_1", Elementwise, 1..=1, 1..=1, elementwise::relu_0_to_1),
    row("GELU", Elementwise, 1..=1, 1..=1, gelu::gelu),
    row("CEIL", Elementwise, 1..=1, 1..=1, elementwise::ceil),
    row("COS", Elementwise, 1..=1, 1..=1, elementwise::cos),
    row("SIGN", Elementwise, 1..=1, 1..=1, elementwise::sign),
    row("FLOOR_MOD", Elementwise, 2..=2, 1..=1, elementwise::floor_mod),
    row("ADD_N", Elementwise, 2..=MANY, 1..=1, elementwise::add_n),
    row("ELU", Elementwise, 1..=1, 1..=1, elementwise::elu),
    row("LEAKY_RELU", Elementwise, 1..=1, 1..=1, elementwise::leaky_relu),
    row("PRELU", Elementwise, 2..=2, 1..=1, |c| elementwise::binary(c, PRELU)),
    row("QUANTIZE", Elementwise, 1..=1, 1..=1, elementwise::quantize),
    row("DEQUANTIZE", Elementwise, 1..=1, 1..=1, elementwise::dequantize),
    row("CONV_2D", No, 2..=3, 1..=1, convolution::conv_2d),
    row("DEPTHWISE_CONV_2D", No, 2..=3, 1..=1, convolution::depthwise_conv_2d),
    row("TRANSPOSE_CONV", No, 3..=4, 1..=1, convolution::transpose_conv),
    row("FULLY_CONNECTED", Own, 2..=3, 1..=1, matmul::fully_connected),
    row("BATCH_MATMUL", Own, 2..=2, 1..=1, matmul::batch_matmul),
    row("AVERAGE_POOL_2D", No, 1..=1, 1..=1, |c| image::pool(c, AVERAGE_POOL_2D)),
    row("MAX_POOL_2D", No, 1..=1, 1..=1, |c| image::pool(c, MAX_POOL_2D)),
    row("L2_POOL_2D", No, 1..=1, 1..=1, |c| image::pool(c, L2_POOL_2D)),
    row("RESIZE_BILINEAR", No, 2..=2, 1..=1, |c| image::resize(c, RESIZE_BILINEAR)),
    row("RESIZE_NEAREST_NEIGHBOR", No, 2..=2, 1..=1, |c| image::resize(c, RESIZE_NEAREST_NEIGHBOR)),
    row("SPACE_TO_DEPTH", No, 1..=1, 1..=1, |c| image::blocks(c, SPACE_TO_DEPTH)),
    row("DEPTH_TO_SPACE", No, 1..=1, 1..=1, |c| image::blocks(c, DEPTH_TO_SPACE)),
    row("SPACE_TO_BATCH_ND", No, 3..=3, 1..=1, image::space_to_batch),
    row("BATCH_TO_SPACE_ND", No, 3..=3, 1..=1, image::batch_to_space),
    row("SOFTMAX", Rows, 1..=1, 1..=1, normalisation::softmax),
    row("LOG_SOFTMAX", Rows, 1..=1, 1..=1, normalisation::log_softmax),
    row("L2_NORMALIZATION", Rows, 1..=1, 1..=1, normalisation::l2_normalization),
    row("LOCAL_RESPONSE_NORMALIZATION", No, 1..=1, 1..=1, normalisation::local_response),
    row("MEAN", Own, 2..=2, 1..=1, reduction::mean),
    row("REDUCE_MAX", Own, 2..=2, 1..=1, |c| reduction::pick(c, REDUCE_MAX)),
    row("REDUCE_MIN", Own, 2..=2, 1..=1, |c| reduction::pick(c, REDUCE_MIN)),
    row("SUM", Own, 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_SUM)),
    row("REDUCE_PROD", Own, 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_PROD)),
    row("REDUCE_ANY", Own, 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_ANY)),
    row("REDUCE_ALL", Own, 2..=2, 1..=1, |c| reduction::combine(c, REDUCE_ALL)),
    row("RESHAPE", Own, 1..=2, 1..=1, movement::reshape),
    row("SQUEEZE", Own, 1..=1, 1..=1, movement::to_output),
    row("EXPAND_DIMS", Own, 2..=2, 1..=1, movement::to_output),
    row("TRANSPOSE", Own, 2..=2, 1..=1, movement::transpose),
    row("BROADCAST_TO", Own, 2..=2, 1..=1, movement::broadcast_to),
    row("FILL", Own, 2..=2, 1..=1, movement::fill),
    row("SHAPE", Own, 1..=1, 1..=1, known::shape),
    row("RANK", Own, 1..=1, 1..=1, known::rank),
    row("DENSIFY", Own, 1..=1, 1..=1, known::densify),
    row("ZEROS_LIKE", Own, 1..=1, 1..=1, known::zeros_like),
    row("PAD", No, 2..=2, 1..=1, |c| movement::steered(c, PAD)),
    row("PADV2", No, 3..=3, 1..=1, movement::pad_v2),
    row("MIRROR_PAD", No, 2..=2, 1..=1, movement::mirror_pad),
    row("TILE", Own, 2..=2, 1..=1, movement::tile),
    row("REVERSE_V2", No, 2..=2, 1..=1, movement::reverse),
    row("CONCATENATION", Own, 1..=MANY, 1..=1, movement::concatenation),
    row("SPLIT", Own, 2..=2, 1..=MANY, movement::split),
    row("SLICE", Own, 3..=3, 1..=1, slice::slice),
    row("STRIDED_SLICE", Own, 4..=4, 1..=1, slice::strided_slice),
    row("PACK", Own, 1..=MANY, 1..=1, movement::pack),
    row("SPLIT_V", Own, 3..=3, 1..=MANY, slice::split_v),
    row("UNPACK", Own, 1..=1, 1..=MANY, movement::unpack),
    row("GATHER", Own, 2..=2, 1..=1, selection::gather),
    row("GATHER_ND", Own, 2..=2, 1..=1, selection::gather_nd),
    row("ONE_HOT", Own, 4..=4, 1..=1, selection::one_hot),
    row("EMBEDDING_LOOKUP", No, 2..=2, 1..=1, selection::embedding_lookup),
    row("ARG_MAX", No, 2..=2, 1..=1, |c| selection::arg(c, ARGMAX)),
    row("ARG_MIN", No, 2..=2, 1..=1, |c| selection::arg(c, ARGMIN)),
    row("TOPK_V2", No, 2..=2, 2..=2, selection::top_k),
    row("CAST", Elementwise, 1..=1, 1..=1, selection::cast),
    row("SELECT", Own, 3..=3, 1..=1, selection::select),
    row("SELECT_V2", Elementwise, 3..=3, 1..=1, selection::select_v2),
    row(detection::NAME, No, 3..=3, 4..=4, detection::postprocess),
    row("UNIDIRECTIONAL_SEQUENCE_LSTM", No, 20..=24, 1..=1, recurrent::unidirectional_lstm),
];

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    #[test]
    fn reasons_are_for_operators_without_a_mapping() {
        let builtin: Vec<String> = (0..162).map(names::name).collect();
        for name in UNMAPPED.iter().flat_map(|(names, _)| *names) {
            assert!(builtin.iter().any(|builtin| builtin == name), "{name} is not an operator");
            assert!(find(name).is_none(), "{name} has a mapping");
        }
    }

    #[test]
    fn every_mapping_is_documented() {
        let text = include_str!("../../docs/TFLITE.md");
        for mapping in MAPPINGS {
            let name = mapping.name.trim_start_matches("custom ");
            assert!(text.contains(&format!("`{name}`")), "docs/TFLITE.md says nothing of {name}");
        }
    }

    #[test]
    fn every_mapping_has_the_name_of_one_operator() {
        let builtin: Vec<String> = (0..162).map(names::name).collect();
        for mapping in MAPPINGS {
            let is_custom = mapping.name.starts_with("custom ");
            assert!(is_custom || builtin.iter().any(|name| name == mapping.name), "{}", mapping.name);
            let same = MAPPINGS.iter().filter(|other| other.name == mapping.name).count();
            assert_eq!(same, 1, "{} is mapped twice", mapping.name);
        }
    }
}
