package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.Operand;
import android.hardware.neuralnetworks.Operation;

/** Operations in an order in which they can run, and the operands they work on. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Subgraph {
    Operand[] operands;
    Operation[] operations;
    /** Every operand of lifetime SUBGRAPH_INPUT, each once. */
    int[] inputIndexes;
    /** Every operand of lifetime SUBGRAPH_OUTPUT, each once. */
    int[] outputIndexes;
}
