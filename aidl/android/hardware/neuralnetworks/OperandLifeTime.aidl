package android.hardware.neuralnetworks;

/** Where an operand gets its value. */
@VintfStability
@Backing(type="int")
enum OperandLifeTime {
    TEMPORARY_VARIABLE = 0,
    SUBGRAPH_INPUT = 1,
    SUBGRAPH_OUTPUT = 2,
    /** From Model.operandValues. */
    CONSTANT_COPY = 3,
    /** From Model.pools. */
    CONSTANT_POOL = 4,
    /** An optional input left out. */
    NO_VALUE = 5,
    /** The value is a referenced subgraph; location.offset is its index. */
    SUBGRAPH = 6,
}
