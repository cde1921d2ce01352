package android.hardware.neuralnetworks;

/**
 * What went wrong. Thrown as the service-specific code of a binder status, but returned from
 * getExecutionInfo and passed to notify.
 */
@VintfStability
@Backing(type="int")
enum ErrorStatus {
    NONE = 0,
    DEVICE_UNAVAILABLE = 1,
    GENERAL_FAILURE = 2,
    /** Never thrown: ExecutionResult says so by outputSufficientSize. */
    OUTPUT_INSUFFICIENT_SIZE = 3,
    /** At compilation this keeps the runtime from falling back to its own CPU path. */
    INVALID_ARGUMENT = 4,
    /** TRANSIENT: the same call may succeed soon. */
    MISSED_DEADLINE_TRANSIENT = 5,
    /** PERSISTENT: the same call will fail again. */
    MISSED_DEADLINE_PERSISTENT = 6,
    RESOURCE_EXHAUSTED_TRANSIENT = 7,
    RESOURCE_EXHAUSTED_PERSISTENT = 8,
}
