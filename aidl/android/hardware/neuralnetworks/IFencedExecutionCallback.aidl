package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ErrorStatus;
import android.hardware.neuralnetworks.Timing;

/** The driver's account of a fenced execution. */
@VintfStability
interface IFencedExecutionCallback {
    /**
     * To be asked after the fence has signalled; GENERAL_FAILURE, as the return value, before that.
     *
     * @param timingLaunched counted from the call that launched the execution.
     * @param timingFenced counted from the last wait fence to signal.
     */
    ErrorStatus getExecutionInfo(out Timing timingLaunched, out Timing timingFenced);
}
