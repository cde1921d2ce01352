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
    0 ADD => None;
    1 AVERAGE_POOL_2D => None;
    2 CONCATENATION => None;
    3 CONV_2D => None;
    4 DEPTHWISE_CONV_2D => None;
    5 DEPTH_TO_SPACE => None;
    6 DEQUANTIZE => None;
    7 EMBEDDING_LOOKUP => None;
    8 FLOOR => Some(&elementwise::FLOOR);
    9 FULLY_CONNECTED => None;
    10 HASHTABLE_LOOKUP => None;
    11 L2_NORMALIZATION => None;
    12 L2_POOL_2D => None;
    13 LOCAL_RESPONSE_NORMALIZATION => None;
    14 LOGISTIC => None;
    15 LSH_PROJECTION => None;
    16 LSTM => Some(&recurrent::LSTM);
    17 MAX_POOL_2D => None;
    18 MUL => None;
    19 RELU => None;
    20 RELU1 => None;
    21 RELU6 => None;
    22 RESHAPE => None;
    23 RESIZE_BILINEAR => None;
    24 RNN => Some(&recurrent::RNN);
    25 SOFTMAX => None;
    26 SPACE_TO_DEPTH => None;
    27 SVDF => Some(&recurrent::SVDF);
    28 TANH => None;
    29 BATCH_TO_SPACE_ND => None;
    30 DIV => None;
    31 MEAN => None;
    32 PAD => None;
    33 SPACE_TO_BATCH_ND => None;
    34 SQUEEZE => None;
    35 STRIDED_SLICE => None;
    36 SUB => None;
    37 TRANSPOSE => None;
    38 ABS => None;
    39 ARGMAX => None;
    40 ARGMIN => None;
    41 AXIS_ALIGNED_BBOX_TRANSFORM => None;
    42 BIDIRECTIONAL_SEQUENCE_LSTM => Some(&recurrent::BIDIRECTIONAL_SEQUENCE_LSTM);
    43 BIDIRECTIONAL_SEQUENCE_RNN => Some(&recurrent::BIDIRECTIONAL_SEQUENCE_RNN);
    44 BOX_WITH_NMS_LIMIT => None;
    45 CAST => None;
    46 CHANNEL_SHUFFLE => None;
    47 DETECTION_POSTPROCESSING => None;
    48 EQUAL => None;
    49 EXP => None;
    50 EXPAND_DIMS => None;
    51 GATHER => None;
    52 GENERATE_PROPOSALS => None;
    53 GREATER => None;
    54 GREATER_EQUAL => None;
    55 GROUPED_CONV_2D => None;
    56 HEATMAP_MAX_KEYPOINT => None;
    57 INSTANCE_NORMALIZATION => None;
    58 LESS => None;
    59 LESS_EQUAL => None;
    60 LOG => None;
    61 LOGICAL_AND => None;
    62 LOGICAL_NOT => None;
    63 LOGICAL_OR => None;
    64 LOG_SOFTMAX => None;
    65 MAXIMUM => None;
    66 MINIMUM => None;
    67 NEG => None;
    68 NOT_EQUAL => None;
    69 PAD_V2 => None;
    70 POW => None;
    71 PRELU => None;
    72 QUANTIZE => None;
    73 QUANTIZED_16BIT_LSTM => Some(&recurrent::QUANTIZED_16BIT_LSTM);
    74 RANDOM_MULTINOMIAL => None;
    75 REDUCE_ALL => None;
    76 REDUCE_ANY => None;
    77 REDUCE_MAX => None;
    78 REDUCE_MIN => None;
    79 REDUCE_PROD => None;
    80 REDUCE_SUM => None;
    81 ROI_ALIGN => None;
    82 ROI_POOLING => None;
    83 RSQRT => None;
    84 SELECT => None;
    85 SIN => None;
    86 SLICE => None;
    87 SPLIT => None;
    88 SQRT => None;
    89 TILE => None;
    90 TOPK_V2 => None;
    91 TRANSPOSE_CONV_2D => None;
    92 UNIDIRECTIONAL_SEQUENCE_LSTM => Some(&recurrent::UNIDIRECTIONAL_SEQUENCE_LSTM);
    93 UNIDIRECTIONAL_SEQUENCE_RNN => Some(&recurrent::UNIDIRECTIONAL_SEQUENCE_RNN);
    94 RESIZE_NEAREST_NEIGHBOR => None;
    95 QUANTIZED_LSTM => Some(&recurrent::QUANTIZED_LSTM);
    96 IF => None;
    97 WHILE => None;
    98 ELU => None;
    99 HARD_SWISH => None;
    100 FILL => None;
    101 RANK => None;
    102 BATCH_MATMUL => None;
    103 PACK => None;
    104 MIRROR_PAD => None;
    105 REVERSE => None;
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
