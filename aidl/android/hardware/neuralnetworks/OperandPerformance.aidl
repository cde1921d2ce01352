package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.OperandType;
import android.hardware.neuralnetworks.PerformanceInfo;

@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable OperandPerformance {
    OperandType type = OperandType.FLOAT32;
    PerformanceInfo info;
}
