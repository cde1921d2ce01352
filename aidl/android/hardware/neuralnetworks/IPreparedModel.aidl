package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExecutionConfig;
import android.hardware.neuralnetworks.ExecutionResult;
import android.hardware.neuralnetworks.FencedExecutionResult;
import android.hardware.neuralnetworks.IBurst;
import android.hardware.neuralnetworks.IExecution;
import android.hardware.neuralnetworks.Request;
import android.os.ParcelFileDescriptor;

/** A compiled model. Lives as long as the client holds it. */
@VintfStability
interface IPreparedModel {
    /** For each WHILE, when the client asks for -1. */
    const long DEFAULT_LOOP_TIMEOUT_DURATION_NS = 2000000000;
    const long MAXIMUM_LOOP_TIMEOUT_DURATION_NS = 15000000000;
    /** @param deadlineNs on CLOCK_BOOTTIME; -1 is none. */
    ExecutionResult executeSynchronously(in Request request, in boolean measureTiming,
            in long deadlineNs, in long loopTimeoutDurationNs);
    /**
     * Needs every output dimension known beforehand.
     *
     * @param durationNs counted from the last wait fence to signal; -1 is none.
     */
    FencedExecutionResult executeFenced(in Request request, in ParcelFileDescriptor[] waitFor,
            in boolean measureTiming, in long deadlineNs, in long loopTimeoutDurationNs,
            in long durationNs);
    IBurst configureExecutionBurst();
    /** Since version 4. Validates now, so that executions need not. */
    IExecution createReusableExecution(in Request request, in ExecutionConfig config);
    /** Since version 4. */
    ExecutionResult executeSynchronouslyWithConfig(in Request request, in ExecutionConfig config,
            in long deadlineNs);
    /** Since version 4. */
    FencedExecutionResult executeFencedWithConfig(in Request request,
            in ParcelFileDescriptor[] waitFor, in ExecutionConfig config, in long deadlineNs,
            in long durationNs);
}
