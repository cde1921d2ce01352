package android.hardware.neuralnetworks;

/** How long an execution took, in nanoseconds; -1 when not measured. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Timing {
    /** On the hardware alone. */
    long timeOnDeviceNs;
    /** From the driver's first sight of the request to its answer; no less than timeOnDeviceNs. */
    long timeInDriverNs;
}
