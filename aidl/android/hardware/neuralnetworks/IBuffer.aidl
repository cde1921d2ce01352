package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.Memory;

/** A driver-side buffer. Uninitialised until something is copied or executed into it. */
@VintfStability
interface IBuffer {
    /**
     * @param dimensions needed in full when the buffer's own are not known in full; may be empty otherwise.
     * A failure leaves the buffer uninitialised.
     */
    void copyFrom(in Memory src, in int[] dimensions);
    /** Fails on an uninitialised buffer; dst must have the buffer's exact size. */
    void copyTo(in Memory dst);
}
