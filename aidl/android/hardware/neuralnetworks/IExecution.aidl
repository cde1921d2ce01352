package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExecutionResult;
import android.hardware.neuralnetworks.FencedExecutionResult;
import android.os.ParcelFileDescriptor;

/** A request bound to a prepared model, to be run many times, one at a time (since version 4). */
@VintfStability
interface IExecution {
    ExecutionResult executeSynchronously(in long deadlineNs);
    FencedExecutionResult executeFenced(in ParcelFileDescriptor[] waitFor, in long deadlineNs,
            in long durationNs);
}
