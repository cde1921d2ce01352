package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExtensionNameAndPrefix;
import android.hardware.neuralnetworks.TokenValuePair;

/** How one execution is to go (since version 4). */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable ExecutionConfig {
    /** Asks for Timing; it stays -1 otherwise. */
    boolean measureTiming;
    /** Per WHILE: -1 is the default, above the maximum is invalid. */
    long loopTimeoutDurationNs;
    /** A driver ignores hints it does not know; no token twice. */
    TokenValuePair[] executionHints;
    ExtensionNameAndPrefix[] extensionNameToPrefix;
}
