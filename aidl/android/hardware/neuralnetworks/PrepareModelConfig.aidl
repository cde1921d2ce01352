package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExecutionPreference;
import android.hardware.neuralnetworks.ExtensionNameAndPrefix;
import android.hardware.neuralnetworks.Priority;
import android.hardware.neuralnetworks.TokenValuePair;
import android.os.ParcelFileDescriptor;

/** How a compilation is to go (since version 4). */
@VintfStability
parcelable PrepareModelConfig {
    const int BYTE_SIZE_OF_CACHE_TOKEN = 32;
    ExecutionPreference preference;
    Priority priority;
    /** On CLOCK_BOOTTIME; -1 is none. */
    long deadlineNs;
    /** To be written; both lists empty says do not cache. Bad ones only mean that nothing is cached. */
    ParcelFileDescriptor[] modelCache;
    ParcelFileDescriptor[] dataCache;
    /** Names the compilation for the client; meaningless without files. */
    byte[BYTE_SIZE_OF_CACHE_TOKEN] cacheToken;
    /** A driver ignores hints it does not know; no token twice. */
    TokenValuePair[] compilationHints;
    ExtensionNameAndPrefix[] extensionNameToPrefix;
}
