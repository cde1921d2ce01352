//! The operations' names and codes, which are the interface's, and the list of where each is.

/// The one list of operations: has `$with` make something of all codes, names and modules.
macro_rules! for_each_operation {
    ($with:ident) => {
        $with! {
            0 ADD in elementwise;
            1 AVERAGE_POOL_2D in pool;
            2 CONCATENATION in movement;
            3 CONV_2D in conv;
            4 DEPTHWISE_CONV_2D in conv;
            5 DEPTH_TO_SPACE in movement;
            6 DEQUANTIZE in elementwise;
            7 EMBEDDING_LOOKUP in lookup;
            8 FLOOR in elementwise;
            9 FULLY_CONNECTED in matmul;
            10 HASHTABLE_LOOKUP in lookup;
            11 L2_NORMALIZATION in norm;
            12 L2_POOL_2D in pool;
            13 LOCAL_RESPONSE_NORMALIZATION in norm;
            14 LOGISTIC in elementwise;
            15 LSH_PROJECTION in random;
            16 LSTM in recurrent;
            17 MAX_POOL_2D in pool;
            18 MUL in elementwise;
            19 RELU in elementwise;
            20 RELU1 in elementwise;
            21 RELU6 in elementwise;
            22 RESHAPE in movement;
            23 RESIZE_BILINEAR in resize;
            24 RNN in recurrent;
            25 SOFTMAX in norm;
            26 SPACE_TO_DEPTH in movement;
            27 SVDF in recurrent;
            28 TANH in elementwise;
            29 BATCH_TO_SPACE_ND in movement;
            30 DIV in elementwise;
            31 MEAN in reduce;
            32 PAD in movement;
            33 SPACE_TO_BATCH_ND in movement;
            34 SQUEEZE in movement;
            35 STRIDED_SLICE in movement;
            36 SUB in elementwise;
            37 TRANSPOSE in movement;
            38 ABS in elementwise;
            39 ARGMAX in search;
            40 ARGMIN in search;
            41 AXIS_ALIGNED_BBOX_TRANSFORM in detection;
            42 BIDIRECTIONAL_SEQUENCE_LSTM in recurrent;
            43 BIDIRECTIONAL_SEQUENCE_RNN in recurrent;
            44 BOX_WITH_NMS_LIMIT in detection;
            45 CAST in elementwise;
            46 CHANNEL_SHUFFLE in movement;
            47 DETECTION_POSTPROCESSING in detection;
            48 EQUAL in elementwise;
            49 EXP in elementwise;
            50 EXPAND_DIMS in movement;
            51 GATHER in movement;
            52 GENERATE_PROPOSALS in detection;
            53 GREATER in elementwise;
            54 GREATER_EQUAL in elementwise;
            55 GROUPED_CONV_2D in conv;
            56 HEATMAP_MAX_KEYPOINT in detection;
            57 INSTANCE_NORMALIZATION in norm;
            58 LESS in elementwise;
            59 LESS_EQUAL in elementwise;
            60 LOG in elementwise;
            61 LOGICAL_AND in elementwise;
            62 LOGICAL_NOT in elementwise;
            63 LOGICAL_OR in elementwise;
            64 LOG_SOFTMAX in norm;
            65 MAXIMUM in elementwise;
            66 MINIMUM in elementwise;
            67 NEG in elementwise;
            68 NOT_EQUAL in elementwise;
            69 PAD_V2 in movement;
            70 POW in elementwise;
            71 PRELU in elementwise;
            72 QUANTIZE in elementwise;
            73 QUANTIZED_16BIT_LSTM in recurrent;
            74 RANDOM_MULTINOMIAL in random;
            75 REDUCE_ALL in reduce;
            76 REDUCE_ANY in reduce;
            77 REDUCE_MAX in reduce;
            78 REDUCE_MIN in reduce;
            79 REDUCE_PROD in reduce;
            80 REDUCE_SUM in reduce;
            81 ROI_ALIGN in detection;
            82 ROI_POOLING in detection;
            83 RSQRT in elementwise;
            84 SELECT in elementwise;
            85 SIN in elementwise;
            86 SLICE in movement;
            87 SPLIT in movement;
            88 SQRT in elementwise;
            89 TILE in movement;
            90 TOPK_V2 in search;
            91 TRANSPOSE_CONV_2D in conv;
            92 UNIDIRECTIONAL_SEQUENCE_LSTM in recurrent;
            93 UNIDIRECTIONAL_SEQUENCE_RNN in recurrent;
            94 RESIZE_NEAREST_NEIGHBOR in resize;
            95 QUANTIZED_LSTM in recurrent;
            96 IF in control_flow;
            97 WHILE in control_flow;
            98 ELU in elementwise;
            99 HARD_SWISH in elementwise;
            100 FILL in movement;
            101 RANK in movement;
            102 BATCH_MATMUL in matmul;
            103 PACK in movement;
            104 MIRROR_PAD in movement;
            105 REVERSE in movement;
        }
    };
}
pub(super) use for_each_operation;

macro_rules! names {
    ($($code:literal $name:ident in $module:ident;)*) => {
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
        }
    };
}

for_each_operation!(names);

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
