package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.OutputShape;
import android.hardware.neuralnetworks.Timing;

/** What a synchronous execution tells beside the bytes it wrote. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable ExecutionResult {
    /** False when at least one output did not fit; nothing was written to such an output. */
    boolean outputSufficientSize;
    /** One per model output. */
    OutputShape[] outputShapes;
    Timing timing;
}
