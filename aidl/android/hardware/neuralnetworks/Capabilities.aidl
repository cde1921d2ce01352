package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.OperandPerformance;
import android.hardware.neuralnetworks.PerformanceInfo;

/** How fast and frugal the driver is beside the CPU; the runtime partitions a graph by it. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Capabilities {
    /** For float32 operands of models that allow float16 arithmetic. */
    PerformanceInfo relaxedFloat32toFloat16PerformanceScalar;
    PerformanceInfo relaxedFloat32toFloat16PerformanceTensor;
    /** Sorted by type, each type once, SUBGRAPH never; a type not named counts as infinitely slow. */
    OperandPerformance[] operandPerformance;
    /** For IF and WHILE themselves, not for what their subgraphs hold. */
    PerformanceInfo ifPerformance;
    PerformanceInfo whilePerformance;
}
