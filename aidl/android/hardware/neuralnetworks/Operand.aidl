package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.DataLocation;
import android.hardware.neuralnetworks.OperandExtraParams;
import android.hardware.neuralnetworks.OperandLifeTime;
import android.hardware.neuralnetworks.OperandType;

/** A value in a subgraph. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Operand {
    OperandType type = OperandType.FLOAT32;
    /** 0 is an unknown dimension, an empty list for a tensor an unknown rank; empty for scalars. */
    int[] dimensions;
    /** real value = (stored value - zeroPoint) * scale. */
    float scale;
    int zeroPoint;
    OperandLifeTime lifetime = OperandLifeTime.TEMPORARY_VARIABLE;
    DataLocation location;
    @nullable OperandExtraParams extraParams;
}
