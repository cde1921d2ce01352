package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExecutionConfig;
import android.hardware.neuralnetworks.ExecutionResult;
import android.hardware.neuralnetworks.Request;

/** A series of executions of one prepared model, one at a time, that may keep memory mapped between them. */
@VintfStability
interface IBurst {
    /**
     * @param memoryIdentifierTokens one per pool of the request: -1, or a number that names the same
     * memory throughout the burst. The memory itself comes along every time all the same.
     */
    ExecutionResult executeSynchronously(in Request request, in long[] memoryIdentifierTokens,
            in boolean measureTiming, in long deadlineNs, in long loopTimeoutDurationNs);
    /** A token never seen is no error; a negative one is. */
    void releaseMemoryResource(in long memoryIdentifierToken);
    /** Since version 4. */
    ExecutionResult executeSynchronouslyWithConfig(in Request request, in long[] memoryIdentifierTokens,
            in ExecutionConfig config, in long deadlineNs);
}
