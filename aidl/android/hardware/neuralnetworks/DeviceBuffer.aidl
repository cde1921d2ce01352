package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.IBuffer;

/** A buffer the driver keeps for a client (a memory domain). */
@VintfStability
@RustDerive(Clone=true)
parcelable DeviceBuffer {
    /** Lives as long as the client holds it. */
    IBuffer buffer;
    /** Names the buffer in a RequestMemoryPool: above 0, unique among the service's live buffers. */
    int token;
}
