package vendor.nnhal.burst;

import android.hardware.neuralnetworks.Memory;

/** The client's side of a burst. */
@VintfStability
interface IFmqBurstCallback {
    /**
     * The memories that these names stand for, in the order of the names. Each stays what its name stands for until
     * IFmqBurstContext.freeMemory; the driver may ask for it more than once.
     */
    Memory[] getMemories(in int[] slots);
}
