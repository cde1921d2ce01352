//! The table of operations: the interface's code and name, and where the operation is.

use super::*;

macro_rules! operations {
    ($($code:literal $name:ident => $operation:expr;)*) => {
        /// The operations of NNAPI at feature level 8. Names and codes are those of the AIDL enum.
        #[allow(non_camel_case_types)] // the interface's own spelling
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OperationType { $($name = $code,)* }

        impl OperationType {
            /// All operations, in order of their codes.
            pub const ALL: &'static [OperationType] = &[$(OperationType::$name,)*];

            /// The interface's name, for messages and documentation.
            pub fn name(self) -> &'static str {
                match self { $(OperationType::$name => stringify!($name),)* }
            }

            /// What the driver knows of this operation; `None` if it does not support it.
            pub fn operation(self) -> Option<&'static Operation> {
                match self { $(OperationType::$name => $operation,)* }
            }
        }
    };
}

operations! {
    0 ADD => Some(&elementwise::ADD);
    1 AVERAGE_POOL_2D => Some(&pool::AVERAGE_POOL_2D);
    2 CONCATENATION => Some(&movement::CONCATENATION);
    3 CONV_2D => Some(&conv::CONV_2D);
    4 DEPTHWISE_CONV_2D => Some(&conv::DEPTHWISE_CONV_2D);
    5 DEPTH_TO_SPACE => Some(&movement::DEPTH_TO_SPACE);
    6 DEQUANTIZE => Some(&elementwise::DEQUANTIZE);
    7 EMBEDDING_LOOKUP => Some(&lookup::EMBEDDING_LOOKUP);
    8 FLOOR => Some(&elementwise::FLOOR);
    9 FULLY_CONNECTED => Some(&matmul::FULLY_CONNECTED);
    10 HASHTABLE_LOOKUP => Some(&lookup::HASHTABLE_LOOKUP);
    11 L2_NORMALIZATION => Some(&norm::L2_NORMALIZATION);
    12 L2_POOL_2D => Some(&pool::L2_POOL_2D);
    13 LOCAL_RESPONSE_NORMALIZATION => Some(&norm::LOCAL_RESPONSE_NORMALIZATION);
    14 LOGISTIC => Some(&elementwise::LOGISTIC);
    15 LSH_PROJECTION => Some(&random::LSH_PROJECTION);
    16 LSTM => Some(&recurrent::LSTM);
    17 MAX_POOL_2D => Some(&pool::MAX_POOL_2D);
    18 MUL => Some(&elementwise::MUL);
    19 RELU => Some(&elementwise::RELU);
    20 RELU1 => Some(&elementwise::RELU1);
    21 RELU6 => Some(&elementwise::RELU6);
    22 RESHAPE => Some(&movement::RESHAPE);
    23 RESIZE_BILINEAR => Some(&resize::RESIZE_BILINEAR);
    24 RNN => Some(&recurrent::RNN);
    25 SOFTMAX => Some(&norm::SOFTMAX);
    26 SPACE_TO_DEPTH => Some(&movement::SPACE_TO_DEPTH);
    27 SVDF => Some(&recurrent::SVDF);
    28 TANH => Some(&elementwise::TANH);
    29 BATCH_TO_SPACE_ND => Some(&movement::BATCH_TO_SPACE_ND);
    30 DIV => Some(&elementwise::DIV);
    31 MEAN => Some(&reduce::MEAN);
    32 PAD => Some(&movement::PAD);
    33 SPACE_TO_BATCH_ND => Some(&movement::SPACE_TO_BATCH_ND);
    34 SQUEEZE => Some(&movement::SQUEEZE);
    35 STRIDED_SLICE => Some(&movement::STRIDED_SLICE);
    36 SUB => Some(&elementwise::SUB);
    37 TRANSPOSE => Some(&movement::TRANSPOSE);
    38 ABS => Some(&elementwise::ABS);
    39 ARGMAX => Some(&search::ARGMAX);
    40 ARGMIN => Some(&search::ARGMIN);
    41 AXIS_ALIGNED_BBOX_TRANSFORM => Some(&detection::AXIS_ALIGNED_BBOX_TRANSFORM);
    42 BIDIRECTIONAL_SEQUENCE_LSTM => Some(&recurrent::BIDIRECTIONAL_SEQUENCE_LSTM);
    43 BIDIRECTIONAL_SEQUENCE_RNN => Some(&recurrent::BIDIRECTIONAL_SEQUENCE_RNN);
    44 BOX_WITH_NMS_LIMIT => Some(&detection::BOX_WITH_NMS_LIMIT);
    45 CAST => Some(&elementwise::CAST);
    46 CHANNEL_SHUFFLE => Some(&movement::CHANNEL_SHUFFLE);
    47 DETECTION_POSTPROCESSING => Some(&detection::DETECTION_POSTPROCESSING);
    48 EQUAL => Some(&elementwise::EQUAL);
    49 EXP => Some(&elementwise::EXP);
    50 EXPAND_DIMS => Some(&movement::EXPAND_DIMS);
    51 GATHER => Some(&movement::GATHER);
    52 GENERATE_PROPOSALS => Some(&detection::GENERATE_PROPOSALS);
    53 GREATER => Some(&elementwise::GREATER);
    54 GREATER_EQUAL => Some(&elementwise::GREATER_EQUAL);
    55 GROUPED_CONV_2D => Some(&conv::GROUPED_CONV_2D);
    56 HEATMAP_MAX_KEYPOINT => Some(&detection::HEATMAP_MAX_KEYPOINT);
    57 INSTANCE_NORMALIZATION => Some(&norm::INSTANCE_NORMALIZATION);
    58 LESS => Some(&elementwise::LESS);
    59 LESS_EQUAL => Some(&elementwise::LESS_EQUAL);
    60 LOG => Some(&elementwise::LOG);
    61 LOGICAL_AND => Some(&elementwise::LOGICAL_AND);
    62 LOGICAL_NOT => Some(&elementwise::LOGICAL_NOT);
    63 LOGICAL_OR => Some(&elementwise::LOGICAL_OR);
    64 LOG_SOFTMAX => Some(&norm::LOG_SOFTMAX);
    65 MAXIMUM => Some(&elementwise::MAXIMUM);
    66 MINIMUM => Some(&elementwise::MINIMUM);
    67 NEG => Some(&elementwise::NEG);
    68 NOT_EQUAL => Some(&elementwise::NOT_EQUAL);
    69 PAD_V2 => Some(&movement::PAD_V2);
    70 POW => Some(&elementwise::POW);
    71 PRELU => Some(&elementwise::PRELU);
    72 QUANTIZE => Some(&elementwise::QUANTIZE);
    73 QUANTIZED_16BIT_LSTM => Some(&recurrent::QUANTIZED_16BIT_LSTM);
    74 RANDOM_MULTINOMIAL => Some(&random::RANDOM_MULTINOMIAL);
    75 REDUCE_ALL => Some(&reduce::REDUCE_ALL);
    76 REDUCE_ANY => Some(&reduce::REDUCE_ANY);
    77 REDUCE_MAX => Some(&reduce::REDUCE_MAX);
    78 REDUCE_MIN => Some(&reduce::REDUCE_MIN);
    79 REDUCE_PROD => Some(&reduce::REDUCE_PROD);
    80 REDUCE_SUM => Some(&reduce::REDUCE_SUM);
    81 ROI_ALIGN => Some(&detection::ROI_ALIGN);
    82 ROI_POOLING => Some(&detection::ROI_POOLING);
    83 RSQRT => Some(&elementwise::RSQRT);
    84 SELECT => Some(&elementwise::SELECT);
    85 SIN => Some(&elementwise::SIN);
    86 SLICE => Some(&movement::SLICE);
    87 SPLIT => Some(&movement::SPLIT);
    88 SQRT => Some(&elementwise::SQRT);
    89 TILE => Some(&movement::TILE);
    90 TOPK_V2 => Some(&search::TOPK_V2);
    91 TRANSPOSE_CONV_2D => Some(&conv::TRANSPOSE_CONV_2D);
    92 UNIDIRECTIONAL_SEQUENCE_LSTM => Some(&recurrent::UNIDIRECTIONAL_SEQUENCE_LSTM);
    93 UNIDIRECTIONAL_SEQUENCE_RNN => Some(&recurrent::UNIDIRECTIONAL_SEQUENCE_RNN);
    94 RESIZE_NEAREST_NEIGHBOR => Some(&resize::RESIZE_NEAREST_NEIGHBOR);
    95 QUANTIZED_LSTM => Some(&recurrent::QUANTIZED_LSTM);
    96 IF => Some(&control_flow::IF);
    97 WHILE => Some(&control_flow::WHILE);
    98 ELU => Some(&elementwise::ELU);
    99 HARD_SWISH => Some(&elementwise::HARD_SWISH);
    100 FILL => Some(&movement::FILL);
    101 RANK => Some(&movement::RANK);
    102 BATCH_MATMUL => Some(&matmul::BATCH_MATMUL);
    103 PACK => Some(&movement::PACK);
    104 MIRROR_PAD => Some(&movement::MIRROR_PAD);
    105 REVERSE => Some(&movement::REVERSE);
}

impl OperationType {
    /// The operation with this interface code, if there is one.
    pub fn from_code(code: i32) -> Option<Self> {
        usize::try_from(code).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    pub fn code(self) -> i32 {
        self as i32
    }

    /// The operation with this interface name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name() == name)
    }
}

impl std::fmt::Display for OperationType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_operations_agree() {
        assert_eq!(OperationType::ALL.len(), 106);
        for (i, &ty) in OperationType::ALL.iter().enumerate() {
            assert_eq!(ty.code(), i as i32);
            assert_eq!(OperationType::from_code(ty.code()), Some(ty));
            assert_eq!(OperationType::from_name(ty.name()), Some(ty));
            if let Some(operation) = ty.operation() {
                assert_eq!(operation.ty, ty, "{ty} has another operation's entry");
            }
        }
        assert_eq!(OperationType::from_code(106), None);
    }
}
