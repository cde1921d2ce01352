package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExtensionNameAndPrefix;
import android.hardware.neuralnetworks.Memory;
import android.hardware.neuralnetworks.Subgraph;

/** A graph with its constants. */
@VintfStability
parcelable Model {
    Subgraph main;
    /** What IF and WHILE refer to by index; no cycles. */
    Subgraph[] referenced;
    /** The bytes of CONSTANT_COPY operands. */
    byte[] operandValues;
    /** The memory of CONSTANT_POOL operands; only to be read during the call that brings it, unless mapped. */
    Memory[] pools;
    /** float32 may be computed with the range and precision of float16. */
    boolean relaxComputationFloat32toFloat16;
    /** No name and no prefix twice. */
    ExtensionNameAndPrefix[] extensionNameToPrefix;
}
