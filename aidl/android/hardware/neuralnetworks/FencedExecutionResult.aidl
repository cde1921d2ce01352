package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.IFencedExecutionCallback;
import android.os.ParcelFileDescriptor;

/** A fenced execution under way. */
@VintfStability
parcelable FencedExecutionResult {
    IFencedExecutionCallback callback;
    /** Signals when the outputs are written; null says they already are. */
    @nullable ParcelFileDescriptor syncFence;
}
