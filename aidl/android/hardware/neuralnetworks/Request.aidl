package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.RequestArgument;
import android.hardware.neuralnetworks.RequestMemoryPool;

/** The arguments of one execution. */
@VintfStability
parcelable Request {
    /** One per model input. */
    RequestArgument[] inputs;
    /** One per model output. */
    RequestArgument[] outputs;
    RequestMemoryPool[] pools;
}
