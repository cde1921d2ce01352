package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.OperationType;

/** A node of a subgraph. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Operation {
    OperationType type = OperationType.ADD;
    /** Into the operands of the same subgraph. */
    int[] inputs;
    int[] outputs;
}
