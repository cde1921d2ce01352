//! What kernels take of the time of plain evaluations, by instruction set and by the type of an operation's first input.
//! A type's figure is the geometric mean over kinds of operations, of which "others" are those without a kernel.
//!
//! Made by a measurement, the shortest of many rounds each, on a Xeon (Sapphire Rapids); do not edit it by hand:
//!
//! ```sh
//! cargo test --release --lib measure_capabilities -- --ignored
//! ```

use crate::tensor::OperandType::{self, *};

/// Times relative to the plain evaluation, on one thread, by the name of an instruction set and sorted by type.
#[rustfmt::skip]
pub const MEASURED: &[(&str, &[(OperandType, f32)])] = &[
    ("base", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.79, conversion 0.69, convolution 0.48, depthwise 1.23, fully connected 0.38, functions 0.34
        // matrices 0.71, movement 0.59, pooling 0.81, reduction 0.24, resizing 0.35, softmax 0.27
        // others 1
        (TENSOR_FLOAT32, 0.54),
        // arithmetic 1.24, conversion 1.00, matrices 1.00, movement 1.01, others 1
        (TENSOR_INT32, 1.05),
        // arithmetic 0.13, conversion 0.48, convolution 0.94, depthwise 1.04, fully connected 1.15, functions 1.44
        // movement 0.45, pooling 0.49, reduction 0.12, resizing 0.19, softmax 0.37, others 1
        (TENSOR_QUANT8_ASYMM, 0.49),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.44, conversion 0.45, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.53
        // matrices 1.00, movement 0.50, pooling 1.00, reduction 0.51, resizing 1.00, softmax 0.30
        // others 1
        (TENSOR_FLOAT16, 0.69),
        // arithmetic 1.44, reduction 0.04, select 1.00, others 1
        (TENSOR_BOOL8, 0.49),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.39, others 1
        (TENSOR_QUANT8_SYMM, 0.63),
        // arithmetic 0.14, conversion 0.38, convolution 0.88, depthwise 1.05, fully connected 0.97, functions 1.17
        // matrices 1.11, movement 0.46, pooling 0.43, reduction 0.15, resizing 0.60, softmax 0.48
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.56),
    ]),
    ("avx2", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.56, conversion 0.61, convolution 0.15, depthwise 0.12, fully connected 0.22, functions 0.20
        // matrices 0.26, movement 0.56, pooling 0.70, reduction 0.12, resizing 0.21, softmax 0.14
        // others 1
        (TENSOR_FLOAT32, 0.29),
        // arithmetic 0.89, conversion 1.06, matrices 1.00, movement 1.02, others 1
        (TENSOR_INT32, 0.99),
        // arithmetic 0.06, conversion 0.37, convolution 0.07, depthwise 0.24, fully connected 0.09, functions 1.45
        // movement 0.45, pooling 0.81, reduction 0.06, resizing 0.07, softmax 0.29, others 1
        (TENSOR_QUANT8_ASYMM, 0.23),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.23, conversion 0.26, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.36
        // matrices 1.00, movement 0.49, pooling 1.00, reduction 0.25, resizing 1.00, softmax 0.15
        // others 1
        (TENSOR_FLOAT16, 0.55),
        // arithmetic 1.08, reduction 0.04, select 1.00, others 1
        (TENSOR_BOOL8, 0.46),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.19, others 1
        (TENSOR_QUANT8_SYMM, 0.44),
        // arithmetic 0.05, conversion 0.18, convolution 0.06, depthwise 0.20, fully connected 0.07, functions 1.17
        // matrices 0.11, movement 0.44, pooling 0.59, reduction 0.06, resizing 0.09, softmax 0.33
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.19),
    ]),
    ("avx-vnni", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.50, conversion 0.58, convolution 0.12, depthwise 0.12, fully connected 0.19, functions 0.19
        // matrices 0.21, movement 0.55, pooling 0.67, reduction 0.11, resizing 0.21, softmax 0.14
        // others 1
        (TENSOR_FLOAT32, 0.27),
        // arithmetic 0.87, conversion 0.92, matrices 1.00, movement 1.00, others 1
        (TENSOR_INT32, 0.96),
        // arithmetic 0.07, conversion 0.37, convolution 0.03, depthwise 0.20, fully connected 0.03, functions 1.39
        // movement 0.47, pooling 0.82, reduction 0.06, resizing 0.08, softmax 0.29, others 1
        (TENSOR_QUANT8_ASYMM, 0.20),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.23, conversion 0.28, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.38
        // matrices 1.00, movement 0.51, pooling 1.00, reduction 0.21, resizing 1.00, softmax 0.15
        // others 1
        (TENSOR_FLOAT16, 0.55),
        // arithmetic 1.06, reduction 0.06, select 1.00, others 1
        (TENSOR_BOOL8, 0.50),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.18, others 1
        (TENSOR_QUANT8_SYMM, 0.43),
        // arithmetic 0.05, conversion 0.19, convolution 0.03, depthwise 0.20, fully connected 0.03, functions 1.12
        // matrices 0.08, movement 0.46, pooling 0.66, reduction 0.08, resizing 0.08, softmax 0.28
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.17),
    ]),
    ("avx512", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.31, conversion 0.62, convolution 0.07, depthwise 0.08, fully connected 0.18, functions 0.15
        // matrices 0.13, movement 0.56, pooling 0.56, reduction 0.10, resizing 0.18, softmax 0.12
        // others 1
        (TENSOR_FLOAT32, 0.22),
        // arithmetic 0.58, conversion 0.76, matrices 1.00, movement 1.01, others 1
        (TENSOR_INT32, 0.85),
        // arithmetic 0.03, conversion 0.43, convolution 0.04, depthwise 0.20, fully connected 0.06, functions 1.55
        // movement 0.46, pooling 0.88, reduction 0.07, resizing 0.06, softmax 0.37, others 1
        (TENSOR_QUANT8_ASYMM, 0.21),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.08, conversion 0.23, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.22
        // matrices 1.00, movement 0.55, pooling 1.00, reduction 0.10, resizing 1.00, softmax 0.09
        // others 1
        (TENSOR_FLOAT16, 0.43),
        // arithmetic 0.90, reduction 0.04, select 1.00, others 1
        (TENSOR_BOOL8, 0.44),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.21, others 1
        (TENSOR_QUANT8_SYMM, 0.46),
        // arithmetic 0.04, conversion 0.20, convolution 0.05, depthwise 0.24, fully connected 0.06, functions 1.18
        // matrices 0.10, movement 0.47, pooling 0.65, reduction 0.06, resizing 0.07, softmax 0.34
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.18),
    ]),
    ("avx512-vnni", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.32, conversion 0.65, convolution 0.08, depthwise 0.08, fully connected 0.20, functions 0.15
        // matrices 0.14, movement 0.54, pooling 0.56, reduction 0.10, resizing 0.17, softmax 0.12
        // others 1
        (TENSOR_FLOAT32, 0.22),
        // arithmetic 0.71, conversion 0.94, matrices 1.00, movement 1.02, others 1
        (TENSOR_INT32, 0.92),
        // arithmetic 0.04, conversion 0.35, convolution 0.02, depthwise 0.10, fully connected 0.03, functions 1.46
        // movement 0.47, pooling 0.81, reduction 0.06, resizing 0.07, softmax 0.34, others 1
        (TENSOR_QUANT8_ASYMM, 0.17),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.12, conversion 0.23, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.23
        // matrices 1.00, movement 0.52, pooling 1.00, reduction 0.13, resizing 1.00, softmax 0.11
        // others 1
        (TENSOR_FLOAT16, 0.46),
        // arithmetic 0.88, reduction 0.04, select 1.00, others 1
        (TENSOR_BOOL8, 0.44),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.20, others 1
        (TENSOR_QUANT8_SYMM, 0.45),
        // arithmetic 0.04, conversion 0.21, convolution 0.02, depthwise 0.10, fully connected 0.03, functions 1.17
        // matrices 0.06, movement 0.43, pooling 0.65, reduction 0.06, resizing 0.06, softmax 0.35
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.14),
    ]),
    ("amx", &[
        // others 1
        (FLOAT32, 1.00),
        // others 1
        (INT32, 1.00),
        // others 1
        (UINT32, 1.00),
        // arithmetic 0.32, conversion 0.67, convolution 0.09, depthwise 0.08, fully connected 0.18, functions 0.14
        // matrices 0.13, movement 0.54, pooling 0.45, reduction 0.09, resizing 0.17, softmax 0.12
        // others 1
        (TENSOR_FLOAT32, 0.21),
        // arithmetic 0.58, conversion 0.93, matrices 1.00, movement 1.00, others 1
        (TENSOR_INT32, 0.88),
        // arithmetic 0.03, conversion 0.37, convolution 0.02, depthwise 0.09, fully connected 0.05, functions 1.40
        // movement 0.46, pooling 0.79, reduction 0.05, resizing 0.06, softmax 0.28, others 1
        (TENSOR_QUANT8_ASYMM, 0.16),
        // others 1
        (BOOL, 1.00),
        // others 1
        (TENSOR_QUANT16_SYMM, 1.00),
        // arithmetic 0.08, conversion 0.18, convolution 1.00, depthwise 1.00, fully connected 1.00, functions 0.14
        // matrices 1.00, movement 0.49, pooling 1.00, reduction 0.09, resizing 1.00, softmax 0.10
        // others 1
        (TENSOR_FLOAT16, 0.41),
        // arithmetic 0.94, reduction 0.05, select 1.00, others 1
        (TENSOR_BOOL8, 0.46),
        // others 1
        (FLOAT16, 1.00),
        // conversion 1.00, others 1
        (TENSOR_QUANT8_SYMM_PER_CHANNEL, 1.00),
        // others 1
        (TENSOR_QUANT16_ASYMM, 1.00),
        // conversion 0.18, others 1
        (TENSOR_QUANT8_SYMM, 0.43),
        // arithmetic 0.03, conversion 0.18, convolution 0.02, depthwise 0.09, fully connected 0.04, functions 1.13
        // matrices 0.05, movement 0.46, pooling 0.68, reduction 0.06, resizing 0.06, softmax 0.30
        // others 1
        (TENSOR_QUANT8_ASYMM_SIGNED, 0.14),
    ]),
];
