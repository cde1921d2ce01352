package android.hardware.neuralnetworks;

/** The types of operands. A value above 65535 belongs to an extension. */
@VintfStability
@Backing(type="int")
enum OperandType {
    FLOAT32 = 0,
    INT32 = 1,
    UINT32 = 2,
    TENSOR_FLOAT32 = 3,
    TENSOR_INT32 = 4,
    /** Unsigned 8 bits, with scale and zero point. */
    TENSOR_QUANT8_ASYMM = 5,
    /** One byte; anything but 0 is true. */
    BOOL = 6,
    /** Signed 16 bits, zero point 0. */
    TENSOR_QUANT16_SYMM = 7,
    TENSOR_FLOAT16 = 8,
    TENSOR_BOOL8 = 9,
    FLOAT16 = 10,
    /** Signed 8 bits, one scale per slice along OperandExtraParams.channelQuant.channelDim. */
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
    /** Unsigned 16 bits, with scale and zero point. */
    TENSOR_QUANT16_ASYMM = 12,
    /** Signed 8 bits, zero point 0. */
    TENSOR_QUANT8_SYMM = 13,
    /** Signed 8 bits, with scale and zero point. */
    TENSOR_QUANT8_ASYMM_SIGNED = 14,
    /** An input of IF and WHILE: a subgraph of the same model. */
    SUBGRAPH = 15,
}
