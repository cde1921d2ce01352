package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.Memory;

/** The order of the members is their tag on the wire. */
@VintfStability
union RequestMemoryPool {
    Memory pool;
    /** DeviceBuffer.token of a driver-side buffer. */
    int token;
}
