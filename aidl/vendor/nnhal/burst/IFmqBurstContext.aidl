package vendor.nnhal.burst;

/** The driver's side of a burst, which ends when this object is released. */
@VintfStability
interface IFmqBurstContext {
    /** Forgets a memory; its name may then stand for another. A name never seen is no error. */
    void freeMemory(in int slot);
}
